// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands of the clients of resident units: what each does, what the drive then holds, and the expected result. All
//! follows from a seed and from the commands that completed before.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "forebay/detail/emulator/engine_options.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator::testing {

struct resident_shape {
  std::uint32_t units = 1;
  std::uint32_t warps = 1;  ///< of each unit
  std::uint32_t queues = 1;
  std::uint32_t sq_entries = 8;
  std::uint32_t cq_entries = 8;
  bool shared_cq = false;      ///< one completion queue, one client
  std::uint32_t commands = 8;  ///< of each queue
  bool all_kinds = true;       ///< else reads and writes that succeed
  bool aborts = false;         ///< the host aborts some that are not withheld, too
  bool detaches = false;       ///< each queue once, amid its traffic
  bool attaches_late = false;  ///< queues but the first of a client, amid the traffic of that
  bool syncs = false;          ///< the host writes back what a Flush covers
  bool sync_fails = false;
  std::uint32_t stop_after = 0;  ///< not 0: units leave when so many commands have completed; a second launch goes on
  engine_options options = {};
};

/// A drive on which every command takes 20 us at least.
inline timing_parameters two_channels() {
  timing_parameters timing;
  timing.channels = 2;
  timing.read = timing.write = {.per_command_ps = 1'000'000, .per_byte_fs = 100'000, .latency_min_ps = 20'000'000};
  timing.other = {.per_command_ps = 0, .latency_min_ps = 20'000'000};
  return timing;
}

/// No two commands are in flight at a time in one place, so the last to complete there decides what a block holds.
class resident_commands {
 protected:
  using fiber = simt::fiber;
  using order = simt::order;
  static constexpr simt::scope system = simt::scope::system;

  static constexpr std::uint64_t page = 4096;
  static constexpr std::uint32_t extents = 6;  ///< of each queue: commands on different ones overlap in time
  static constexpr std::uint32_t extent_blocks = 18;
  static constexpr std::uint64_t extent_buffer_bytes = 6 * page;
  static constexpr std::uint64_t queue_buffer_bytes = extents * extent_buffer_bytes;
  static constexpr std::uint32_t unknown = ~0u;  ///< what a block holds

  static std::uint64_t store_bytes(resident_shape const& shape) {
    return (shape.queues * extents * extent_blocks * 512 + page - 1) / page * page;
  }

  enum class kind {
    write,
    read,
    compare_same,
    compare_other,
    zeroes,
    deallocate,
    flush,
    bad_range,
    bad_lba,
    bad_prp,
    bad_memory
  };
  struct record {
    kind what = kind::read;
    std::uint32_t queue = 0;
    std::uint32_t extent = 0;
    std::uint32_t blocks = 0;
    std::uint32_t layout = 0;  ///< of its data in the client's memory
    injected_fault fault;
    std::uint32_t synced_before = 0;
    std::uint64_t submitted_ns = 0;
    std::uint64_t took_ns = 0;
    std::uint64_t alone_ns = 0;  ///< the time that it takes on a drive that does nothing else
    bool completed = false;
    std::uint16_t status = 0;
    bool abort_asked = false;
    bool abort_answered = false;
    bool abort_found = false;
  };
  struct queue {
    std::vector<nvme::submission_entry> sq;
    std::vector<nvme::completion_entry> cq;
    std::uint32_t drawn = 0, submitted = 0, completed = 0;
    std::uint32_t tail = 0, head = 0;
    std::uint32_t in_life = 0;  ///< commands since it was attached
    std::uint32_t cq_head = 0, phase = 1;
    bool attached = true;
    bool detached_once = false;
    std::uint32_t dropped = 0;                     ///< in flight when it was detached, and without a completion
    std::array<std::uint32_t, extents> busy = {};  ///< command id + 1
    std::array<std::array<std::uint32_t, extent_blocks>, extents> holds = {};
    // The client's requests to the host: a count of demands, and of those that were served.
    std::uint32_t asks = 0;  ///< the client's own count
    std::uint32_t asked = 0;
    std::uint32_t served = 0;
    std::uint32_t demand = 0;  ///< command id of an abort, or a `demand_` of `resident_rig`
  };

  resident_commands(resident_shape const& shape, std::uint64_t seed)
      : shape_(shape),
        seed_(seed),
        store_(memory::host(), store_bytes(shape), page),
        buffers_(memory::host(), shape.queues * queue_buffer_bytes, page),
        plan_(shape.options.faults) {
    plan_.seed = seed;
    sync_.failed = shape.sync_fails ? 1 : 0;
    for (std::uint32_t q = 0; q < shape.queues; ++q) {
      queues_.push_back(std::make_unique<queue>());
      queues_[q]->sq.resize(shape.sq_entries);
      queues_[q]->cq.resize(shape.cq_entries);
    }
    records_.resize(std::size_t{shape.queues} * shape.commands);
  }

  /// Decides where command `id` works.
  void draw(std::uint32_t q, std::uint32_t id) {
    simt::random_source random(seed_ * 200'003 + id * 2);
    record& command = records_[id];
    command.queue = q;
    command.extent = random.below(extents);
    std::uint32_t const size = random.below(16);
    command.layout = size < 8 ? 0 : size < 10 ? 1 : size < 12 ? 2 : size < 15 ? 3 : 4;
    command.blocks = blocks_of(command.layout);
  }

  /// Decides what command `id` does, when no other command is in flight in the same place.
  void draw_kind(std::uint32_t id) {
    simt::random_source random(seed_ * 200'003 + id * 2 + 1);
    record& command = records_[id];
    auto const& holds = queues_[command.queue]->holds[command.extent];
    bool const known = std::count(holds.begin(), holds.begin() + command.blocks, unknown) == 0;
    std::uint32_t const choice = random.below(20);
    if (choice < 8 || !known) {
      command.what = kind::write;
    } else if (choice < 15 || !shape_.all_kinds) {
      command.what = shape_.syncs && random.below(2) == 0 ? kind::flush : kind::read;
    } else {
      constexpr kind others[] = {kind::compare_same, kind::compare_other, kind::zeroes,  kind::deallocate, kind::flush,
                                 kind::bad_range,    kind::bad_lba,       kind::bad_prp, kind::bad_memory};
      command.what = others[random.below(std::size(others))];
    }
  }

  /// Fills the client's memory and the queue's next entry.
  void prepare(queue& mine, std::uint32_t id) {
    using nvme::io_opcode;
    record& command = records_[id];
    auto const& holds = mine.holds[command.extent];
    std::uint64_t const slba =
        command.what == kind::bad_lba ? store_.size_bytes() / 512 - command.blocks + 1 : first_block(command);
    std::uint32_t const stamp = id + 1;
    io_opcode opcode = io_opcode::read;
    switch (command.what) {
      case kind::write:
        opcode = io_opcode::write;
        for_each_word(command, [&](std::uint32_t* word, std::uint32_t block, std::uint32_t w) {
          fiber::st(word, pattern(stamp, slba + block, w));
        });
        break;
      case kind::compare_same:
      case kind::compare_other: {
        opcode = io_opcode::compare;
        std::uint32_t const odd = command.what == kind::compare_other ? fiber::choose(command.blocks * 128) : ~0u;
        for_each_word(command, [&](std::uint32_t* word, std::uint32_t block, std::uint32_t w) {
          fiber::st(word, pattern(holds[block], slba + block, w) ^ (block * 128 + w == odd ? 1u << 31 : 0));
        });
        break;
      }
      case kind::zeroes:
        opcode = io_opcode::write_zeroes;
        break;
      case kind::flush:
        opcode = io_opcode::flush;
        // Relaxed: what the count is now or was before.
        command.synced_before = simt::atomic<fiber, system>(sync_.requested).load(order::relaxed);
        break;
      case kind::deallocate:
      case kind::bad_range:
        opcode = io_opcode::dataset_management;
        break;
      default:
        for_each_word(command, [&](std::uint32_t* word, std::uint32_t, std::uint32_t) { fiber::st(word, sentinel); });
        break;
    }
    auto entry = nvme::make_io_command(opcode, static_cast<std::uint16_t>(id), 1, slba, command.blocks);
    auto const base = reinterpret_cast<std::uint64_t>(area(command));
    auto const pieces = pieces_of(command.layout);
    entry.prp1 = base + pieces[0].at;
    entry.prp2 = command.layout == 2 ? base + 2 * page : command.layout == 3 ? base + page : 0;
    if (command.layout == 4) {
      auto* const list = reinterpret_cast<std::uint64_t*>(base + 5 * page);
      fiber::st(list, base + pieces[1].at);
      fiber::st(list + 1, base + pieces[2].at);
      entry.prp2 = base + 5 * page;
    }
    if (command.what == kind::flush) entry.cdw10 = entry.cdw11 = entry.cdw12 = 0;
    if (command.what == kind::deallocate || command.what == kind::bad_range) {
      // Two ranges, in pages apart: the command's blocks but the last, and the last.
      bool const bad = command.what == kind::bad_range;
      nvme::dataset_management_range const ranges[2] = {
          {0, command.blocks - 1, slba}, {0, 1, bad ? store_.size_bytes() / 512 : slba + command.blocks - 1}};
      entry.prp1 = base + page - 16;
      entry.prp2 = base + 2 * page;
      for (std::uint32_t i = 0; i < 2; ++i) {
        simt::vec16 words;
        std::memcpy(&words, &ranges[i], sizeof words);
        fiber::st(reinterpret_cast<simt::vec16*>(i == 0 ? entry.prp1 : entry.prp2), words);
      }
      entry.cdw10 = 1;
      entry.cdw11 = nvme::cdw11_attribute_deallocate;
      entry.cdw12 = 0;
    }
    if (command.what == kind::bad_prp) entry.prp1 += 2;
    if (command.what == kind::bad_memory) entry.prp1 = page;
    std::uint64_t const number = (std::uint64_t{command.queue + 1} << 48) + mine.in_life;
    if (command.what != kind::bad_lba) {
      command.fault = plan_.at(number);
      command.alone_ns = alone_ns(command, opcode, number);
    }
    command.submitted_ns = fiber::clock_ns();
    auto* const to = reinterpret_cast<simt::vec16*>(&mine.sq[mine.tail]);
    for (std::uint32_t i = 0; i < 4; ++i) {
      simt::vec16 word;
      std::memcpy(&word, reinterpret_cast<std::byte*>(&entry) + 16 * i, 16);
      fiber::st(to + i, word);
    }
  }

  /// The status of the command if nobody aborted it.
  std::uint16_t expected_status(record const& command) const {
    using nvme::generic_status;
    constexpr std::uint16_t final = nvme::do_not_retry;
    auto const with = [](std::uint16_t status, std::uint16_t flags) {
      return static_cast<std::uint16_t>(status | flags);
    };
    if (command.what == kind::bad_lba) return with(nvme::status_field(generic_status::lba_out_of_range), final);
    if (command.fault.status_field != 0) return command.fault.status_field;
    switch (command.what) {
      case kind::bad_prp:
        return with(nvme::status_field(generic_status::prp_offset_invalid), final);
      case kind::bad_memory:
        return nvme::status_field(generic_status::data_transfer_error);
      case kind::bad_range:
        return with(nvme::status_field(generic_status::lba_out_of_range), final);
      case kind::compare_other:
        return with(nvme::status_field(nvme::media_status::compare_failure), final);
      case kind::flush:
        return shape_.syncs && shape_.sync_fails ? nvme::status_field(nvme::media_status::write_fault)
                                                 : std::uint16_t{0};
      default:
        return 0;
    }
  }

  void forget(queue& mine, record const& command) {
    auto& holds = mine.holds[command.extent];
    if (command.what == kind::write || command.what == kind::zeroes || command.what == kind::deallocate) {
      std::fill_n(holds.begin(), command.blocks, unknown);
    }
  }

  /// Command `id` of queue `q` has completed.
  void finish(std::uint32_t q, std::uint32_t id, std::uint16_t status) {
    fiber::check(id < records_.size() && records_[id].queue == q && !records_[id].completed,
                 "a command in flight completes");
    queue& mine = *queues_[q];
    record& command = records_[id];
    fiber::check(mine.busy[command.extent] == id + 1, "a command in flight completes, once");
    mine.busy[command.extent] = 0;
    ++mine.completed;
    command.completed = true;
    command.status = status;
    command.took_ns = fiber::clock_ns() - command.submitted_ns;
    using nvme::generic_status;
    if (status == nvme::status_field(generic_status::command_aborted_due_to_sq_deletion)) {
      fiber::check(mine.detached_once, "only a queue that is deleted takes its commands along");
      return forget(mine, command);
    }
    bool const aborted = status == nvme::status_field(generic_status::command_abort_requested);
    if (aborted) {
      fiber::check(command.abort_asked, "only a command that the host aborts is aborted");
    } else {
      fiber::check(!command.fault.withheld, "a command that is withheld does not complete");
      fiber::check(status == expected_status(command), "the status of a command");
    }
    bool const holds_back = command.fault.withheld || command.fault.delay_ps != 0;
    bool const moved = expected_status(command) == 0 && !(aborted && holds_back && plan_.late_data);
    std::uint64_t const slba = first_block(command);
    auto& holds = mine.holds[command.extent];
    switch (command.what) {
      case kind::write:
        if (moved) std::fill_n(holds.begin(), command.blocks, id + 1);
        break;
      case kind::zeroes:
      case kind::deallocate:
        if (moved) std::fill_n(holds.begin(), command.blocks, 0);
        break;
      case kind::flush:
        if (shape_.syncs && !aborted && command.fault.status_field == 0) {
          // Acquire: pairs with the host's release; it has written back.
          std::uint32_t const synced = simt::atomic<fiber, system>(sync_.completed).load(order::acquire);
          fiber::check(static_cast<std::int32_t>(synced - command.synced_before) > 0, "a Flush waits for the host");
        }
        break;
      case kind::read:
      case kind::bad_lba:
      case kind::bad_prp:
      case kind::bad_memory:
        for_each_word(command, [&](std::uint32_t* word, std::uint32_t block, std::uint32_t w) {
          std::uint32_t const wanted = moved ? pattern(holds[block], slba + block, w) : sentinel;
          fiber::check(fiber::ld(word) == wanted,
                       moved ? "a read returns what the drive holds" : "a read that failed moves nothing");
        });
        break;
      default:
        break;
    }
  }

  resident_shape shape_;
  std::uint64_t seed_;
  memory::allocation store_;
  memory::allocation buffers_;
  std::vector<std::unique_ptr<queue>> queues_;
  std::vector<record> records_;  ///< by command id
  sync_words sync_;
  fault_plan plan_;

 private:
  std::uint64_t first_block(record const& command) const {
    return (std::uint64_t{command.queue} * extents + command.extent) * extent_blocks;
  }
  std::byte* area(record const& command) {
    return buffers_.as<std::byte>() + (std::uint64_t{command.queue} * extents + command.extent) * extent_buffer_bytes;
  }
  static std::uint32_t pattern(std::uint32_t stamp, std::uint64_t block, std::uint32_t word) {
    return stamp == 0 ? 0 : (stamp * 0x9e3779b1u) ^ (static_cast<std::uint32_t>(block * 128 + word) * 0x85ebca6bu);
  }
  static constexpr std::uint32_t sentinel = 0xa5a5a5a5;

  /// Where the data of a layout lies: offset in the area and bytes of each piece.
  struct piece {
    std::uint32_t at, bytes;
  };
  static std::array<piece, 3> pieces_of(std::uint32_t layout) {
    switch (layout) {
      case 0:
        return {{{1024, 512}}};
      case 1:
        return {{{516, 512}}};  // a multiple of 4, not of 16
      case 2:
        return {{{3584, 512}, {2 * 4096, 512}}};
      case 3:
        return {{{3584, 1024}}};  // over a page's end, both pages adjacent
      default:
        return {{{3584, 512}, {2 * 4096, 4096}, {4 * 4096, 4096}}};
    }
  }
  static std::uint32_t blocks_of(std::uint32_t layout) { return layout < 2 ? 1 : layout < 4 ? 2 : 17; }

  /// Calls `visit(word address, block of the command, word of the block)` for the data of a command.
  template <class Visit>
  void for_each_word(record const& command, Visit&& visit) {
    std::uint32_t word = 0;
    for (piece const part : pieces_of(command.layout)) {
      for (std::uint32_t at = 0; at < part.bytes; at += 4, ++word) {
        visit(reinterpret_cast<std::uint32_t*>(area(command) + part.at + at), word / 128, word % 128);
      }
    }
  }

  std::uint64_t alone_ns(record const& command, nvme::io_opcode opcode, std::uint64_t number) const {
    bool const whole = opcode == nvme::io_opcode::flush || opcode == nvme::io_opcode::dataset_management;
    bool const reads = opcode == nvme::io_opcode::read || opcode == nvme::io_opcode::compare;
    timed_command timed{.offset_bytes = first_block(command) * 512,
                        .bytes = whole ? 0 : command.blocks * 512,
                        .sequence = number,
                        .op = reads                              ? operation::read
                              : opcode == nvme::io_opcode::write ? operation::write
                                                                 : operation::other};
    std::uint64_t channels[timing_parameters::max_channels] = {}, scratch[timing_parameters::max_channels];
    timing_model<simt::native>(shape_.options.timing, channels)
        .assign(simt::team<simt::native>::here(), &timed, 1, 0, scratch);
    return (timed.target_ps + command.fault.delay_ps) / 1000;
  }
};

}  // namespace forebay::emulator::testing
