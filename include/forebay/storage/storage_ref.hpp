// SPDX-License-Identifier: Apache-2.0
//! \file
//! Storage as a kernel sees it: one range of bytes over one or more drives, read and written asynchronously.
#pragma once

#include <cstdint>

#include "forebay/queue/io_queues_ref.hpp"
#include "forebay/queue/storage_layout.hpp"
#include "forebay/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// Trivially copyable: kernels take it by value. Thread-safe. A window on the storage: offset 0 is the window's first
/// byte.
template <class M, class Rules = queue_rules>
class storage_ref {
 public:
  using token_type = token<M, Rules>;

  storage_ref() = default;
  /// Bytes [first_byte, first_byte + bytes) of the storage; both multiples of the block.
  FOREBAY_DEVICE storage_ref(io_queues_ref<M, Rules> queues, storage_layout const& layout, std::uint64_t first_byte,
                             std::uint64_t bytes, bool writable)
      : queues_(queues), layout_(layout), first_byte_(first_byte), bytes_(bytes), writable_(writable) {}

  FOREBAY_DEVICE std::uint64_t size_bytes() const { return bytes_; }
  /// Offsets, lengths and nothing smaller: what every transfer is a multiple of.
  FOREBAY_DEVICE std::uint32_t block_bytes() const { return 1u << layout_.block_shift; }

  /// Starts reading `bytes` bytes from `offset_bytes` into the start of `to`. Of any size: split over commands and
  /// drives. May wait for room in the queues, and helps meanwhile. The buffer belongs to the request until its token
  /// was waited for.
  FOREBAY_DEVICE token_type read_async(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return transfer(nvme::io_opcode::read, to, offset_bytes, bytes);
  }
  /// Starts writing `bytes` bytes from the start of `from` at `offset_bytes`. As read_async() in all else.
  FOREBAY_DEVICE token_type write_async(buffer_ref const& from, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    if (!writable_) return token_type(fault::read_only);
    return transfer(nvme::io_opcode::write, from, offset_bytes, bytes);
  }
  /// Starts making durable, on every drive, each write that completed before the call.
  FOREBAY_DEVICE token_type flush_async() const {
    std::uint32_t const record = queues_.records().try_open(layout_.drive_count);
    if (record == slot_pool::none) return token_type(fault::no_record);
    request r{record, layout_.drive_count, home_pair<M>(layout_)};
    for (std::uint32_t drive = 0; drive < layout_.drive_count; ++drive) {
      io_command command;
      command.opcode = nvme::io_opcode::flush;
      command.nsid = layout_.nsid;
      if (!submit(r, drive, command)) break;
    }
    return to_token(r);
  }

  FOREBAY_DEVICE status read(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return read_async(to, offset_bytes, bytes).wait();
  }
  FOREBAY_DEVICE status write(buffer_ref const& from, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return write_async(from, offset_bytes, bytes).wait();
  }
  FOREBAY_DEVICE status flush() const { return flush_async().wait(); }

 private:
  /// What has been learnt of a request while it was submitted.
  struct request {
    std::uint32_t record;
    std::uint32_t unsent;
    std::uint32_t home;  ///< pair of each drive that its commands should go to
    std::uint32_t first_drive = ~0u;
    bool spilled = false;  ///< some command went to another pair than `home`
    bool several_drives = false;
  };

  FOREBAY_DEVICE token_type transfer(nvme::io_opcode opcode, buffer_ref const& buffer, std::uint64_t offset_bytes,
                                     std::uint64_t bytes) const {
    std::uint64_t const block_mask = block_bytes() - 1;
    if (buffer.data() == nullptr) return token_type(fault::not_registered);
    if (bytes > buffer.size_bytes() || offset_bytes > bytes_ || bytes > bytes_ - offset_bytes) {
      return token_type(fault::out_of_range);
    }
    // NVMe takes data from any 4-byte boundary (PRP entries, NVM Express Base 1.4, section 4.3).
    if (((offset_bytes | bytes) & block_mask) != 0 || (buffer.bus_address(0) & 3) != 0) {
      return token_type(fault::bad_alignment);
    }
    if (bytes == 0) return token_type(status());

    std::uint64_t const first = first_byte_ + offset_bytes;
    std::uint32_t commands = 0;
    for (std::uint64_t done = 0; done < bytes; ++commands) done += layout_.piece_at(first + done, bytes - done).bytes;
    std::uint32_t const record = queues_.records().try_open(commands);
    if (record == slot_pool::none) return token_type(fault::no_record);

    request r{record, commands, home_pair<M>(layout_)};
    for (std::uint64_t done = 0; done < bytes;) {
      storage_layout::piece const p = layout_.piece_at(first + done, bytes - done);
      io_command command;
      command.opcode = opcode;
      command.nsid = layout_.nsid;
      command.slba = p.byte_on_drive >> layout_.block_shift;
      command.blocks = static_cast<std::uint32_t>(p.bytes >> layout_.block_shift);
      command.bytes = p.bytes;
      command.buffer = buffer.subspan(done, p.bytes);
      if (!submit(r, p.drive, command)) break;
      done += p.bytes;
    }
    return to_token(r);
  }

  /// False if the request ends here: its record then counts the commands that were not sent as failed.
  FOREBAY_DEVICE bool submit(request& r, std::uint32_t drive, io_command const& command) const {
    pair_range const pairs{drive * layout_.pairs_per_drive, layout_.pairs_per_drive};
    std::uint32_t taken_by = r.home;
    status const submitted = queues_.submit(pairs, taken_by, command, r.record);
    if (!submitted.ok()) {
      queues_.records().complete(r.record, submitted, r.unsent);
      return false;
    }
    --r.unsent;
    if (taken_by != r.home) r.spilled = true;
    if (r.first_drive != ~0u && drive != r.first_drive) r.several_drives = true;
    if (r.first_drive == ~0u) r.first_drive = drive;
    return true;
  }

  /// A token that polls as few pairs as the request allows.
  FOREBAY_DEVICE token_type to_token(request const& r) const {
    std::uint32_t const pairs = layout_.pairs_per_drive;
    pair_range range{0, layout_.drive_count * pairs, 1};
    if (!r.spilled && r.several_drives) range = {r.home, layout_.drive_count, pairs};
    if (!r.spilled && !r.several_drives) range = {(r.first_drive == ~0u ? 0 : r.first_drive) * pairs + r.home, 1, 1};
    return token_type(queues_, r.record, range);
  }

  io_queues_ref<M, Rules> queues_;
  storage_layout layout_;
  std::uint64_t first_byte_ = 0;
  std::uint64_t bytes_ = 0;
  bool writable_ = false;
};

}  // namespace forebay
