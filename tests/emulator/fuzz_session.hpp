// SPDX-License-Identifier: Apache-2.0
//! \file
//! Plays one input of the controller fuzzer: a drive, hostile hosts of it, and hosts that keep to the rules.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/fuzz_arena.hpp"
#include "emulator/fuzz_behaviour.hpp"
#include "emulator/fuzz_commands.hpp"
#include "emulator/fuzz_drive.hpp"
#include "emulator/fuzz_honest_host.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/subsystem.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator::testing {

namespace registers = nvme::registers;

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
  /// A host that keeps to the rules, with a controller of its own, beside the hostile ones.
  struct visitor {
    std::thread thread;
    std::exception_ptr failure;
  };

  // The drive ---------------------------------------------------------------------------------------------------------

  std::uint64_t size_bytes() const { return drive_.facts.blocks * drive_.facts.block_bytes; }
  std::uint64_t untouched_bytes() const { return reserved_blocks / 2 * drive_.facts.block_bytes; }

  void open_drive() {
    std::uint32_t const block = drive_.facts.block_bytes;
    std::unique_ptr<backing_store> store;
    bool const is_file = drive_.kind == backing::file || drive_.kind == backing::file_read_only;
    if (is_file) {
      // In memory, if there is such a file system: on a busy disk an msync can take longer than the wait for a Flush.
      std::string const folder = std::filesystem::is_directory("/dev/shm") ? "/dev/shm/" : ::testing::TempDir();
      path_ = folder + "forebay-fuzz-" + std::to_string(getpid());
      write_input(path_, {medium_pattern(), medium_pattern() + size_bytes()});
      store = file_backing(path_, size_bytes(), block, drive_.facts.read_only);
    } else if (drive_.kind == backing::none) {
      store = no_backing(size_bytes(), block);
    } else {
      store = memory_backing(size_bytes(), block);
      media const home = store->view();
      std::memcpy(home.data, medium_pattern(), untouched_bytes());
      if (drive_.kind == backing::copy) store = working_copy(std::move(store), memory::host());
    }
    medium_ = store->view().data;
    subsystem_ = std::make_shared<subsystem>(drive_.options, std::move(store));
  }

  void check_medium() {
    if (medium_ == nullptr || (!drive_.strict && !drive_.facts.read_only)) return;
    std::uint64_t const end = drive_.facts.read_only ? size_bytes() : untouched_bytes();
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
    demand(content.size() == size_bytes(), "the file keeps its size");
    if (!drive_.strict && !drive_.facts.read_only) return;
    std::uint64_t const end = drive_.facts.read_only ? size_bytes() : untouched_bytes();
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
    who.asq = wild ? commands_.address(arena::admin_queues, pick_) : memory().of(arena::admin_queues, pick_.below(2));
    who.acq = wild ? commands_.address(commands_.any_or(arena::completion_queues, pick_), pick_)
                   : memory().of(arena::completion_queues, 14 + pick_.below(2));
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

  /// Zeroes the part of a queue that may be touched.
  void clear(std::uint64_t at, std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; i += 8) memory().store(at + i, 0);
  }

  // Commands ----------------------------------------------------------------------------------------------------------

  void submit_admin(client& who, nvme::submission_entry const& e) {
    if (who.sq_size < 2) return;
    memory().store(who.asq + who.tail * sizeof e, e);
    who.tail = who.tail + 1 >= who.sq_size ? 0 : who.tail + 1;
    who.regs().write32(registers::sq_tail_doorbell(0, 0), who.tail);
  }

  /// Takes the completions in a completion queue. Returns whether there were any.
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
  /// Gives the controller a moment, and no longer: it may have nothing to post.
  void take_admin_soon(client& who) {
    constexpr std::uint64_t moment_ns = 300'000;
    if (!who.csts().ready()) return;
    (void)simt::native::wait_until([&] { return take_admin(who); }, simt::native::clock_ns() + moment_ns);
  }

  /// A pair of queues as a host makes it, in pages of its own.
  void create_pair(client& who, std::uint32_t id) {
    id = 1 + (id - 1) % who.queues;
    io_queue& q = who.io[id];
    q = {};
    q.sq_size = commands_.queue_size(pick_);
    q.cq_size = commands_.queue_size(pick_);
    q.cq = memory().of(arena::completion_queues, pick_.rarely(64) ? 15 : pick_.below(14));
    // At the end of the pool the entry behind the last one faults; in the pool's last page a queue may be too long for
    // it.
    std::uint32_t const sq_pages = (q.sq_size * 64 + 4095) / 4096;
    std::uint32_t const ends[] = {pick_.below(16), sq_pages <= 16 ? 16 - sq_pages : 0, 15, 0};
    q.sq = memory().of(arena::submission_queues, pick_.one_of(ends));
    clear(q.cq, std::min<std::uint64_t>(q.cq_size * sizeof(nvme::completion_entry), 2 * page));
    nvme::submission_entry e;
    e.cdw0 = nvme::make_cdw0(nvme::admin_opcode::create_io_completion_queue, 5);
    e.prp1 = q.cq;
    e.cdw10 = id | (q.cq_size - 1) << 16;
    e.cdw11 = 1;
    submit_admin(who, e);
    take_admin_soon(who);
    e.cdw0 = nvme::make_cdw0(nvme::admin_opcode::create_io_submission_queue, 1);
    e.prp1 = q.sq;
    e.cdw10 = id | (q.sq_size - 1) << 16;
    e.cdw11 = 1 | (pick_.rarely(48) ? commands_.queue_id(pick_, who.queues) : id) << 16;
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
      memory().store(q.sq + q.tail * sizeof(nvme::submission_entry), commands_.io_command(pick_));
      q.tail = q.tail + 1 >= q.sq_size ? 0 : q.tail + 1;
    }
    who.regs().write32(registers::sq_tail_doorbell(id, 0), q.tail);
    q.rung = true;
  }
  void take_io(client& who, std::uint32_t id) {
    io_queue& q = who.io[id];
    constexpr std::uint64_t moment_ns = 300'000;
    auto const some = [&] { return take(io_status, q.cq, q.cq_size, q.head, q.phase); };
    if (!q.there || !simt::native::wait_until(some, simt::native::clock_ns() + (q.rung ? moment_ns : 0))) return;
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
              memory().store(q.at + pick.below(q.entries) * sizeof(nvme::submission_entry), commands_.io_command(pick));
            }
            break;
          case 2:
          case 3: {
            // Whole words, each of which a list may hold. Most of them are in one page, so that the engine is likely to
            // read it.
            std::uint64_t const at = memory().of(arena::lists, pick.rarely(192) ? seed % 16 : pick.below(16),
                                                 8 * (pick.rarely(128) ? pick.below(16) : pick.below(512)));
            memory().store(at, pick.rarely(128)   ? commands_.address(arena::data, pick)
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

  /// Resets everything. From then on nothing may touch the memory of the hostile hosts, and the controllers are as new.
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
        submit_admin(who, commands_.admin_command(pick_, who.queues));
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
        std::uint32_t const value =
            pick_.rarely(64) ? pick_.word<std::uint32_t>() : commands_.queue_size(pick_) - pick_.below(3);
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
  hostile_commands commands_{drive_};
  std::string path_;
  std::shared_ptr<subsystem> subsystem_;
  std::byte* medium_ = nullptr;
  std::vector<std::unique_ptr<client>> clients_;
  std::vector<std::thread> meddlers_;
  std::vector<std::unique_ptr<visitor>> visitors_;
};

}  // namespace forebay::emulator::testing
