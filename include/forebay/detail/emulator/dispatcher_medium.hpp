// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a dispatcher hands commands to the drive's medium, and what it does when they come back.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/dispatcher_execution.hpp"
#include "forebay/detail/emulator/medium_commands.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Executes the commands of a drive whose bytes are in a medium. A command stays in its pending set, due never, until
/// the medium is done with it. Then it becomes due at the time that the timing model gave it. All of this exists only
/// on machines whose units are single threads (`reaches_files`).
template <class M>
class dispatcher_medium : protected dispatcher_execution<M> {
  using base = dispatcher_execution<M>;

 protected:
  using base::base;
  using base::has_medium;
  using base::index_;
  using base::lanes_;
  using base::now_ps_;
  using base::stats_;
  using base::unit_;
  using base::view_;

  medium_commands& in_medium() const { return *view_.in_medium[index_]; }

  /// Hands over the command in a slot of the pending set of the queue at `at`.
  void hand_over(std::uint32_t at, std::uint32_t slot, nvme::submission_entry const& entry,
                 decoded_command const& command, std::uint64_t arrival_ps, std::uint64_t target_ps) {
    submission_queue<M>& sq = unit_.queues[at];
    medium_command& mine = in_medium().begin(at, slot);
    mine.opcode = command.opcode;
    mine.bytes = command.bytes;
    mine.through = command.through;
    mine.arrival_ps = arrival_ps;
    mine.target_ps = target_ps;
    dma_segment* const segments = view_.segments + std::size_t{index_} * view_.segments_per_dispatcher;
    std::uint32_t count = 0;
    if (command.transfer_bytes != 0) {
      if (one_piece<M>(sq.regions, entry.prp1, entry.prp2, command.transfer_bytes, sq.page_bytes, segments[0])) {
        count = 1;
      } else {
        prp_walk const walk =
            walk_prps<M>(lanes_, sq.regions, entry.prp1, entry.prp2, command.transfer_bytes, sq.page_bytes, segments);
        mine.status_field = walk.status_field;
        if (walk.status_field != 0) return;
        count = walk.count;
      }
    }
    using nvme::io_opcode;
    switch (command.opcode) {
      case io_opcode::read:
      case io_opcode::write:
      case io_opcode::compare:
        if (command.opcode == io_opcode::write &&
            view_.drive.template reaches_beyond_end<M>(command.offset_bytes, command.bytes) &&
            !view_.drive.template ends_in_zeros<M>(lanes_, command.offset_bytes, segments, count)) {
          mine.status_field = this->refuse_beyond_end();
          return;
        }
        mine.segments.assign(segments, segments + count);
        in_medium().add_transfer(mine, command.offset_bytes);
        break;
      case io_opcode::write_zeroes:
        in_medium().add(mine, medium_operation::zero, command.offset_bytes, command.bytes);
        break;
      case io_opcode::dataset_management:
        mine.status_field =
            this->for_each_range(entry, segments, count, [&](std::uint64_t offset, std::uint64_t bytes) {
              in_medium().add(mine, medium_operation::zero, offset, bytes);
              return std::uint16_t{0};
            });
        break;
      default:
        in_medium().add(mine, medium_operation::durable, 0, 0);
        break;
    }
  }

  /// Begins what was handed over, and makes due what the medium is done with. Returns whether there was any of that.
  bool collect_from_medium() {
    return in_medium().collect([this](medium_command const& command) {
      std::uint16_t status = command.status_field;
      if (status == 0 && command.opcode == nvme::io_opcode::compare && !is_same(command)) {
        status =
            static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::compare_failure) | nvme::do_not_retry);
      }
      count_done(command, status);
      unit_.queues[command.place].pending.change(lanes_, command.slot,
                                                 [&](std::uint64_t& due_ps, pending_command& pending) {
                                                   // A command that was aborted meanwhile has its status.
                                                   if (pending.status_field == 0) pending.status_field = status;
                                                   pending.flags &= ~pending_command::in_medium;
                                                   due_ps = command.target_ps;
                                                 });
    });
  }

 private:
  /// Whether the client's memory holds what was read into the command's copy.
  bool is_same(medium_command const& command) const {
    std::uint32_t const* ours = command.copy.data();
    for (dma_segment const& theirs : command.segments) {
      // PRP entries are aligned to four bytes, and lengths are multiples of a block.
      auto const* const words = reinterpret_cast<std::uint32_t const*>(theirs.address);
      for (std::uint64_t i = 0; i < theirs.bytes / 4; ++i) {
        if (M::ld(words + i) != *ours++) return false;
      }
    }
    return true;
  }

  void count_done(medium_command const& command, std::uint16_t status) {
    using nvme::io_opcode;
    counters& to = stats_.commands;
    // As where units move the bytes themselves: a Compare that finds a difference and a Flush that fails are counted
    // twice.
    bool const differs = command.opcode == io_opcode::compare && command.status_field == 0;
    if (status != 0) count<M>(to.failed_commands);
    if (status == 0 || differs || command.opcode == io_opcode::flush) {
      switch (command.opcode) {
        case io_opcode::read:
          count<M>(to.read_commands);
          count<M>(to.bytes_read, command.bytes);
          break;
        case io_opcode::write:
          count<M>(to.write_commands);
          count<M>(to.bytes_written, command.bytes);
          break;
        case io_opcode::flush:
          count<M>(to.flush_commands);
          break;
        default:
          count<M>(to.other_commands);
          break;
      }
    }
    stats_.processing.template record_one<M>((this->since_epoch_ps(M::clock_ns()) - command.arrival_ps) / 1000);
  }
};

}  // namespace forebay::emulator
