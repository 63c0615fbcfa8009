// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes the driver with a hostile controller, which lies in its registers, its identify data and its completions, and
//! scribbles over all memory that it was given.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "driver/fake_controller.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/simt/native.hpp"
#include "fuzz/refusals.hpp"

namespace {

using namespace forebay;
using emulator::testing::choices;
using simt::native;
using test::demand;
using test::fake_controller;
namespace reg = nvme::registers;

/// The controller's memory. Memory that the controller may still write is freed never before the driver was told that
/// the controller writes no more.
class memory_of_controller final : public driver::dma_space {
 public:
  ~memory_of_controller() override {
    for (auto const& [address, bytes] : held_) std::free(reinterpret_cast<void*>(address));
  }
  void* allocate(std::size_t bytes) override {
    demand(bytes <= std::size_t{64} << 20, "the driver asks for no more than the rings of its largest queue");
    bytes = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    void* const made = std::aligned_alloc(page_bytes(), bytes);
    std::memset(made, 0, bytes);
    held_[reinterpret_cast<std::uint64_t>(made)] = bytes;
    return made;
  }
  void deallocate(void* address) noexcept override {
    auto const at = reinterpret_cast<std::uint64_t>(address);
    // Nothing is thrown from here: the process ends, and the stack says what freed the memory.
    demand(!in_use_.contains(at), "memory that the controller may write is not freed");
    held_.erase(at);
    std::free(address);
  }
  void map(void*, std::size_t) override {}
  void unmap(void*, std::size_t) override {}
  std::uint64_t bus_address(void const* address) const override { return reinterpret_cast<std::uint64_t>(address); }
  std::size_t page_bytes() const override { return 4096; }

  /// The bytes of the allocation that begins at `address`; 0 if there is none.
  std::size_t bytes_at(std::uint64_t address) const {
    auto const found = held_.find(address);
    return found == held_.end() ? 0 : found->second;
  }
  void use(std::uint64_t address) {
    if (bytes_at(address) != 0) in_use_.insert(address);
  }
  void release(std::uint64_t address) { in_use_.erase(address); }
  void release_all() { in_use_.clear(); }
  std::set<std::uint64_t> const& in_use() const { return in_use_; }

 private:
  std::map<std::uint64_t, std::size_t> held_;
  std::set<std::uint64_t> in_use_;
};

class hostile_controller final : public driver::register_space {
 public:
  hostile_controller(choices& pick, memory_of_controller& memory) : pick_(pick), memory_(memory) {
    if (pick_.rarely(128)) {
      fake_.capabilities = nvme::controller_capabilities::make(
          1 + (pick_.rarely(128) ? pick_.byte() : pick_.word<std::uint16_t>()), pick_.rarely(128), pick_.byte(),
          pick_.below(16), pick_.rarely(16) ? pick_.byte() : 1, pick_.rarely(16) ? pick_.byte() : 0, pick_.byte());
    }
    if (pick_.rarely(16)) fake_.capabilities ^= std::uint64_t{1} << pick_.below(64);
    fake_.granted_queues = pick_.rarely(64) ? pick_.word<std::uint16_t>() + 1u : 4;
    fake_.becomes_ready = !pick_.rarely(8);
    fake_.stops = !pick_.rarely(8);
    fake_.fatal_at_enable = pick_.rarely(8);
    fake_.completes_shutdown = !pick_.rarely(16);
    if (pick_.rarely(32)) fake_.write32(reg::cc, pick_.word<std::uint32_t>());
    spoil(&fake_.identify, sizeof fake_.identify);
    spoil(&fake_.name_space, sizeof fake_.name_space);
    if (pick_.rarely(64)) {
      fake_.name_space.nsze = pick_.word<std::uint64_t>();
      fake_.name_space.lbaf[0].lbads = static_cast<std::uint8_t>(9 + pick_.below(9));
    }
    if (pick_.rarely(32)) fake_.identify.rtd3e = pick_.word<std::uint32_t>();
    if (pick_.rarely(48)) window_bytes_ = 4096u << pick_.below(8);
    fake_.handler = [this](nvme::submission_entry const& e) { return answer(e); };
  }

  std::uint32_t read32(std::uint32_t offset) override {
    require_register(offset);
    if (pick_.rarely(4)) removed_ = !removed_;
    std::uint32_t value = removed_ ? nvme::removed_value : fake_.read32(offset);
    if (pick_.rarely(12)) value = pick_.rarely(64) ? ~0u : pick_.rarely(64) ? value ^ 1 : pick_.word<std::uint32_t>();
    // The driver may now take it that the controller has left, or has stopped. CAP is read in halves.
    bool const left = value == nvme::removed_value && (offset == reg::csts || offset <= reg::cap + 4);
    if (left) cc_ = {0};
    if (left || (offset == reg::csts && !cc_.enabled() && !nvme::controller_status{value}.ready())) {
      memory_.release_all();
      unanswered_.clear();
      ended_unseen_.clear();
      scribbled_ = false;
    }
    return value;
  }

  void write32(std::uint32_t offset, std::uint32_t value) override {
    require_register(offset);
    if (offset == reg::cc) {
      cc_ = {value};
      if (cc_.enabled()) {
        memory_.use(address_of(reg::asq));
        memory_.use(address_of(reg::acq));
      }
    }
    if (offset == reg::asq || offset == reg::acq || offset == reg::asq + 4 || offset == reg::acq + 4) {
      file_[offset] = value;
    }
    bool const tells = offset == reg::cc || offset >= reg::doorbell_base;
    if (tells && pick_.rarely(4)) return;  // it did not notice
    fake_.write32(offset, value);
    if (pick_.rarely(16)) scribble();
    for (std::uint32_t more = pick_.rarely(12) ? 1 + pick_.below(3) : 0; more != 0 && enabled(); --more) {
      complete(pick_.rarely(64) ? pick_.word<std::uint16_t>() : static_cast<std::uint16_t>(pick_.below(32)),
               {static_cast<std::uint16_t>(pick_.word<std::uint16_t>() & 0x7fff), pick_.word<std::uint32_t>()});
    }
  }

  std::uint32_t* doorbell(std::uint32_t offset) override {
    require_register(offset);
    demand(offset >= reg::doorbell_base + 8, "doorbells of I/O queues lie behind those of the admin queue");
    return fake_.doorbell(offset);
  }

  /// What it does while the driver does not look.
  void act() {
    if (pick_.rarely(64)) scribble();
    if (pick_.rarely(32) && enabled()) fake_.raise_fatal();
  }

 private:
  /// Whether it is a completion queue, and its id.
  using ring = std::pair<bool, std::uint16_t>;
  static ring ring_of(nvme::submission_entry const& e) {
    auto const opcode = static_cast<nvme::admin_opcode>(e.opcode());
    return {opcode == nvme::admin_opcode::create_io_completion_queue ||
                opcode == nvme::admin_opcode::delete_io_completion_queue,
            static_cast<std::uint16_t>(e.cdw10)};
  }

  void require_register(std::uint32_t offset) const {
    demand(offset % 4 == 0, "registers are words");
    if (offset >= window_bytes_) throw operation_failed("no register is there");
  }
  bool enabled() {
    return cc_.enabled() && memory_.bytes_at(address_of(reg::asq)) != 0 && memory_.bytes_at(address_of(reg::acq)) != 0;
  }
  std::uint64_t address_of(std::uint32_t offset) {
    return file_[offset] | static_cast<std::uint64_t>(file_[offset + 4]) << 32;
  }

  void spoil(void* data, std::size_t bytes) {
    if (!pick_.rarely(96)) return;
    for (std::uint32_t changes = 1 + pick_.below(8); changes != 0; --changes) {
      static_cast<std::uint8_t*>(data)[pick_.word<std::uint16_t>() % bytes] = pick_.byte();
    }
  }

  std::optional<fake_controller::reply> answer(nvme::submission_entry const& e) {
    auto const opcode = static_cast<nvme::admin_opcode>(e.opcode());
    bool const identifies = opcode == nvme::admin_opcode::identify || opcode == nvme::admin_opcode::get_log_page;
    // It ended this command before it fetched it. So the driver has the memory back, and may do with it what it likes.
    if (ended_unseen_.erase(e.command_id()) != 0) return std::nullopt;
    // It may have written this entry itself, or have ended the command with a completion that it wrote.
    if (scribbled_ && (e.prp1 != 0 || identifies) && memory_.bytes_at(e.prp1) == 0) return std::nullopt;
    demand(e.prp1 != 0 || !identifies, "a command that reads a page names it");
    if (e.prp1 != 0) {
      demand(memory_.bytes_at(e.prp1) != 0, "commands name memory that was mapped, from its start on");
      memory_.use(e.prp1);
      unanswered_[e.command_id()] = e;
      if (opcode == nvme::admin_opcode::create_io_completion_queue ||
          opcode == nvme::admin_opcode::create_io_submission_queue) {
        rings_[ring_of(e)] = e.prp1;
      }
    }
    if (pick_.rarely(12)) return std::nullopt;
    fake_controller::reply reply =
        opcode == nvme::admin_opcode::get_log_page ? fake_controller::reply{} : fake_.answer(e);
    if (identifies) spoil(reinterpret_cast<void*>(e.prp1), 4096);
    if (pick_.rarely(24)) reply.status_field = pick_.word<std::uint16_t>() & 0x7fff;
    if (pick_.rarely(24)) reply.dw0 = pick_.word<std::uint32_t>();
    ended(e, reply.status_field);
    // It read an entry that the driver did not write: one of zeros, behind the driver's last, or one that it wrote
    // itself. The driver may take this completion for that of its next command with this id.
    if (e.prp1 == 0 && (scribbled_ || e.cdw0 == 0)) ended_unseen_.insert(e.command_id());
    return reply;
  }
  /// The controller has said how a command ended.
  void ended(nvme::submission_entry const& e, std::uint16_t status_field) {
    unanswered_.erase(e.command_id());
    switch (static_cast<nvme::admin_opcode>(e.opcode())) {
      case nvme::admin_opcode::create_io_completion_queue:
      case nvme::admin_opcode::create_io_submission_queue:
        if (status_field != 0) memory_.release(e.prp1);
        break;
      case nvme::admin_opcode::delete_io_completion_queue:
      case nvme::admin_opcode::delete_io_submission_queue:
        if (status_field == 0) memory_.release(rings_[ring_of(e)]);
        break;
      default:
        memory_.release(e.prp1);
    }
  }
  void complete(std::uint16_t id, fake_controller::reply const& reply) {
    if (auto const found = unanswered_.find(id); found != unanswered_.end()) {
      nvme::submission_entry const entry = found->second;
      ended(entry, reply.status_field);
    } else {
      ended_unseen_.insert(id);
    }
    // A Delete has no memory of its own, so it is not known which one this ends.
    for (auto const& [queue, address] : rings_) memory_.release(address);
    fake_.complete(id, reply);
  }

  /// Writes over memory that it may write. That may complete anything.
  void scribble() {
    auto const all = memory_.in_use();
    for (std::uint64_t const at : all) {
      if (!pick_.rarely(128)) continue;
      std::size_t const bytes = memory_.bytes_at(at);
      for (std::uint32_t writes = 1 + pick_.below(16); writes != 0; --writes) {
        std::uint32_t const value = pick_.word<std::uint32_t>();
        std::memcpy(reinterpret_cast<void*>(at + pick_.word<std::uint16_t>() % bytes / 4 * 4), &value, sizeof value);
      }
    }
    scribbled_ = true;
    std::uint64_t const asq = address_of(reg::asq), acq = address_of(reg::acq);
    memory_.release_all();
    unanswered_.clear();
    if (cc_.enabled()) {
      memory_.use(asq);
      memory_.use(acq);
    }
  }

  choices& pick_;
  memory_of_controller& memory_;
  fake_controller fake_;
  std::uint32_t window_bytes_ = 1 << 20;
  bool removed_ = false;
  bool scribbled_ = false;  ///< since the driver took it to be disabled
  nvme::controller_configuration cc_{0};
  std::map<std::uint32_t, std::uint32_t> file_;
  std::map<std::uint16_t, nvme::submission_entry> unanswered_;
  std::set<std::uint16_t> ended_unseen_;  ///< ids of completions of commands that it had not fetched
  std::map<ring, std::uint64_t> rings_;
};

constexpr std::uint64_t moment_ns = 300'000;

driver::controller_options options_of(choices& pick) {
  driver::controller_options options;
  options.admin_timeout_ns = options.shutdown_timeout_ns = options.ready_timeout_ns = moment_ns;
  options.shutdown_timeout_most_ns = 2 * moment_ns;
  options.io_queue_pairs = pick.rarely(32) ? 1 + pick.word<std::uint16_t>() % 65535u : 4;
  options.admin_queue_entries = pick.rarely(64) ? 2 + pick.below(40) : 32;
  options.nsid = pick.rarely(16) ? 1 + pick.byte() : 1;
  if (pick.rarely(32)) options.priorities = driver::priority_weights{};
  return options;
}

void check(driver::drive_identity const& found) {
  demand(found.blocks != 0, "a drive has blocks");
  demand(found.block_bytes >= 512 && found.block_bytes <= 65536, "blocks have 512 to 65536 bytes");
  demand(found.size_bytes() / found.block_bytes == found.blocks, "64 bits count its bytes");
  demand(found.max_transfer_bytes >= found.block_bytes, "a command moves a block");
  demand(found.io_queue_pairs >= 1 && found.max_queue_entries >= 2, "it has a queue of two entries");
}

void use(driver::controller& drive, std::vector<driver::io_queue>& queues, choices& pick) {
  switch (pick.below(11)) {
    case 0:
    case 1: {
      driver::queue_options options;
      options.entries = pick.rarely(64) ? pick.word<std::uint16_t>() + 1u : 2 + pick.below(62);
      if (queues.size() < 6) queues.push_back(drive.create_io_queue_pair(options));
      break;
    }
    case 2:
      if (!queues.empty()) drive.delete_io_queue_pair(queues[pick.below(static_cast<std::uint32_t>(queues.size()))]);
      break;
    case 3:
      if (!queues.empty()) drive.recreate(queues[pick.below(static_cast<std::uint32_t>(queues.size()))]);
      break;
    case 4:
      if (!queues.empty()) queues.pop_back();
      break;
    case 5:
      drive.reset();
      check(drive.identity());
      break;
    case 6:
      drive.shutdown();
      break;
    case 7:
      (void)drive.abort(1, pick.byte());
      break;
    case 8: {
      std::byte page[512];
      drive.get_log_page(nvme::log_page_id::smart_health_information, page, sizeof page);
      break;
    }
    case 9: {
      nvme::submission_entry entry;
      entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::asynchronous_event_request, 0);
      driver::admin_ticket const ticket = drive.start(entry);
      (void)drive.finish(ticket, native::clock_ns() + moment_ns);
      break;
    }
    default:
      (void)drive.has_left();
      (void)drive.active_namespaces();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  emulator::testing::fuzz_input const input(data, data + size);
  choices pick(input);
  memory_of_controller memory;
  hostile_controller registers(pick, memory);
  fuzz::refuses([&] {
    driver::controller drive(registers, memory, options_of(pick));
    check(drive.identity());
    std::vector<driver::io_queue> queues;
    for (int steps = 0; steps < 16 && !pick.done(); ++steps) {
      registers.act();
      fuzz::refuses([&] { use(drive, queues, pick); });
    }
  });
  return 0;
}
