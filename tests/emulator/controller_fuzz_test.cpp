// SPDX-License-Identifier: Apache-2.0
//! \file
//! A hostile host: strings of bytes become register writes, admin commands, I/O commands, doorbells and registrations
//! that break every rule. What it must not reach faults when it is touched, and a host that keeps to the rules looks at
//! the controller after each round. docs/internals/build.md says how to replay an input and how to keep one.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/fuzz_honest_host.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/subsystem.hpp"
#include "forebay/error.hpp"
#include "support/environment.hpp"
#include "support/folders.hpp"

namespace forebay::emulator::testing {
namespace {

namespace registers = nvme::registers;
using nvme::admin_opcode;
using nvme::io_opcode;
using simt::native;

constexpr std::uint64_t page = dma_page_bytes;

/// Memory that hostile commands name. A page faults when it is touched, until it is registered for the first time in a
/// round; then it stays open to the end of the round, since what is in flight may name it.
class arena {
 public:
  /// What lies where. Between two pools, and behind the last, are pages that nobody ever registers.
  struct pool {
    std::uint32_t first = 0;
    std::uint32_t pages = 0;
  };
  static constexpr std::uint32_t gap = 16;  // 64 KiB, the largest page of a controller
  static constexpr pool admin_queues{gap, 16};
  static constexpr pool submission_queues{admin_queues.first + 16 + gap, 16};
  static constexpr pool completion_queues{submission_queues.first + 16 + gap, 16};
  static constexpr pool lists{completion_queues.first + 16 + gap, 16};
  static constexpr pool data{lists.first + 16 + gap, 64};
  static constexpr std::uint32_t pages = data.first + data.pages + gap;
  static constexpr pool pools[] = {admin_queues, submission_queues, completion_queues, lists, data};

  arena() {
    constexpr std::uint64_t alignment = 65536;
    void* const mapped = mmap(nullptr, pages * page + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = (reinterpret_cast<std::uintptr_t>(mapped) + alignment - 1) / alignment * alignment;
  }

  std::uint64_t address(std::uint32_t index, std::uint64_t offset = 0) const { return base_ + index * page + offset; }
  std::uint64_t of(pool const& in, std::uint32_t index, std::uint64_t offset = 0) const {
    return address(in.first + index % in.pages, offset);
  }

  void open(std::uint32_t first, std::uint32_t count) {
    std::lock_guard const lock(mutex_);
    // Relaxed: written under the lock.
    auto const closed = [&](std::uint32_t i) { return !open_[i].load(std::memory_order_relaxed); };
    for (std::uint32_t i = first, end; i < first + count; i = end) {
      for (end = i; end < first + count && closed(end);) ++end;
      if (end == i) {
        ++end;
        continue;
      }
      void* const at = reinterpret_cast<void*>(address(i));
      if (mprotect(at, (end - i) * page, PROT_READ | PROT_WRITE) != 0) std::abort();
      std::memset(at, 0xa5, (end - i) * page);
      for (; i < end; ++i) open_[i].store(true, std::memory_order_release);  // pairs with the acquire in `is_open`
    }
  }
  /// Nothing that was registered is so still, and no queue or command names it.
  void close() {
    std::lock_guard const lock(mutex_);
    if (mprotect(reinterpret_cast<void*>(base_), pages * page, PROT_NONE) != 0) std::abort();
    for (auto& is_open : open_) is_open.store(false, std::memory_order_relaxed);  // relaxed: one thread is left
  }
  /// Whether whole words of 64 bits may be touched there.
  bool is_open(std::uint64_t at, std::uint64_t bytes) const {
    if (at % 8 != 0 || at < base_ || at >= base_ + pages * page || at + bytes > base_ + pages * page) return false;
    for (std::uint64_t i = (at - base_) / page; i <= (at + bytes - 1 - base_) / page; ++i) {
      // Acquire: pairs with the release in `open`; the page may be touched.
      if (!open_[i].load(std::memory_order_acquire)) return false;
    }
    return true;
  }
  /// Stores what the engine may be reading just now.
  void store(std::uint64_t at, std::uint64_t value) {
    // Relaxed: a race with the engine is what it is for.
    if (is_open(at, 8)) std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).store(value, std::memory_order_relaxed);
  }
  void store(std::uint64_t at, nvme::submission_entry const& entry) {
    std::uint64_t words[8];
    std::memcpy(words, &entry, sizeof words);
    for (std::uint64_t i = 0; i < 8; ++i) store(at + 8 * i, words[i]);
  }

 private:
  std::uintptr_t base_ = 0;
  std::mutex mutex_;
  std::array<std::atomic<bool>, pages> open_{};
};

arena& memory() {
  static arena& the_arena = *new arena;
  return the_arena;
}

/// Behaviour that inputs have shown: statuses of opcodes, states of controllers, magnitudes of counters.
class behaviour {
 public:
  void add(std::uint32_t kind, std::uint32_t a, std::uint32_t b) {
    std::lock_guard const lock(mutex_);
    seen_.insert(kind << 28 | (a & 0xfff) << 16 | (b & 0xffff));
  }
  std::set<std::uint32_t> const& seen() const { return seen_; }

 private:
  std::mutex mutex_;
  std::set<std::uint32_t> seen_;
};
enum : std::uint32_t { admin_status = 1, io_status, controller_state, counter_size, refusal };

enum class backing : std::uint8_t { memory, file, copy, none, file_read_only, count };

/// A drive, as the head of an input chooses it.
struct chosen_drive {
  subsystem_options options;
  drive_facts facts;
  backing kind = backing::memory;
  /// Commands keep away from the first blocks, whatever pieces of them are mixed. Otherwise queues, lists, ranges and
  /// data may lie in the same pages, and nothing is known of what is written.
  bool strict = true;
};

/// Blocks that hostile commands of a strict input do not write. The first half nobody writes, the other half the host
/// that is there at the same time.
constexpr std::uint32_t reserved_blocks = 64;

chosen_drive choose_drive(choices& pick) {
  chosen_drive drive;
  subsystem_options& o = drive.options;
  drive.strict = !pick.rarely(96);
  drive.kind = pick.one_of({backing::memory, backing::memory, backing::memory, backing::copy, backing::file,
                            backing::file_read_only, backing::none});
  bool const large_blocks = pick.rarely(80);
  drive.facts.block_bytes = large_blocks ? 4096 : 512;
  drive.facts.blocks = large_blocks ? 256 : 1024;
  drive.facts.read_only = drive.kind == backing::file_read_only;
  drive.facts.keeps_data = drive.kind != backing::none;
  o.mdts = drive.facts.mdts = pick.one_of<std::uint8_t>({1, 2, 3, 5, 8});
  o.units = pick.one_of({1u, 1u, 2u, 3u});
  o.max_queues = 4 + pick.below(6);
  o.max_queue_entries = pick.one_of({64u, 20u, 256u, 1024u, 65536u});
  o.leave_timeout_ns = 60'000'000'000;
  switch (pick.below(6)) {
    case 1:
    case 2:
      // Cheap commands: those after them wait for what they cost, and hostile ones come by the thousand.
      o.timing.read = {.per_command_ps = 10'000, .per_byte_fs = 100, .latency_min_ps = 20'000'000};
      o.timing.write = {.per_command_ps = 30'000, .per_byte_fs = 100, .latency_min_ps = 10'000'000};
      o.timing.other = {.latency_min_ps = 5'000'000};
      o.timing.channels = 1 + pick.below(64);
      o.timing.channel_stride_bytes = pick.one_of({512u, 4096u, 65536u, 1000u});
      o.timing.jitter_ps = 10'000'000;
      o.timing.disorder_ps = pick.rarely(128) ? 2'000'000 : 0;
      if (pick.rarely(64)) o.link = "gen4x4";
      break;
    case 3:
      o.timing.flash = {.channels = 2,
                        .dies_per_channel = 2,
                        .page_bytes = 4096,
                        .read_bytes = 8192,
                        .program_bytes = 8192,
                        .block_bytes = 65536,
                        .read_ps = 100'000,
                        .program_ps = 300'000,
                        .erase_ps = 600'000,
                        .channel_byte_fs = 10,
                        .buffer_bytes = 65536,
                        .spare_ppm = 500'000,
                        .start = pick.one_of({preconditioning::fresh, preconditioning::full, preconditioning::random})};
      break;
    default:
      break;
  }
  if (pick.rarely(100)) {
    o.faults.seed = pick.byte();
    o.faults.error_ppm = pick.one_of({0u, 100'000u, 300'000u});
    o.faults.delay_ppm = pick.one_of({0u, 300'000u, 500'000u});
    o.faults.withhold_ppm = pick.one_of({0u, 0u, 150'000u});
    o.faults.delay_max_ns = 1 + pick.below(200) * 1000;
    o.faults.late_data = !pick.rarely(64);
    if (o.faults.error_ppm != 0) {
      drive.facts.injected_status = static_cast<std::uint16_t>(o.faults.error_status_field & nvme::status_code_mask);
    }
    drive.facts.withholds = o.faults.withhold_ppm != 0;
  }
  o.frontend.coalesced_fetch = !pick.rarely(32);
  o.frontend.aggregated_timing = !pick.rarely(32);
  return drive;
}

/// What a drive holds at first, as far as it is looked at.
std::uint8_t const* medium_pattern() {
  static auto const& pattern = *new std::vector<std::uint8_t>([] {
    std::vector<std::uint8_t> bytes(std::size_t{1} << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 11 + (i >> 9) * 5 + 3);
    return bytes;
  }());
  return pattern.data();
}

/// One input, played.
class session {
 public:
  session(fuzz_input const& input, behaviour& shown) : pick_(input), shown_(shown), drive_(choose_drive(pick_)) {}
  ~session() {
    stop_meddling();
    for (auto& guest : visitors_) guest->thread.join();
    unmap_all();
    clients_.clear();
    subsystem_.reset();
    if (!path_.empty()) unlink(path_.c_str());
    memory().close();
  }
  session(session const&) = delete;
  session& operator=(session const&) = delete;

  void run() {
    open_drive();
    join();
    if (!pick_.rarely(24)) {
      for (auto const& pool : arena::pools) map(*clients_[0], pool.first, pool.pages);
      enable(*clients_[0], false);
      create_pair(*clients_[0], 1);
    }
    while (!pick_.done()) act();
    end_round();
    count();
    check_file();
  }

 private:
  struct io_queue {
    bool there = false;
    bool rung = false;  ///< since completions were last taken
    std::uint64_t sq = 0, cq = 0;
    std::uint32_t sq_size = 0, cq_size = 0;
    std::uint32_t tail = 0, head = 0, phase = 1;
  };
  struct range {
    std::uint32_t first = 0, count = 0;
  };
  struct client {
    std::unique_ptr<controller> drive;
    std::uint32_t queues = 0;
    std::uint64_t asq = 0, acq = 0;
    std::uint32_t sq_size = 0, cq_size = 0;
    std::uint32_t tail = 0, head = 0, phase = 1;
    std::array<io_queue, 16> io;
    std::vector<range> mapped;

    driver::register_space& regs() { return drive->registers(); }
    nvme::controller_status csts() { return {regs().read32(registers::csts)}; }
  };
  /// A host that keeps to the rules, with a controller of its own, while the others do not.
  struct visitor {
    std::thread thread;
    std::exception_ptr failure;
  };

  // The drive ---------------------------------------------------------------------------------------------------------

  std::uint64_t bytes() const { return drive_.facts.blocks * drive_.facts.block_bytes; }
  std::uint64_t untouched_bytes() const { return reserved_blocks / 2 * drive_.facts.block_bytes; }

  void open_drive() {
    std::uint32_t const block = drive_.facts.block_bytes;
    std::unique_ptr<backing_store> store;
    bool const is_file = drive_.kind == backing::file || drive_.kind == backing::file_read_only;
    if (is_file) {
      // In memory, where there is such a place: a busy disk can take longer for an msync than a Flush is waited for.
      std::string const folder = std::filesystem::is_directory("/dev/shm") ? "/dev/shm/" : ::testing::TempDir();
      path_ = folder + "forebay-fuzz-" + std::to_string(getpid());
      write_input(path_, {medium_pattern(), medium_pattern() + bytes()});
      store = file_backing(path_, bytes(), block, drive_.facts.read_only);
    } else if (drive_.kind == backing::none) {
      store = no_backing(bytes(), block);
    } else {
      store = memory_backing(bytes(), block);
      media const home = store->view();
      std::memcpy(home.data, medium_pattern(), untouched_bytes());
      if (drive_.kind == backing::copy) store = working_copy(std::move(store), memory::host());
    }
    medium_ = store->view().data;
    subsystem_ = std::make_shared<subsystem>(drive_.options, std::move(store));
  }

  void check_medium() {
    if (medium_ == nullptr || (!drive_.strict && !drive_.facts.read_only)) return;
    std::uint64_t const end = drive_.facts.read_only ? bytes() : untouched_bytes();
    demand(std::memcmp(medium_, medium_pattern(), end) == 0, "what no valid command writes stays as it was");
  }

  /// What the file holds once the drive has closed it.
  void check_file() {
    if (path_.empty()) return;
    unmap_all();
    clients_.clear();
    subsystem_.reset();
    medium_ = nullptr;
    fuzz_input const content = read_input(path_);
    demand(content.size() == bytes(), "the file keeps its size");
    if (!drive_.strict && !drive_.facts.read_only) return;
    std::uint64_t const end = drive_.facts.read_only ? bytes() : untouched_bytes();
    demand(std::memcmp(content.data(), medium_pattern(), end) == 0, "a file stays as it was where nobody wrote");
  }

  void count() {
    auto const sum = subsystem_->collect();
    std::uint32_t which = 0;
    counters::for_each([&](char const*, std::uint64_t counters::* counter) {
      std::uint64_t const value = sum->commands.*counter;
      shown_.add(counter_size, which++, value == 0 ? 0 : simt::bit_width(value));
    });
  }

  // Clients -----------------------------------------------------------------------------------------------------------

  void join() {
    std::uint32_t const queues = 1 + pick_.below(drive_.options.max_queues / 2);
    try {
      auto joined = std::make_unique<client>();
      joined->drive = std::make_unique<controller>(subsystem_, queues);
      joined->queues = queues;
      clients_.push_back(std::move(joined));
    } catch (refused_input const&) {
      shown_.add(refusal, 0, 0);
    }
  }

  void leave(std::size_t index) {
    stop_meddling();  // it rings doorbells of the controller
    unmap(*clients_[index]);
    demand(clients_[index]->drive->leave(), "the engine lets go of a controller that leaves");
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void map(client& who, std::uint32_t first, std::uint32_t count) {
    memory().open(first, count);
    who.drive->dma().map(reinterpret_cast<void*>(memory().address(first)), count * page);
    who.mapped.push_back({first, count});
  }
  void unmap(client& who) {
    for (range const& r : who.mapped) {
      who.drive->dma().unmap(reinterpret_cast<void*>(memory().address(r.first)), r.count * page);
    }
    who.mapped.clear();
  }
  void unmap_all() {
    for (auto& who : clients_) unmap(*who);
  }

  /// Enables a controller: `wild`, with queues of any size anywhere.
  void enable(client& who, bool wild) {
    if (meddlers_.empty()) quieten(*who.drive);
    std::uint32_t const sizes[] = {8, 2, 65, 3, 257, 1024, 4096, 1};
    who.sq_size = wild ? pick_.one_of(sizes) : 8 + pick_.below(40);
    who.cq_size = wild ? pick_.one_of(sizes) : 8 + pick_.below(40);
    who.asq = wild ? address(arena::admin_queues) : memory().of(arena::admin_queues, pick_.below(2));
    who.acq = wild ? address(completions()) : memory().of(arena::completion_queues, 14 + pick_.below(2));
    who.tail = who.head = 0;
    who.phase = 1;
    who.io = {};
    clear(who.acq, who.cq_size * sizeof(nvme::completion_entry));
    who.regs().write32(registers::aqa, nvme::admin_queue_attributes::make(who.sq_size, who.cq_size));
    who.regs().write64(registers::asq, who.asq);
    who.regs().write64(registers::acq, who.acq);
    std::uint32_t cc = nvme::controller_configuration::make(true, page);
    if (wild) {
      cc = nvme::controller_configuration::make(true, page << pick_.below(6), 6 + pick_.rarely(16),
                                                4 + pick_.rarely(16));
      if (pick_.rarely(24)) cc ^= std::uint32_t{1} << pick_.below(32);
      cc |= nvme::controller_configuration::enable_bit;
    }
    who.regs().write32(registers::cc, cc);
    if (meddlers_.empty()) {
      demand_soon([&] { return who.csts().ready() || who.csts().fatal(); },
                  "a controller that is enabled becomes ready, or says that it cannot");
    }
  }

  /// Zeroes as much of a queue as may be touched.
  void clear(std::uint64_t at, std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; i += 8) memory().store(at + i, 0);
  }

  // Addresses ---------------------------------------------------------------------------------------------------------

  /// In a strict input each pool is for one thing.
  arena::pool const& any_or(arena::pool const& usual) {
    return drive_.strict || !pick_.rarely(64) ? usual : arena::pools[pick_.below(std::size(arena::pools))];
  }
  arena::pool const& completions() { return any_or(arena::completion_queues); }

  /// Mostly the start of a page, at times beside the pool, off by a few bytes, or nowhere.
  std::uint64_t address(arena::pool const& in) { return address(in, pick_); }
  static std::uint64_t address(arena::pool const& in, choices& pick) {
    std::uint32_t const kind = pick.below(32);
    std::uint64_t const start = memory().of(in, pick.below(in.pages));
    switch (kind) {
      case 1:
        return start + pick.below(1024) * 4;
      case 2:
        return start + 4096 - 8 * (1 + pick.below(4));
      case 3:
        return start + pick.byte();
      case 4:
        return memory().address(in.first + in.pages);
      case 5:
        return memory().address(in.first + in.pages - 1);
      case 6:
        return memory().address(in.first - 1);
      case 7:
        return pick.one_of<std::uint64_t>({0, page, ~std::uint64_t{0}, ~std::uint64_t{4095}, std::uint64_t{1} << 63,
                                           (std::uint64_t{1} << 47) - page});
      case 8:
        return start | std::uint64_t{pick.byte()} << 56;
      default:
        return start;
    }
  }

  /// Fills a list that names `entries` pages of data, and returns where it begins.
  std::uint64_t make_list(choices& pick, std::uint64_t entries) {
    std::uint64_t const start = memory().of(arena::lists, pick.below(14));
    std::uint64_t const begin = pick.rarely(64) ? start + page - 8 * (1 + pick.below(8)) : start;
    std::uint64_t at = begin;
    bool const spoils = pick.rarely(64);
    std::uint32_t const first = pick.below(64);
    for (std::uint64_t i = 0; i < entries; ++i) {
      // The last word of a page names the next page of the list, if there is more than one entry to come.
      if (at % page == page - 8 && i + 1 < entries) {
        std::uint64_t const next = memory().of(arena::lists, pick.below(16));
        memory().store(at, spoils && pick.rarely(64) ? address(arena::lists, pick) : next);
        at = next;
      }
      std::uint64_t const entry = spoils && pick.rarely(32)
                                      ? address(arena::data, pick)
                                      : memory().of(arena::data, first + static_cast<std::uint32_t>(i));
      memory().store(at, entry);
      at += 8;
    }
    return begin;
  }

  // Commands ----------------------------------------------------------------------------------------------------------

  nvme::submission_entry io_command(choices& pick) {
    bool const strict = drive_.strict;
    nvme::submission_entry e;
    io_opcode opcode =
        pick.one_of({io_opcode::read, io_opcode::write, io_opcode::read, io_opcode::write, io_opcode::compare,
                     io_opcode::flush, io_opcode::write_zeroes, io_opcode::dataset_management});
    if (strict && opcode == io_opcode::dataset_management) opcode = io_opcode::write;
    std::uint64_t const blocks = drive_.facts.blocks;
    std::uint64_t const most = drive_.facts.max_transfer_bytes() / drive_.facts.block_bytes;
    std::uint64_t count = 1 + pick.below(8);
    switch (pick.below(8)) {
      case 1:
        count = 4096 / drive_.facts.block_bytes * (1 + pick.below(16));
        break;
      case 2:
        count = most;
        break;
      case 3:
        count = most + 1 + (pick.rarely(128) ? pick.word<std::uint16_t>() : 0);
        break;
      case 4:
        count = pick.one_of<std::uint64_t>({blocks, blocks - reserved_blocks, 65536, 3});
        break;
      default:
        break;
    }
    count = std::min<std::uint64_t>(count, 65536);
    std::uint64_t const room = blocks - reserved_blocks;
    std::uint64_t slba = reserved_blocks + pick.word<std::uint16_t>() % room;
    if (slba + count > blocks && count <= room && !pick.rarely(24)) slba = blocks - count;
    if (pick.rarely(12)) {
      slba = pick.one_of<std::uint64_t>({blocks, blocks - 1, blocks + 1, ~std::uint64_t{0} - reserved_blocks,
                                         0xffffffff, std::uint64_t{1} << 63 | 256});
    }
    e = nvme::make_io_command(opcode, static_cast<std::uint16_t>(pick.byte() << 8 | static_cast<int>(opcode)), 1, slba,
                              static_cast<std::uint32_t>(count));
    if (opcode == io_opcode::dataset_management) {
      e.cdw10 = pick.one_of<std::uint32_t>({0, 1, 15, 255});
      e.cdw11 = pick.rarely(64) ? pick.byte() : nvme::cdw11_attribute_deallocate;
    }
    std::uint64_t length = count * drive_.facts.block_bytes;
    if (opcode == io_opcode::dataset_management) {
      e.prp1 = strict ? memory().of(arena::lists, 15) : ranges(pick, (e.cdw10 & 0xff) + 1);
      e.prp2 = address(arena::data, pick);
    } else {
      e.prp1 = address(any_or_data(pick), pick);
      std::uint64_t const in_first = page - e.prp1 % page;
      std::uint64_t const rest = length > in_first ? (length - in_first + page - 1) / page : 0;
      e.prp2 = rest > 1 && rest < 3000 && !pick.rarely(16) ? make_list(pick, rest) : address(any_or_data(pick), pick);
    }
    if (pick.rarely(16)) e.nsid = pick.one_of({0u, 2u, ~0u, 0xfffffffeu, 0x01000000u});
    if (pick.rarely(10)) e.cdw0 ^= std::uint32_t{1} << (8 + pick.below(8));
    if (pick.rarely(10)) e.cdw0 = (e.cdw0 & ~0xffu) | pick.byte();
    if (pick.rarely(16)) e.cdw12 ^= std::uint32_t{1} << (16 + pick.below(16));
    if (pick.rarely(8)) {
      auto* const dwords = reinterpret_cast<std::uint32_t*>(&e);
      std::uint32_t const which = pick.below(16);
      dwords[which] ^= pick.word<std::uint32_t>();
    }
    if (strict) {
      // No mixture of pieces of commands writes the first blocks: not by an opcode that reads its ranges from memory,
      // and not by a first block that is among them.
      if (e.opcode() == static_cast<std::uint8_t>(io_opcode::dataset_management)) e.cdw0 ^= 0x40;
      if (e.cdw10 < reserved_blocks) e.cdw10 |= reserved_blocks;
    }
    return e;
  }

  arena::pool const& any_or_data(choices& pick) const {
    return drive_.strict || !pick.rarely(16) ? arena::data : arena::pools[pick.below(std::size(arena::pools))];
  }

  /// Ranges of Dataset Management.
  std::uint64_t ranges(choices& pick, std::uint32_t count) {
    std::uint64_t const at = memory().of(arena::lists, pick.below(16), pick.rarely(48) ? pick.below(1024) * 4 : 0);
    std::uint64_t const blocks = drive_.facts.blocks;
    std::uint64_t first = 0, length = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      // The rest is like the eighth, so that long lists are valid too.
      if (i < 8) {
        first = pick.rarely(24) ? pick.one_of<std::uint64_t>({blocks, ~std::uint64_t{0}, blocks + 1})
                                : pick.word<std::uint16_t>() % blocks;
        length = pick.one_of<std::uint32_t>({1, 0, 8, 64, static_cast<std::uint32_t>(blocks), ~std::uint32_t{0}, 100});
        if (!pick.rarely(32) && first < blocks) length = std::min(length, blocks - first);
      }
      memory().store(at / 8 * 8 + 16 * i, length << 32);
      memory().store(at / 8 * 8 + 16 * i + 8, first);
    }
    return at;
  }

  std::uint32_t queue_id(client const& who) {
    return pick_.rarely(24) ? pick_.one_of({0u, who.queues + 1, 0xffffu, 0x100u}) : 1 + pick_.below(who.queues);
  }
  std::uint32_t queue_size() {
    return pick_.rarely(48) ? pick_.one_of({1u, 65536u, drive_.options.max_queue_entries + 1, 1025u, 1024u, 513u})
                            : pick_.one_of({16u, 2u, 3u, 7u, 65u, 64u, 257u, 20u});
  }

  nvme::submission_entry admin_command(client& who) {
    nvme::submission_entry e;
    auto const opcode =
        pick_.one_of({admin_opcode::identify, admin_opcode::create_io_completion_queue,
                      admin_opcode::create_io_submission_queue, admin_opcode::delete_io_submission_queue,
                      admin_opcode::delete_io_completion_queue, admin_opcode::get_log_page, admin_opcode::get_features,
                      admin_opcode::set_features, admin_opcode::abort, admin_opcode::asynchronous_event_request,
                      admin_opcode::create_io_submission_queue, admin_opcode::get_log_page});
    e.cdw0 = nvme::make_cdw0(opcode, static_cast<std::uint16_t>(pick_.byte() << 8 | static_cast<int>(opcode)));
    e.prp1 = address(any_or_data(pick_));
    e.prp2 = address(any_or_data(pick_));
    std::uint32_t const id = queue_id(who);
    switch (opcode) {
      case admin_opcode::identify:
        e.nsid = pick_.one_of({1u, 0u, ~0u, 2u, 0xfffffffeu});
        e.cdw10 = pick_.rarely(16) ? pick_.word<std::uint32_t>() : pick_.below(5);
        break;
      case admin_opcode::create_io_completion_queue:
      case admin_opcode::create_io_submission_queue: {
        bool const is_cq = opcode == admin_opcode::create_io_completion_queue;
        e.cdw10 = id | (queue_size() - 1) << 16;
        e.cdw11 = (pick_.rarely(16) ? pick_.byte() : 1u) | (is_cq ? pick_.below(8) : queue_id(who)) << 16;
        e.prp1 = address(any_or(is_cq ? arena::completion_queues : arena::submission_queues));
        break;
      }
      case admin_opcode::delete_io_completion_queue:
      case admin_opcode::delete_io_submission_queue:
        e.cdw10 = id;
        break;
      case admin_opcode::abort:
        e.cdw10 = id | static_cast<std::uint32_t>(pick_.byte() << 8 | pick_.one_of({1, 2, 5, 0x0c})) << 16;
        break;
      case admin_opcode::get_log_page: {
        std::uint32_t const dwords = pick_.one_of({128u, 1024u, 1u, 16u, 4096u, 262144u, 262145u, 0x10000u, 0u});
        e.nsid = pick_.one_of({~0u, 0u, 1u, 2u});
        e.cdw10 = pick_.one_of({1u, 2u, 3u, 5u, 4u, 0x81u}) | ((dwords - 1) & 0xffff) << 16 |
                  (pick_.rarely(64) ? 1u << 15 : 0u);
        e.cdw11 = (dwords - 1) >> 16;
        std::uint64_t const offset = pick_.one_of<std::uint64_t>(
            {0, 4, 512, 4096, 4092, 2, 64 * 64, 64 * 64 + 4, ~std::uint64_t{3}, std::uint64_t{1} << 32, 511});
        e.cdw12 = static_cast<std::uint32_t>(offset);
        e.cdw13 = static_cast<std::uint32_t>(offset >> 32);
        if (dwords > 2048 && dwords < 300000) e.prp2 = make_list(pick_, dwords / 1024);
        break;
      }
      case admin_opcode::set_features:
      case admin_opcode::get_features:
        e.cdw10 = pick_.below(18) | (pick_.rarely(32) ? pick_.word<std::uint32_t>() : 0);
        e.cdw11 = pick_.word<std::uint16_t>();
        break;
      default:
        break;
    }
    if (pick_.rarely(12)) e.cdw0 = (e.cdw0 & ~0xffu) | pick_.byte();
    if (pick_.rarely(8)) e.cdw0 ^= std::uint32_t{1} << (8 + pick_.below(8));
    if (!drive_.strict && pick_.rarely(16)) {
      auto* const dwords = reinterpret_cast<std::uint32_t*>(&e);
      std::uint32_t const which = pick_.below(16);
      dwords[which] ^= pick_.word<std::uint32_t>();
    }
    if (drive_.strict && e.opcode() == static_cast<std::uint8_t>(opcode)) return e;
    // Data that one command moves must not land in what was to be another's queue.
    if (drive_.strict) e.prp1 = e.prp2 = address(arena::data);
    return e;
  }

  void submit_admin(client& who, nvme::submission_entry const& e) {
    if (who.sq_size < 2) return;
    memory().store(who.asq + who.tail * sizeof e, e);
    who.tail = who.tail + 1 >= who.sq_size ? 0 : who.tail + 1;
    who.regs().write32(registers::sq_tail_doorbell(0, 0), who.tail);
  }

  /// Takes what is in a completion queue. Whether there was anything.
  bool take(std::uint32_t kind, std::uint64_t cq, std::uint32_t size, std::uint32_t& head, std::uint32_t& phase) {
    bool any = false;
    for (std::uint32_t i = 0; i < size; ++i) {
      std::uint64_t const at = cq + head * sizeof(nvme::completion_entry);
      if (at % sizeof(nvme::completion_entry) != 0 || !memory().is_open(at, sizeof(nvme::completion_entry))) break;
      // Acquire: pairs with the controller's release of the same word.
      std::uint32_t const dw3 =
          std::atomic_ref(reinterpret_cast<nvme::completion_entry*>(at)->dw3).load(std::memory_order_acquire);
      if ((dw3 >> 16 & 1) != phase) break;
      shown_.add(kind, dw3 & 0xff, dw3 >> 17 & nvme::status_code_mask);
      if (++head >= size) {
        head = 0;
        phase ^= 1;
      }
      any = true;
    }
    return any;
  }
  bool take_admin(client& who) {
    bool const any = take(admin_status, who.acq, who.cq_size, who.head, who.phase);
    if (any) who.regs().write32(registers::cq_head_doorbell(0, 0), who.head);
    return any;
  }
  /// Gives the controller a moment, and no longer: it may have nothing to say.
  void take_admin_soon(client& who) {
    constexpr std::uint64_t moment_ns = 300'000;
    if (!who.csts().ready()) return;
    (void)native::wait_until([&] { return take_admin(who); }, native::clock_ns() + moment_ns);
  }

  /// A pair of queues as a host makes it, in pages of its own.
  void create_pair(client& who, std::uint32_t id) {
    id = 1 + (id - 1) % who.queues;
    io_queue& q = who.io[id];
    q = {};
    q.sq_size = queue_size();
    q.cq_size = queue_size();
    q.cq = memory().of(arena::completion_queues, pick_.rarely(64) ? 15 : pick_.below(14));
    // At the end of the pool the entry behind the last one faults; in its last page a queue may be too long for it.
    std::uint32_t const sq_pages = (q.sq_size * 64 + 4095) / 4096;
    std::uint32_t const ends[] = {pick_.below(16), sq_pages <= 16 ? 16 - sq_pages : 0, 15, 0};
    q.sq = memory().of(arena::submission_queues, pick_.one_of(ends));
    clear(q.cq, std::min<std::uint64_t>(q.cq_size * sizeof(nvme::completion_entry), 2 * page));
    nvme::submission_entry e;
    e.cdw0 = nvme::make_cdw0(admin_opcode::create_io_completion_queue, 5);
    e.prp1 = q.cq;
    e.cdw10 = id | (q.cq_size - 1) << 16;
    e.cdw11 = 1;
    submit_admin(who, e);
    take_admin_soon(who);
    e.cdw0 = nvme::make_cdw0(admin_opcode::create_io_submission_queue, 1);
    e.prp1 = q.sq;
    e.cdw10 = id | (q.sq_size - 1) << 16;
    e.cdw11 = 1 | (pick_.rarely(48) ? queue_id(who) : id) << 16;
    submit_admin(who, e);
    take_admin_soon(who);
    q.there = true;
  }

  void submit_io(client& who, std::uint32_t id) {
    io_queue& q = who.io[id];
    if (!q.there || q.sq_size < 2) return create_pair(who, id);
    if (pick_.rarely(24)) {  // all but one, whatever they say
      q.tail = (q.tail + q.sq_size - 1) % q.sq_size;
      q.rung = true;
      return who.regs().write32(registers::sq_tail_doorbell(id, 0), q.tail);
    }
    std::uint32_t const n = 1 + pick_.below(pick_.rarely(48) ? 40 : 6);
    for (std::uint32_t i = 0; i < n; ++i) {
      memory().store(q.sq + q.tail * sizeof(nvme::submission_entry), io_command(pick_));
      q.tail = q.tail + 1 >= q.sq_size ? 0 : q.tail + 1;
    }
    who.regs().write32(registers::sq_tail_doorbell(id, 0), q.tail);
    q.rung = true;
  }
  void take_io(client& who, std::uint32_t id) {
    io_queue& q = who.io[id];
    constexpr std::uint64_t moment_ns = 300'000;
    auto const some = [&] { return take(io_status, q.cq, q.cq_size, q.head, q.phase); };
    if (!q.there || !native::wait_until(some, native::clock_ns() + (q.rung ? moment_ns : 0))) return;
    q.rung = false;
    if (!pick_.rarely(24)) who.regs().write32(registers::cq_head_doorbell(id, 0), q.head);
  }

  // What happens meanwhile --------------------------------------------------------------------------------------------

  /// A thread that changes, for a while, what the engine reads.
  void start_meddling(client& who) {
    if (meddlers_.size() >= 2) return;
    struct target {
      std::uint64_t at;
      std::uint32_t entries;
    };
    std::vector<target> queues;
    for (io_queue const& q : who.io) {
      if (q.there) queues.push_back({q.sq, std::min(q.sq_size, 64u)});
    }
    std::uint32_t const turns = 64u << pick_.below(8);
    std::uint32_t const kinds = pick_.byte();  // a bit for each that is allowed
    std::uint32_t const seed = pick_.word<std::uint32_t>();
    std::uint32_t const ids = who.queues + 1;
    meddlers_.emplace_back([this, queues, turns, kinds, seed, ids, &drive = *who.drive] {
      choices pick(std::uint64_t{seed});
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        std::uint32_t const kind = pick.below(8);
        if ((kinds >> kind & 1) == 0 && kinds != 0) continue;
        switch (kind) {
          case 0:
          case 1:
            if (queues.empty()) break;
            {
              target const& q = queues[pick.below(static_cast<std::uint32_t>(queues.size()))];
              memory().store(q.at + pick.below(q.entries) * sizeof(nvme::submission_entry), io_command(pick));
            }
            break;
          case 2:
          case 3: {
            // Whole words, each of which a list may hold; most of them in one page, to meet what reads it.
            std::uint64_t const at = memory().of(arena::lists, pick.rarely(192) ? seed % 16 : pick.below(16),
                                                 8 * (pick.rarely(128) ? pick.below(16) : pick.below(512)));
            memory().store(at, pick.rarely(128)   ? address(arena::data, pick)
                               : pick.rarely(128) ? memory().address(arena::pages - 1)
                                                  : memory().of(arena::data, pick.below(64)));
            break;
          }
          case 4:
            drive.registers().write32(registers::doorbell_base + 4 * pick.below(2 * ids),
                                      pick.rarely(200) ? pick.below(64) : pick.word<std::uint32_t>());
            break;
          case 5: {
            std::uint32_t const first = arena::data.first + pick.below(60);
            void* const at = reinterpret_cast<void*>(memory().address(first));
            memory().open(first, 4);
            drive.dma().map(at, 4 * page);
            drive.dma().unmap(at, 4 * page);
            break;
          }
          case 6:
            memory().store(memory().of(arena::data, pick.below(64), 8 * pick.below(512)), pick.word<std::uint32_t>());
            break;
          default:
            drive.registers().write32(4 * pick.below(16) + (pick.rarely(8) ? 0xe00u : 0u),
                                      pick.rarely(128) ? pick.word<std::uint32_t>()
                                                       : nvme::controller_configuration::make(pick.rarely(128), page));
            break;
        }
      }
    });
  }
  void stop_meddling() {
    for (std::thread& thread : meddlers_) thread.join();
    meddlers_.clear();
  }

  void invite() {
    if (visitors_.size() >= 2) return;
    bool const alone = visitors_.empty();
    std::uint32_t const sizes = pick_.byte();
    auto guest = std::make_unique<visitor>();
    visitor& it = *guest;
    it.thread = std::thread([this, alone, sizes, &it] {
      try {
        controller own(subsystem_, 1);
        honest_host(own, drive_.facts, 1)
            .check(2 + sizes % 7, 2 + sizes / 7 % 11, alone ? reserved_blocks / 2 : reserved_blocks,
                   alone && drive_.strict);
        demand(own.leave(), "the engine lets go of a controller that leaves");
      } catch (refused_input const&) {
        shown_.add(refusal, 1, 0);  // no queue pairs are left
      } catch (...) {
        it.failure = std::current_exception();
      }
    });
    visitors_.push_back(std::move(guest));
  }
  void see_off() {
    std::exception_ptr failure;
    for (auto& guest : visitors_) {
      guest->thread.join();
      if (guest->failure) failure = guest->failure;
    }
    visitors_.clear();
    if (failure) std::rethrow_exception(failure);
  }

  /// Resets everything. From then on nothing may touch what the hostile hosts had, and the controllers are as new.
  void end_round() {
    stop_meddling();
    see_off();
    for (auto& who : clients_) quieten(*who->drive);
    unmap_all();
    memory().close();
    check_medium();
    if (clients_.empty()) join();
    if (clients_.empty()) return;
    client& who = *clients_[pick_.below(static_cast<std::uint32_t>(clients_.size()))];
    auto const id = static_cast<std::uint16_t>(1 + pick_.below(who.queues));
    honest_host(*who.drive, drive_.facts, id)
        .check(2 + pick_.below(18), 2 + pick_.below(18), reserved_blocks + pick_.below(128), true);
    check_medium();
    for (auto& each : clients_) each->io = {};
  }

  // Actions -----------------------------------------------------------------------------------------------------------

  void act() {
    std::uint32_t const what = pick_.below(32);
    if (clients_.empty()) return join();
    auto const count = static_cast<std::uint32_t>(clients_.size());
    client& who = *clients_[pick_.rarely(64) ? pick_.below(count) : 0];
    std::uint32_t const id = 1 + pick_.below(who.queues);
    switch (what) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        submit_io(who, id);
        break;
      case 6:
      case 7:
      case 8:
        take_io(who, id);
        break;
      case 9:
      case 10:
        create_pair(who, id);
        break;
      case 11:
      case 12:
      case 13:
      case 14: {
        submit_admin(who, admin_command(who));
        if (!pick_.rarely(64)) take_admin_soon(who);
        break;
      }
      case 15:
        take_admin(who);
        break;
      case 16:
      case 17:
        start_meddling(who);
        break;
      case 18: {  // a doorbell
        std::uint32_t const of = pick_.rarely(48) ? pick_.word<std::uint16_t>() : pick_.below(2 * who.queues + 2);
        std::uint32_t const value = pick_.rarely(64) ? pick_.word<std::uint32_t>() : queue_size() - pick_.below(3);
        who.regs().write32(registers::doorbell_base + 4 * of, value);
        break;
      }
      case 19: {  // a register
        std::uint32_t const at = pick_.rarely(64) ? pick_.word<std::uint32_t>() : 4 * pick_.below(24);
        who.regs().write32(at, pick_.word<std::uint32_t>());
        shown_.add(controller_state, 19, who.csts().value);
        break;
      }
      case 20: {
        std::uint32_t const at = pick_.word<std::uint32_t>();
        (void)who.regs().read32(at);
        try {
          (void)who.regs().doorbell(at % 8192);
        } catch (refused_input const&) {
          shown_.add(refusal, 2, 0);
        }
        break;
      }
      case 21:
        enable(who, false);
        shown_.add(controller_state, 21, who.csts().value);
        break;
      case 22:
        enable(who, true);
        shown_.add(controller_state, 22, who.csts().value);
        break;
      case 23: {  // disabled, and enabled again at once or never
        std::uint32_t const cc = who.regs().read32(registers::cc);
        who.regs().write32(registers::cc, cc & ~1u);
        if (pick_.rarely(128)) who.regs().write32(registers::cc, cc | 1u);
        shown_.add(controller_state, 23, who.csts().value);
        break;
      }
      case 24: {
        auto const how = pick_.one_of({nvme::shutdown_notification::normal, nvme::shutdown_notification::abrupt,
                                       nvme::shutdown_notification::none});
        who.regs().write32(registers::cc,
                           nvme::controller_configuration::with_shutdown(who.regs().read32(registers::cc), how));
        shown_.add(controller_state, 24, who.csts().value);
        break;
      }
      case 25: {
        auto const& in = arena::pools[pick_.below(std::size(arena::pools))];
        std::uint32_t const first = pick_.below(in.pages);
        map(who, in.first + first, 1 + pick_.below(in.pages - first));
        break;
      }
      case 26: {
        if (who.mapped.empty()) break;
        std::size_t const which = pick_.below(static_cast<std::uint32_t>(who.mapped.size()));
        range const r = who.mapped[which];
        who.mapped.erase(who.mapped.begin() + static_cast<std::ptrdiff_t>(which));
        who.drive->dma().unmap(reinterpret_cast<void*>(memory().address(r.first)), r.count * page);
        break;
      }
      case 27:  // never a range that was mapped
        try {
          who.drive->dma().unmap(reinterpret_cast<void*>(memory().address(pick_.below(16))), page);
        } catch (refused_input const&) {
          shown_.add(refusal, 3, 0);
        }
        break;
      case 28:
        invite();
        break;
      case 29:
        if (count < 3) join();
        break;
      case 30:
        leave(pick_.below(count));
        break;
      default:
        end_round();
        if (clients_.empty()) break;
        for (auto const& pool : arena::pools) map(*clients_[0], pool.first, pool.pages);
        enable(*clients_[0], pick_.rarely(64));
        break;
    }
  }

  choices pick_;
  behaviour& shown_;
  chosen_drive drive_;
  std::string path_;
  std::shared_ptr<subsystem> subsystem_;
  std::byte* medium_ = nullptr;
  std::vector<std::unique_ptr<client>> clients_;
  std::vector<std::thread> meddlers_;
  std::vector<std::unique_ptr<visitor>> visitors_;
};

// The runs ------------------------------------------------------------------------------------------------------------

/// Where the input lies that runs just now, or that broke something.
std::filesystem::path current_path() {
  char const* const given = std::getenv("FOREBAY_FUZZ_CURRENT");
  return given != nullptr ? std::filesystem::path(given)
                          : std::filesystem::path(::testing::TempDir()) /
                                ("forebay-fuzz-input-" + std::to_string(getpid()) + ".bin");
}

std::string replay_command(std::filesystem::path const& path) {
  return "FOREBAY_FUZZ_INPUT=" + std::filesystem::absolute(path).string() + " " +
         ::testing::internal::GetArgvs().front() + " --gtest_filter=controller_fuzz.replay";
}

constexpr unsigned hang_seconds = 300;

extern "C" void say_that_it_hangs(int) {
  constexpr char text[] = "the input that runs has taken minutes: something hangs\n";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  std::abort();
}

/// Plays an input; what it does wrong is a failure of the test. `path`: where it lies, whatever becomes of the process.
bool play(fuzz_input const& input, std::filesystem::path const& path, behaviour& shown) {
  signal(SIGALRM, say_that_it_hangs);
  alarm(hang_seconds);
  bool good = true;
  try {
    session(input, shown).run();
  } catch (std::exception const& e) {
    ADD_FAILURE() << e.what() << "\nreplay with " << replay_command(path);
    good = false;
  }
  alarm(0);
  return good;
}

std::filesystem::path corpus_folder() {
  return test::source_path("tests/emulator/corpus");
}

TEST(controller_fuzz, corpus) {
  auto const paths = inputs_in(corpus_folder());
  ASSERT_FALSE(paths.empty());
  behaviour shown;
  for (auto const& path : paths) {
    std::cout << path.filename().string() << std::endl;  // the one that a crash is due to is the last
    if (!play(read_input(path), path, shown)) return;
  }
}

TEST(controller_fuzz, mutants) {
  std::uint64_t const seconds = test::number_from_environment("FOREBAY_FUZZ_SECONDS", 3);
  std::uint64_t const seed = test::number_from_environment("FOREBAY_FUZZ_SEED", std::random_device{}());
  char const* const keep = std::getenv("FOREBAY_FUZZ_KEEP");
  auto const current = current_path();
  std::cout << "FOREBAY_FUZZ_SEED=" << seed << "; after a crash replay with " << replay_command(current) << std::endl;

  choices pick(seed);
  behaviour shown;
  std::vector<fuzz_input> parents;
  for (auto const& path : inputs_in(corpus_folder())) parents.push_back(read_input(path));
  std::uint64_t const begin_ns = native::clock_ns();
  std::uint64_t const end_ns = begin_ns + seconds * 1'000'000'000;
  std::uint64_t played = 0, kept = 0;
  // What the corpus shows is known, where there is the time to look.
  std::uint64_t const from_corpus = seconds < 10 && keep == nullptr ? 0 : parents.size();
  for (; native::clock_ns() < end_ns || played == 0; ++played) {
    bool const is_new = played >= from_corpus;
    fuzz_input const input = is_new ? mutate(parents, pick) : parents[played];
    write_input(current, input);
    std::size_t const before = shown.seen().size();
    if (!play(input, current, shown)) return;
    if (shown.seen().size() == before || !is_new) continue;
    parents.push_back(input);
    ++kept;
    if (keep != nullptr) write_input(std::filesystem::path(keep) / name_of(input), input);
  }
  std::filesystem::remove(current);
  double const took = static_cast<double>(native::clock_ns() - begin_ns) / 1e9;
  std::cout << played << " inputs, " << static_cast<double>(played) / took << " a second; " << kept
            << " showed something new; " << shown.seen().size() << " behaviours" << std::endl;
}

TEST(controller_fuzz, replay) {
  char const* const path = std::getenv("FOREBAY_FUZZ_INPUT");
  if (path == nullptr) GTEST_SKIP() << "FOREBAY_FUZZ_INPUT names no input";
  fuzz_input const input = read_input(path);
  ASSERT_FALSE(input.empty()) << path;
  // Threads take turns otherwise each time.
  std::uint64_t const times = test::number_from_environment("FOREBAY_FUZZ_TIMES", 50);
  behaviour shown;
  for (std::uint64_t i = 0; i < times; ++i) {
    if (!play(input, path, shown)) return;
  }
}

}  // namespace
}  // namespace forebay::emulator::testing
