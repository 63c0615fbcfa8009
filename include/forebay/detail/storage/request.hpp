// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a transfer of any size is split into commands on drives that share one completion record.
#pragma once

#include <cstdint>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"
#include "forebay/token.hpp"

namespace forebay {

/// The reason why `bytes` bytes at `offset_bytes` of a window of `window_bytes` are not blocks of it; success: they
/// are.
FOREBAY_DEVICE status range_refusal(storage_layout const& layout, std::uint64_t offset_bytes, std::uint64_t bytes,
                                    std::uint64_t window_bytes) {
  if (offset_bytes > window_bytes || bytes > window_bytes - offset_bytes) return fault::out_of_range;
  std::uint64_t const block_mask = (std::uint64_t{1} << layout.block_shift) - 1;
  if (((offset_bytes | bytes) & block_mask) != 0) return fault::bad_alignment;
  return {};
}

/// The reason why `bytes` bytes at `offset_bytes` of a window of `window_bytes` cannot be transferred from or to the
/// start of `buffer`; success: they can.
FOREBAY_DEVICE status transfer_refusal(storage_layout const& layout, buffer_ref const& buffer,
                                       std::uint64_t offset_bytes, std::uint64_t bytes, std::uint64_t window_bytes) {
  if (buffer.data() == nullptr) return fault::not_registered;
  if (bytes > buffer.size_bytes()) return fault::out_of_range;
  status const range = range_refusal(layout, offset_bytes, bytes, window_bytes);
  if (!range.ok()) return range;
  // NVMe transfers data from any 4-byte boundary (PRP entries, NVM Express Base 1.4, section 4.3).
  if ((buffer.bus_address(0) & 3) != 0) return fault::bad_alignment;
  return {};
}

/// A request while one thread submits it.
template <class M, class Queues>
class request {
 public:
  using token_type = token<M, Queues>;

  FOREBAY_DEVICE request(Queues const& queues, storage_layout const& layout)
      : queues_(queues), layout_(layout), home_(home_pair<M>(layout.pairs_per_drive)) {}

  /// What one command of a request can carry.
  FOREBAY_DEVICE static storage_layout::piece piece_at(storage_layout const& layout, std::uint64_t at,
                                                       std::uint64_t left) {
    return layout.piece_by<typename Queues::rules_type>(at, left);
  }

  /// `commands`: how many commands will be submitted at most. False: the pool of records is empty.
  FOREBAY_DEVICE bool open(std::uint32_t commands) {
    record_ = queues_.records().try_open(commands);
    unsent_ = commands;
    return record_ != slot_pool::none;
  }

  /// Transfers bytes [first_byte, first_byte + bytes) of the storage, from or to the start of `buffer`. False as for
  /// submit().
  FOREBAY_DEVICE bool transfer(nvme::io_opcode opcode, buffer_ref const& buffer, std::uint64_t first_byte,
                               std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      storage_layout::piece const p = piece_at(layout_, first_byte + done, bytes - done);
      io_command command;
      command.opcode = opcode;
      command.nsid = layout_.nsid;
      command.slba = p.byte_on_drive >> layout_.block_shift;
      command.blocks = static_cast<std::uint32_t>(p.bytes >> layout_.block_shift);
      command.bytes = p.bytes;
      command.buffer = buffer.subspan(done, p.bytes);
      if (!submit(p.drive, command)) return false;
      done += p.bytes;
    }
    return true;
  }

  /// Makes bytes [first_byte, first_byte + bytes) of the storage read as zeros. False as for submit().
  FOREBAY_DEVICE bool write_zeroes(std::uint64_t first_byte, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      storage_layout::piece const p = piece_at(layout_, first_byte + done, bytes - done);
      io_command command;
      command.opcode = nvme::io_opcode::write_zeroes;
      command.nsid = layout_.nsid;
      command.slba = p.byte_on_drive >> layout_.block_shift;
      command.blocks = static_cast<std::uint32_t>(p.bytes >> layout_.block_shift);
      if (!submit(p.drive, command)) return false;
      done += p.bytes;
    }
    return true;
  }

  /// Deallocates bytes [first_byte, first_byte + bytes) of the storage, by at most one command on each drive. The range
  /// of drive d goes to the d-th 16 bytes of `ranges`. False as for submit().
  FOREBAY_DEVICE bool deallocate(buffer_ref const& ranges, std::uint64_t first_byte, std::uint64_t bytes) {
    constexpr std::uint64_t range_bytes = sizeof(nvme::dataset_management_range);
    for (std::uint32_t drive = 0; drive < layout_.drive_count; ++drive) {
      storage_layout::piece const p = layout_.part_on(drive, first_byte, bytes);
      if (p.bytes == 0) continue;
      io_command command;
      command.opcode = nvme::io_opcode::dataset_management;
      command.nsid = layout_.nsid;
      command.slba = std::uint64_t{nvme::cdw11_attribute_deallocate} << 32;  // and one range
      command.bytes = range_bytes;
      command.buffer = ranges.subspan(drive * range_bytes, range_bytes);
      std::uint64_t const slba = p.byte_on_drive >> layout_.block_shift;
      auto* const words = reinterpret_cast<std::uint32_t*>(command.buffer.data());
      M::st(words, 0u);
      M::st(words + 1, static_cast<std::uint32_t>(p.bytes >> layout_.block_shift));
      M::st(words + 2, static_cast<std::uint32_t>(slba));
      M::st(words + 3, static_cast<std::uint32_t>(slba >> 32));
      if (!submit(drive, command)) return false;
    }
    return true;
  }

  /// Waits for room in the queues. False if the request ends here: its record then counts the commands that were not
  /// sent as failed.
  FOREBAY_DEVICE bool submit(std::uint32_t drive, io_command const& command) {
    pair_range const pairs = pairs_of(drive);
    std::uint32_t const home = home_among(pairs);
    std::uint32_t taken_by = home;
    status const submitted = queues_.submit(pairs, taken_by, command, record_);
    if (!submitted.ok()) {
      queues_.records().complete(record_, submitted, unsent_);
      unsent_ = 0;
      return false;
    }
    --unsent_;
    if (taken_by != home) spilled_ = true;
    if (first_drive_ != ~0u && drive != first_drive_) several_drives_ = true;
    if (first_drive_ == ~0u) first_drive_ = drive;
    return true;
  }

  /// Called when fewer commands were submitted than open() was told: the others count as completed.
  FOREBAY_DEVICE void complete_unsent() {
    if (unsent_ != 0) queues_.records().complete(record_, status(), unsent_);
    unsent_ = 0;
  }

  /// A token that polls as few pairs as the request allows.
  FOREBAY_DEVICE token_type to_token() const {
    pair_range const pairs = pairs_of(first_drive_ == ~0u ? 0 : first_drive_);
    pair_range range{0, Queues::rules_type::even_pairs ? layout_.drive_count * pairs.count : queues_.pair_count(), 1};
    if (!spilled_ && several_drives_ && (Queues::rules_type::even_pairs || layout_.drive_pairs == nullptr)) {
      range = {home_among(pairs), layout_.drive_count, pairs.count};
    }
    if (!spilled_ && !several_drives_) range = {pairs.first + home_among(pairs), 1, 1};
    return token_type(queues_, record_, range);
  }

 private:
  FOREBAY_DEVICE pair_range pairs_of(std::uint32_t drive) const {
    if constexpr (Queues::rules_type::even_pairs) {
      return {drive * layout_.pairs_per_drive, layout_.pairs_per_drive};
    } else {
      return layout_.pairs_of(drive);
    }
  }
  FOREBAY_DEVICE std::uint32_t home_among(pair_range pairs) const {
    if constexpr (Queues::rules_type::even_pairs) {
      return home_;
    } else {
      return home_pair<M>(pairs.count);
    }
  }

  Queues const& queues_;
  storage_layout const& layout_;
  std::uint32_t home_;  ///< number of the pair, within each drive, to which its commands go first, if all drives have
                        ///< the same number of pairs
  std::uint32_t record_ = slot_pool::none;
  std::uint32_t unsent_ = 0;
  std::uint32_t first_drive_ = ~0u;
  bool spilled_ = false;  ///< some command went to another pair than its home
  bool several_drives_ = false;
};

}  // namespace forebay
