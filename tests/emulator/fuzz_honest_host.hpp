// SPDX-License-Identifier: Apache-2.0
//! \file
//! A host that keeps to the rules, and checks that a controller does too. The controller fuzzer runs it after each
//! hostile round, and beside one.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/demand.hpp"

namespace forebay::emulator::testing {

using test::broken_promise;
using test::demand;

template <class Predicate>
bool soon(Predicate&& predicate, std::uint64_t patience_ns) {
  return simt::native::wait_until(predicate, simt::native::clock_ns() + patience_ns);
}
template <class Predicate>
void demand_soon(Predicate&& predicate, char const* what) {
  demand(soon(predicate, 30'000'000'000), what);
}

/// Disables a controller, whatever happened to it before.
inline void quieten(controller& drive) {
  namespace registers = nvme::registers;
  driver::register_space& regs = drive.registers();
  regs.write32(registers::cc, 0);
  // Waits for the admin step that is in progress. It may have read the old value, and would then set CSTS for that.
  (void)drive.shared().free_queues();
  demand_soon(
      [&] {
        nvme::controller_status const csts{regs.read32(registers::csts)};
        return !csts.ready() && !csts.fatal();
      },
      "a controller whose CC.EN is 0 becomes disabled");
}

/// What a host knows of a drive before it looks.
struct drive_facts {
  std::uint32_t block_bytes = 512;
  std::uint64_t blocks = 0;
  std::uint8_t mdts = 1;
  bool read_only = false;
  bool keeps_data = true;
  std::uint16_t injected_status = 0;  ///< the status with which a fault plan makes commands fail; 0: it does not
  bool withholds = false;             ///< some commands complete only when they are aborted

  std::uint64_t max_transfer_bytes() const { return std::uint64_t{4096} << mdts; }
};

class honest_host {
 public:
  /// `drive` is disabled. Queue pair `id` is the one that is used.
  honest_host(controller& drive, drive_facts const& facts, std::uint16_t id)
      : regs_(drive.registers()), dma_(drive.dma()), facts_(facts) {
    memory_ = static_cast<std::byte*>(dma_.allocate(pages * page));
    admin_.id = 0;
    io_.id = id;
    forbidden_ = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~honest_host() {
    dma_.deallocate(memory_);
    munmap(forbidden_, page);
  }
  honest_host(honest_host const&) = delete;
  honest_host& operator=(honest_host const&) = delete;

  /// Brings the controller up, moves data through rings of these sizes at `first_block` and beyond, and disables it.
  /// `compares`: nobody else writes there.
  void check(std::uint32_t sq_size, std::uint32_t cq_size, std::uint64_t first_block, bool compares) {
    enable();
    identify();
    create_queues(sq_size, cq_size);
    bad_doorbells();
    refusals();
    for (std::uint32_t i = 0; i < std::max(sq_size, cq_size) + 3; ++i) move_data(first_block, i, compares);
    leave_nothing();
    regs_.write32(nvme::registers::cc, 0);
    demand_soon([&] { return !nvme::controller_status{regs_.read32(nvme::registers::csts)}.ready(); },
                "a controller that is disabled says so");
  }

 private:
  static constexpr std::uint64_t page = 4096;
  static constexpr std::uint32_t pages = 12;
  static constexpr std::uint16_t poison_id = 0xdead;
  static constexpr std::byte beyond{0xa5};
  static constexpr std::uint64_t first_hope_ns = 500'000;

  struct rings {
    std::uint16_t id = 0;
    nvme::submission_entry* sq = nullptr;
    nvme::completion_entry* cq = nullptr;
    std::uint32_t sq_size = 0, cq_size = 0;
    std::uint32_t tail = 0, head = 0, phase = 1;
  };

  std::byte* at(std::uint32_t index) const { return memory_ + index * page; }
  std::uint64_t address(std::uint32_t index) const { return reinterpret_cast<std::uint64_t>(at(index)); }

  /// Empty rings, with commands behind one of them and a pattern behind the other, which the controller must not touch.
  void lay_out(rings& r, std::uint32_t sq_page, std::uint32_t cq_page, std::uint32_t sq_size, std::uint32_t cq_size) {
    r = {.id = r.id,
         .sq = reinterpret_cast<nvme::submission_entry*>(at(sq_page)),
         .cq = reinterpret_cast<nvme::completion_entry*>(at(cq_page)),
         .sq_size = sq_size,
         .cq_size = cq_size};
    nvme::submission_entry poison;
    poison.cdw0 = nvme::make_cdw0(nvme::io_opcode::flush, poison_id);
    poison.nsid = nvme::broadcast_nsid;
    std::fill_n(r.sq, page / sizeof poison, poison);
    std::memset(at(cq_page), 0, page);
    std::uint64_t const used = cq_size * sizeof(nvme::completion_entry);
    std::fill(at(cq_page) + used, at(cq_page) + page, beyond);
  }

  bool has_completion(rings const& r) const {
    // Acquire: pairs with the controller's release of the same word.
    std::uint32_t const dw3 = std::atomic_ref(r.cq[r.head].dw3).load(std::memory_order_acquire);
    return (dw3 >> 16 & 1) == r.phase;
  }
  void ring(rings const& r, bool completions, std::uint32_t value) {
    regs_.write32(completions ? nvme::registers::cq_head_doorbell(r.id, 0) : nvme::registers::sq_tail_doorbell(r.id, 0),
                  value);
  }

  /// One command alone in its queue; returns its status code.
  std::uint16_t run(rings& r, nvme::submission_entry const& wanted) {
    nvme::submission_entry entry = wanted;
    entry.set_command_id(next_id_);
    next_id_ = static_cast<std::uint16_t>(next_id_ * 5 + 1);
    r.sq[r.tail] = entry;
    r.tail = r.tail + 1 == r.sq_size ? 0 : r.tail + 1;
    ring(r, false, r.tail);
    auto const done = [&] { return has_completion(r); };
    if (facts_.withholds && r.id != 0) {
      // An abort that comes before the command was fetched finds nothing. Aborts that always come too early would leave
      // no Flush the time that its file takes.
      for (; !soon(done, hope_ns_); hope_ns_ *= 2) {
        demand(hope_ns_ < 20'000'000'000, "an I/O command completes once it is aborted");
        nvme::submission_entry abort;
        abort.cdw0 = nvme::make_cdw0(nvme::admin_opcode::abort, 0);
        abort.cdw10 = r.id | static_cast<std::uint32_t>(entry.command_id()) << 16;
        demand(run(admin_, abort) == 0, "Abort succeeds, whether or not it finds its command");
      }
    }
    demand_soon(done, r.id == 0 ? "an admin command of a host that keeps to the rules completes"
                                : "an I/O command of a host that keeps to the rules completes");
    nvme::completion_entry const completion = r.cq[r.head];
    if (completion.command_id() != entry.command_id()) {
      throw broken_promise("a completion names its command: found " + std::to_string(completion.command_id()) +
                           " for " + std::to_string(entry.command_id()) + " in queue " + std::to_string(r.id));
    }
    demand(completion.sq_id() == r.id && completion.sq_head() == r.tail, "a completion names its queue and its head");
    if (++r.head == r.cq_size) {
      r.head = 0;
      r.phase ^= 1;
    }
    ring(r, true, r.head);
    return static_cast<std::uint16_t>(completion.status_field() & nvme::status_code_mask);
  }

  void expect(rings& r, nvme::submission_entry const& entry, std::uint16_t status, char const* what) {
    std::uint16_t found = 0;
    if (r.id != 0) hope_ns_ = first_hope_ns;
    for (std::uint32_t attempt = 0; attempt < 200; ++attempt) {
      found = run(r, entry);
      bool const injected = facts_.injected_status != 0 && found == facts_.injected_status;
      bool const aborted =
          facts_.withholds && found == nvme::status_field(nvme::generic_status::command_abort_requested);
      if (r.id == 0 || (!injected && !aborted)) break;
    }
    if (found == status) return;
    throw broken_promise(std::string(what) + ": status " + std::to_string(found) + " instead of " +
                         std::to_string(status));
  }

  nvme::submission_entry admin(nvme::admin_opcode opcode, std::uint32_t cdw10 = 0, std::uint32_t cdw11 = 0) const {
    nvme::submission_entry entry;
    entry.cdw0 = nvme::make_cdw0(opcode, 0);
    entry.prp1 = address(data);
    entry.cdw10 = cdw10;
    entry.cdw11 = cdw11;
    return entry;
  }

  void enable() {
    lay_out(admin_, 0, 1, 5, 7);
    regs_.write32(nvme::registers::aqa, nvme::admin_queue_attributes::make(5, 7));
    regs_.write64(nvme::registers::asq, address(0));
    regs_.write64(nvme::registers::acq, address(1));
    regs_.write32(nvme::registers::cc, nvme::controller_configuration::make(true, page));
    demand_soon([&] { return nvme::controller_status{regs_.read32(nvme::registers::csts)}.ready(); },
                "a controller that is enabled becomes ready");
    admin_round_trip();
  }

  /// Gives the controller time to do what it must not.
  void admin_round_trip() { expect(admin_, admin(nvme::admin_opcode::get_features, 7), 0, "Get Features"); }

  void identify() {
    expect(admin_, admin(nvme::admin_opcode::identify, 1), 0, "Identify Controller");
    nvme::identify_controller controller;
    std::memcpy(&controller, at(data), sizeof controller);
    demand(controller.mdts == facts_.mdts, "Identify Controller says MDTS");
    auto entry = admin(nvme::admin_opcode::identify, 0);
    entry.nsid = 1;
    expect(admin_, entry, 0, "Identify Namespace");
    nvme::identify_namespace space;
    std::memcpy(&space, at(data), sizeof space);
    demand(space.nsze == facts_.blocks && space.block_bytes() == facts_.block_bytes,
           "Identify Namespace says its size");
  }

  void create_queues(std::uint32_t sq_size, std::uint32_t cq_size) {
    lay_out(io_, 2, 3, sq_size, cq_size);
    // Doorbells of queues that do not exist yet: they are forgotten when the queues are created.
    ring(io_, false, 1);
    ring(io_, true, 1);
    auto cq = admin(nvme::admin_opcode::create_io_completion_queue, io_.id | (cq_size - 1) << 16, 1);
    cq.prp1 = address(3);
    expect(admin_, cq, 0, "Create I/O Completion Queue");
    auto sq = admin(nvme::admin_opcode::create_io_submission_queue, io_.id | (sq_size - 1) << 16,
                    1 | std::uint32_t{io_.id} << 16);
    sq.prp1 = address(2);
    expect(admin_, sq, 0, "Create I/O Submission Queue");
    admin_round_trip();
    demand(!has_completion(io_), "a queue that was never rung completes nothing");
  }

  void bad_doorbells() {
    constexpr std::uint64_t moment_ns = 100'000;
    for (std::uint32_t const value : {admin_.sq_size, ~0u}) {
      ring(admin_, false, value);
      demand(!soon([&] { return has_completion(admin_); }, moment_ns), "an invalid admin doorbell fetches nothing");
    }
    ring(admin_, false, admin_.tail);
    for (std::uint32_t const value : {io_.sq_size, io_.sq_size + 1, 0x10000u, ~0u}) {
      ring(io_, false, value);
      admin_round_trip();
      demand(!has_completion(io_), "an invalid tail doorbell fetches nothing");
    }
    ring(io_, false, io_.tail);
    for (std::uint32_t const value : {io_.cq_size, ~0u, (io_.head + 1) % io_.cq_size}) ring(io_, true, value);
    ring(io_, true, io_.head);
  }

  nvme::submission_entry command(nvme::io_opcode opcode, std::uint64_t block, std::uint64_t blocks) const {
    auto entry = nvme::make_io_command(opcode, 0, 1, block, static_cast<std::uint32_t>(blocks));
    entry.prp1 = address(data);
    return entry;
  }

  void refusals() {
    using nvme::generic_status;
    using nvme::io_opcode;
    auto const refused = [&](nvme::submission_entry const& entry, generic_status code, char const* what) {
      expect(io_, entry, nvme::status_field(code), what);
    };
    refused(command(io_opcode::read, facts_.blocks, 1), generic_status::lba_out_of_range, "a block beyond the last");
    refused(command(io_opcode::write_zeroes, facts_.blocks - 1, 2),
            facts_.read_only ? generic_status::namespace_is_write_protected : generic_status::lba_out_of_range,
            "blocks beyond the last");
    refused(command(io_opcode::read, 0, facts_.max_transfer_bytes() / facts_.block_bytes + 1),
            generic_status::invalid_field_in_command, "more than MDTS allows");
    auto odd = command(io_opcode::read, 0, 1);
    odd.prp1 += 2;
    refused(odd, generic_status::prp_offset_invalid, "an offset that is no multiple of four");
    auto elsewhere = command(io_opcode::read, 0, 1);
    elsewhere.prp1 = reinterpret_cast<std::uint64_t>(forbidden_);
    refused(elsewhere, generic_status::data_transfer_error, "memory that is not registered");
    if (facts_.max_transfer_bytes() >= 2 * page) {
      auto second = command(io_opcode::read, 0, 2 * page / facts_.block_bytes);
      second.prp2 = reinterpret_cast<std::uint64_t>(forbidden_);
      refused(second, generic_status::data_transfer_error, "a second page that is not registered");
      second.prp2 = address(data) + 8;
      refused(second, generic_status::prp_offset_invalid, "a second page with an offset");
    }
    auto other = command(io_opcode::read, 0, 1);
    other.nsid = 2;
    refused(other, generic_status::invalid_namespace_or_format, "a namespace that is not there");
  }

  /// One to three pages there and back, of pages in disorder.
  void move_data(std::uint64_t first_block, std::uint32_t seed, bool compares) {
    std::uint64_t const bytes =
        std::min({std::uint64_t{1 + seed % 3} * page, facts_.max_transfer_bytes(), std::uint64_t{3} * page});
    auto entry = command(nvme::io_opcode::write, first_block, bytes / facts_.block_bytes);
    auto const point_at = [&](std::uint32_t first) {
      auto* const list = reinterpret_cast<std::uint64_t*>(at(prp_list)) + seed % 7;
      list[0] = address(first + 1);
      list[1] = address(first);
      entry.prp1 = address(first + 2);
      entry.prp2 = bytes > 2 * page ? reinterpret_cast<std::uint64_t>(list) : list[0];
    };
    point_at(data);
    for (std::uint32_t i = 0; i < 3 * page / 8; ++i) {
      std::uint64_t const value = (i + 1) * (seed + 3) * std::uint64_t{0x9e3779b97f4a7c15};
      std::memcpy(at(data) + i * 8, &value, 8);
    }
    std::memset(at(data + 3), 0xee, 3 * page);
    if (facts_.read_only) {
      expect(io_, entry, nvme::status_field(nvme::generic_status::namespace_is_write_protected), "Write");
      return;
    }
    expect(io_, entry, 0, "Write");
    auto flush = command(nvme::io_opcode::flush, 0, 1);
    expect(io_, flush, 0, "Flush");
    entry.cdw0 = nvme::make_cdw0(nvme::io_opcode::read, 0);
    point_at(data + 3);
    expect(io_, entry, 0, "Read");
    if (!compares || !facts_.keeps_data) return;
    for (std::uint64_t done = 0, which = 2; done < bytes; done += page, which = which == 2 ? 1 : 0) {
      auto const i = static_cast<std::uint32_t>(which);
      demand(std::memcmp(at(data + i), at(data + 3 + i), std::min(page, bytes - done)) == 0,
             "what was written is read back");
    }
  }

  void leave_nothing() {
    admin_round_trip();
    for (rings const* r : {&admin_, &io_}) {
      demand(!has_completion(*r), "each command completes once");
      auto const* const end = reinterpret_cast<std::byte const*>(r->cq) + page;
      demand(std::all_of(reinterpret_cast<std::byte const*>(r->cq + r->cq_size), end,
                         [](std::byte b) { return b == beyond; }),
             "nothing is written behind a completion queue");
    }
  }

  static constexpr std::uint32_t prp_list = 4;
  static constexpr std::uint32_t data = 5;  ///< and five more

  driver::register_space& regs_;
  driver::dma_space& dma_;
  drive_facts facts_;
  std::byte* memory_ = nullptr;
  void* forbidden_ = nullptr;
  rings admin_;
  rings io_;
  std::uint16_t next_id_ = 0x1234;
  std::uint64_t hope_ns_ = first_hope_ns;  ///< how long to wait for a command before it is taken to be withheld
};

}  // namespace forebay::emulator::testing
