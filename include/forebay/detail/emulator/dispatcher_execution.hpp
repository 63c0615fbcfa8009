// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a dispatcher executes the commands of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/dispatcher_locks.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timed_command.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Moves data, and does whatever else commands ask for.
template <class M>
class dispatcher_execution : protected dispatcher_locks<M> {
  using base = dispatcher_locks<M>;
  using team = simt::team<M>;

 protected:
  using base::base;
  using base::lanes_;
  using base::scratch_;
  using base::stats_;
  using base::view_;

  /// The status of a write that has more than zeros beyond the end of the drive's file. Nothing of it is stored.
  FOREBAY_COLD std::uint16_t refuse_beyond_end() const {
    // Relaxed: the host only says so.
    if (lanes_.leader()) {
      simt::atomic<M, simt::scope::system>(view_.drive.sync->refused_beyond_end).store(1, simt::order::relaxed);
    }
    return static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::write_fault) | nvme::do_not_retry);
  }

  /// Whether the drive's bytes are in a medium, which executes commands later.
  FOREBAY_DEVICE bool has_medium() const {
    if constexpr (M::reaches_files) return view_.drive.pieces != nullptr;
    return false;
  }

  /// What an entry asks for now.
  FOREBAY_DEVICE decoded_command understand(nvme::submission_entry const& entry) const {
    decoded_command command = decode(entry, view_.drive, view_.options.max_transfer_bytes);
    if constexpr (M::reaches_files) {
      // Relaxed: a controller switches its cache while no command is in flight, or accepts either for those that are.
      command.through =
          command.through ||
          (view_.drive.sync != nullptr && changes_data(entry) &&
           simt::atomic<M, simt::scope::system>(view_.drive.sync->without_cache).load(simt::order::relaxed) != 0);
    }
    return command;
  }

  FOREBAY_DEVICE nvme::submission_entry entry(std::uint32_t i) const {
    nvme::submission_entry copy;
    std::memcpy(&copy, scratch_.entries[i].part, sizeof copy);
    return copy;
  }

  /// Executes the batch, each command now or later as its fault demands, and sets `commands` and due times. What a
  /// medium executes is only marked.
  FOREBAY_DEVICE void start(submission_queue<M>& sq, std::uint32_t n, bool immediate) {
    std::uint32_t alone = 0;  // commands that the lanes execute together, one by one
    std::uint32_t reads = 0, writes = 0, failed = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;  // of the lane
    scratch_.moves.clear(lanes_);
    for (std::uint32_t first = 0; first < n; first += lanes_.count()) {
      std::uint32_t const i = first + lanes_.rank();
      bool reads_piece = false, writes_piece = false, is_alone = false, fails = false;
      dma_segment piece;
      std::uint64_t offset_bytes = 0;
      if (i < n) {
        decoded_command const& command = scratch_.decoded[i];
        nvme::submission_entry const e = entry(i);
        scratch_.commands[i] = {e.command_id(), command.status_field,
                                !immediate && command.status_field == 0 ? pending_command::timed : 0};
        if (command.status_field == 0 && view_.options.faults.any()) inject(*this, i);
        pending_command const pending = scratch_.commands[i];
        if (pending.status_field != 0) {
          fails = true;
        } else if (has_medium()) {
          if ((pending.flags & pending_command::held) == 0) scratch_.commands[i].flags |= pending_command::in_medium;
        } else if ((pending.flags & pending_command::held) == 0) {
          bool const plain = command.opcode == nvme::io_opcode::read || command.opcode == nvme::io_opcode::write;
          bool const bounded = command.opcode == nvme::io_opcode::write &&
                               view_.drive.template reaches_beyond_end<M>(command.offset_bytes, command.bytes);
          bool const moves = plain && !bounded && !command.through &&
                             one_piece<M>(sq.regions, e.prp1, e.prp2, command.transfer_bytes, sq.page_bytes, piece);
          is_alone = !moves;
          reads_piece = moves && command.opcode == nvme::io_opcode::read;
          writes_piece = moves && !reads_piece;
          if (reads_piece) bytes_read += command.bytes;
          if (writes_piece) bytes_written += command.bytes;
          offset_bytes = command.offset_bytes;
        }
      }
      reads += team::ones(lanes_.ballot(reads_piece));
      writes += team::ones(lanes_.ballot(writes_piece));
      failed += team::ones(lanes_.ballot(fails));
      alone |= lanes_.ballot(is_alone) << first;
      if (view_.drive.data != nullptr) {
        auto* const theirs = reinterpret_cast<std::byte*>(piece.address);
        std::byte* const ours = view_.drive.data + offset_bytes;
        scratch_.moves.append(lanes_, reads_piece || writes_piece, reads_piece ? theirs : ours,
                              reads_piece ? ours : theirs, static_cast<std::uint32_t>(piece.bytes));
      }
    }
    lanes_.sync();
    scratch_.moves.run(lanes_);
    if (view_.drive.dirty != nullptr) mark_written(*this, n, alone);
    if constexpr (media::may_lose<M>) {
      if (view_.drive.lost != nullptr) fail_lost(*this, n);
    }
    for (; alone != 0; alone &= alone - 1) {
      std::uint32_t const i = team::lowest(alone);
      pending_command const done = execute(*this, sq, entry(i), scratch_.decoded[i], scratch_.commands[i]);
      lanes_.sync();
      if (lanes_.leader()) scratch_.commands[i] = done;
      lanes_.sync();
    }
    if (reads != 0) bytes_read = lanes_.sum(bytes_read);
    if (writes != 0) bytes_written = lanes_.sum(bytes_written);
    if (!lanes_.leader()) return;
    counters& to = stats_.commands;
    if (reads != 0) {
      count<M>(to.read_commands, reads);
      count<M>(to.bytes_read, bytes_read);
    }
    if (writes != 0) {
      count<M>(to.write_commands, writes);
      count<M>(to.bytes_written, bytes_written);
    }
    if (failed != 0) count<M>(to.failed_commands, failed);
  }

  /// Executes one valid command; returns what is posted for it.
  FOREBAY_COLD static pending_command execute(dispatcher_execution self, submission_queue<M> const& sq,
                                              nvme::submission_entry const& entry, decoded_command const& command,
                                              pending_command pending) {
    using nvme::io_opcode;
    team const& lanes = self.lanes_;
    media const& drive = self.view_.drive;
    counters& counts = self.stats_.commands;
    auto const count_one = [&](std::uint64_t& counter, std::uint64_t n = 1) {
      if (lanes.leader()) count<M>(counter, n);
    };
    dma_segment* const segments = self.view_.segments + std::size_t{self.index_} * self.view_.segments_per_dispatcher;
    std::uint32_t segment_count = 0;
    if (command.transfer_bytes != 0) {
      prp_walk const walk =
          walk_prps<M>(lanes, sq.regions, entry.prp1, entry.prp2, command.transfer_bytes, sq.page_bytes, segments);
      if (walk.status_field != 0) {
        pending.status_field = walk.status_field;
        count_one(counts.failed_commands);
        return pending;
      }
      segment_count = walk.count;
    }
    switch (command.opcode) {
      case io_opcode::read:
        if ((pending.flags & pending_command::lags) == 0) {
          drive.template read<M>(lanes, command.offset_bytes, segments, segment_count);
        }
        count_one(counts.read_commands);
        count_one(counts.bytes_read, command.bytes);
        break;
      case io_opcode::write:
        if constexpr (media::may_lose<M>) {
          if (drive.template reaches_beyond_end<M>(command.offset_bytes, command.bytes) &&
              !drive.template ends_in_zeros<M>(lanes, command.offset_bytes, segments, segment_count)) {
            pending.status_field = self.refuse_beyond_end();
            count_one(counts.failed_commands);
            return pending;
          }
        }
        drive.template write<M>(lanes, command.offset_bytes, segments, segment_count);
        self.mark_one(command.offset_bytes, command.bytes);
        count_one(counts.write_commands);
        count_one(counts.bytes_written, command.bytes);
        break;
      case io_opcode::compare:
        count_one(counts.other_commands);
        if (!drive.template equal<M>(lanes, command.offset_bytes, segments, segment_count)) {
          pending.status_field =
              static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::compare_failure) | nvme::do_not_retry);
          count_one(counts.failed_commands);
        }
        break;
      case io_opcode::write_zeroes:
        drive.template zero<M>(lanes, command.offset_bytes, command.bytes);
        self.mark_one(command.offset_bytes, command.bytes);
        count_one(counts.other_commands);
        break;
      case io_opcode::dataset_management:
        count_one(counts.other_commands);
        pending.status_field = self.deallocate(entry, segments, segment_count);
        if (pending.status_field != 0) count_one(counts.failed_commands);
        break;
      default:  // flush
        count_one(counts.flush_commands);
        break;
    }
    if ((command.opcode == io_opcode::flush || command.through) && drive.sync != nullptr && pending.status_field == 0) {
      lanes.sync();  // all of what was written
      std::uint32_t ticket = 0;
      if (lanes.leader()) {
        // Release: pairs with the host's acquire of the same word; the writes before this are in place.
        ticket = simt::atomic<M, simt::scope::system>(drive.sync->requested).fetch_add(1, simt::order::release) + 1;
      }
      pending.flags = pending_command::waits_for_sync | lanes.broadcast(ticket) << 8;
    }
    if constexpr (media::may_lose<M>) {
      if (pending.status_field == 0 && drive.template has_lost<M>(command.offset_bytes, command.bytes)) {
        pending.status_field = lost_status(command.op);
        count_one(counts.failed_commands);
      }
    }
    return pending;
  }

  /// Calls `each(offset, bytes)` for the ranges that a Dataset Management command deallocates, and tells the timing
  /// model. Ends with the first status field that is not 0. The ranges are read from the client's memory twice, and
  /// checked each time: a client that changes them in between harms only itself.
  template <class Each>
  FOREBAY_DEVICE std::uint16_t for_each_range(nvme::submission_entry const& entry, dma_segment const* segments,
                                              std::uint32_t segment_count, Each&& each) {
    if ((entry.cdw11 & nvme::cdw11_attribute_deallocate) == 0) return 0;  // the other attributes are hints
    std::uint32_t const n = (entry.cdw10 & 0xff) + 1;
    media const& drive = view_.drive;
    for (bool const applies : {false, true}) {
      for (std::uint32_t i = 0; i < n; ++i) {
        nvme::dataset_management_range const range = load_range(segments, segment_count, i);
        if (range.slba > drive.blocks() || range.length_blocks > drive.blocks() - range.slba) {
          return static_cast<std::uint16_t>(nvme::status_field(nvme::generic_status::lba_out_of_range) |
                                            nvme::do_not_retry);
        }
        if (!applies) continue;
        std::uint64_t const offset = range.slba * drive.block_bytes;
        std::uint64_t const bytes = std::uint64_t{range.length_blocks} * drive.block_bytes;
        std::uint16_t const status = each(offset, bytes);
        if (status != 0) return status;
        view_.timing.unmap(lanes_, offset, bytes);
      }
    }
    return 0;
  }

 private:
  /// Marks what the writes of the batch wrote, except those in `alone`.
  FOREBAY_COLD static void mark_written(dispatcher_execution self, std::uint32_t n, std::uint32_t alone) {
    team const& lanes = self.lanes_;
    media const& drive = self.view_.drive;
    drive.template before_marks<M>(lanes);
    for (std::uint32_t i = lanes.rank(); i < n; i += lanes.count()) {
      decoded_command const& command = self.scratch_.decoded[i];
      pending_command const& pending = self.scratch_.commands[i];
      bool const wrote = command.opcode == nvme::io_opcode::write && pending.status_field == 0 &&
                         (pending.flags & pending_command::held) == 0 && (alone >> i & 1) == 0;
      if (wrote) drive.template mark<M>(command.offset_bytes, command.bytes);
    }
  }

  /// Fails the commands of the batch that touched lost pages. The commands that are executed alone find out themselves.
  FOREBAY_COLD static void fail_lost(dispatcher_execution self, std::uint32_t n) {
    for (std::uint32_t i = self.lanes_.rank(); i < n; i += self.lanes_.count()) {
      pending_command& pending = self.scratch_.commands[i];
      decoded_command const& command = self.scratch_.decoded[i];
      if (pending.status_field != 0 || !self.view_.drive.template has_lost<M>(command.offset_bytes, command.bytes)) {
        continue;
      }
      pending.status_field = lost_status(command.op);
      count<M>(self.stats_.commands.failed_commands);
    }
    self.lanes_.sync();
  }
  FOREBAY_DEVICE static std::uint16_t lost_status(operation op) {
    return nvme::status_field(op == operation::read ? nvme::media_status::unrecovered_read_error
                                                    : nvme::media_status::write_fault);
  }

  FOREBAY_DEVICE void mark_one(std::uint64_t offset, std::uint64_t bytes) const {
    view_.drive.template before_marks<M>(lanes_);
    if (lanes_.leader()) view_.drive.template mark<M>(offset, bytes);
  }

  /// Applies the fault that the plan has for entry `i`. One lane calls it.
  FOREBAY_COLD static void inject(dispatcher_execution self, std::uint32_t i) {
    timed_command& timed = self.scratch_.timed[i];
    pending_command& pending = self.scratch_.commands[i];
    counters& counts = self.stats_.commands;
    fault_plan const& plan = self.view_.options.faults;
    injected_fault const fault = plan.at(timed.sequence);
    pending.status_field = fault.status_field;
    timed.target_ps = fault.withheld ? never_ps : timed.target_ps + fault.delay_ps;
    if (fault.status_field != 0) count<M>(counts.injected_errors);
    if (fault.delay_ps != 0) count<M>(counts.injected_delays);
    if (fault.withheld) count<M>(counts.withheld);
    // A Flush has no data to move late; the host's write-back takes its time anyhow, as for what is written through.
    decoded_command const& command = self.scratch_.decoded[i];
    bool const moves = command.opcode != nvme::io_opcode::flush && !command.through;
    if (plan.late_data && moves && (fault.withheld || fault.delay_ps != 0)) pending.flags |= pending_command::held;
    if (fault.lags && command.opcode == nvme::io_opcode::read && fault.status_field == 0 && !self.has_medium()) {
      pending.flags |= pending_command::held | pending_command::lags;
    }
  }

  /// Makes ranges read as zeros.
  FOREBAY_DEVICE std::uint16_t deallocate(nvme::submission_entry const& entry, dma_segment const* segments,
                                          std::uint32_t segment_count) {
    media const& drive = view_.drive;
    return for_each_range(entry, segments, segment_count, [&](std::uint64_t offset, std::uint64_t bytes) {
      drive.template zero<M>(lanes_, offset, bytes);
      mark_one(offset, bytes);
      if constexpr (media::may_lose<M>) {
        if (drive.template has_lost<M>(offset, bytes)) return nvme::status_field(nvme::media_status::write_fault);
      }
      return std::uint16_t{0};
    });
  }

  /// Range `i` of a Dataset Management command, the same for all lanes.
  FOREBAY_DEVICE nvme::dataset_management_range load_range(dma_segment const* segments, std::uint32_t segment_count,
                                                           std::uint32_t i) const {
    nvme::dataset_management_range range;
    if (lanes_.leader()) {
      // Read as words, because PRP entries are aligned to no more than that.
      std::uint32_t words[sizeof range / 4] = {};
      std::uint64_t at = std::uint64_t{i} * sizeof range;
      std::uint32_t segment = 0;
      for (std::uint32_t& word : words) {
        while (segment + 1 < segment_count && at >= segments[segment].bytes) at -= segments[segment++].bytes;
        word = M::ld(reinterpret_cast<std::uint32_t const*>(segments[segment].address + at));
        at += 4;
      }
      std::memcpy(&range, words, sizeof range);
    }
    return lanes_.broadcast(range);
  }
};

}  // namespace forebay::emulator
