// SPDX-License-Identifier: Apache-2.0
//! \file
//! Storage as a kernel sees it: one range of bytes over one or more drives, which it reads and writes asynchronously.
#pragma once

#include <cstdint>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/detail/storage/request.hpp"
#include "forebay/status.hpp"
#include "forebay/token.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// A storage without a cache, for traits that are `uncached` or derived from it. Trivially copyable: kernels take it by
/// value. Thread-safe. A window on the storage: offset 0 is the window's first byte.
///
/// An invalid request returns a token that has already ended, with `out_of_range`, `bad_alignment`, `not_registered` or
/// `read_only`; so does a request for which no record is free, with `no_record`. If requests to the same bytes are in
/// flight at the same time, the drive carries them out in any order.
template <class M, ref_traits Traits = uncached>
class storage_ref {
  using queues_type = io_queues_ref<M, typename Traits::queue_rules>;

 public:
  using machine = M;
  using traits = Traits;
  /// The token of its requests: `token<M>`, unless the traits change `queue_rules`.
  using token_type = token<M, queues_type>;

  storage_ref() = default;
  /// Bytes [first_byte, first_byte + bytes) of the storage; both multiples of the block.
  FOREBAY_DEVICE storage_ref(queues_type queues, storage_layout const& layout, std::uint64_t first_byte,
                             std::uint64_t bytes, bool writable)
      : queues_(queues), layout_(layout), first_byte_(first_byte), bytes_(bytes), writable_(writable) {}

  /// The size of the window.
  FOREBAY_DEVICE std::uint64_t size_bytes() const { return bytes_; }
  /// Offsets and lengths of all transfers are multiples of this.
  FOREBAY_DEVICE std::uint32_t block_bytes() const { return 1u << layout_.block_shift; }

  /// Starts reading `bytes` bytes from `offset_bytes` into the start of `to`. The size is not limited: the request is
  /// split over commands and drives. May wait for room in the queues, and helps meanwhile. The buffer belongs to the
  /// request until its token has been waited for.
  FOREBAY_DEVICE token_type read_async(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return transfer(nvme::io_opcode::read, to, offset_bytes, bytes);
  }
  /// Starts writing `bytes` bytes from the start of `from` at `offset_bytes`. In all else as read_async().
  FOREBAY_DEVICE token_type write_async(buffer_ref const& from, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    if (!writable_) return token_type(fault::read_only);
    return transfer(nvme::io_opcode::write, from, offset_bytes, bytes);
  }
  /// Starts to make `bytes` bytes from `offset_bytes` read as zeros, by Write Zeroes commands, which move no data. In
  /// all else as write_async().
  FOREBAY_DEVICE token_type write_zeroes_async(std::uint64_t offset_bytes, std::uint64_t bytes) const {
    if (!writable_) return token_type(fault::read_only);
    status const refusal = range_refusal(layout_, offset_bytes, bytes, bytes_);
    if (!refusal.ok()) return token_type(refusal);
    if (bytes == 0) return token_type(status());
    std::uint64_t const first = first_byte_ + offset_bytes;
    request_type r(queues_, layout_);
    if (!r.open(commands_for(first, bytes))) return token_type(fault::no_record);
    r.write_zeroes(first, bytes);
    return r.to_token();
  }
  /// Starts to tell the drives that nobody needs `bytes` bytes from `offset_bytes` any more (Dataset Management,
  /// Deallocate). What they then read as is the drive's choice; on an emulated drive, zeros. `scratch` has 16 bytes for
  /// each drive, and belongs to the request until its token has been waited for. `out_of_range` also for 2^32 blocks or
  /// more. In all else as write_async().
  FOREBAY_DEVICE token_type deallocate_async(buffer_ref const& scratch, std::uint64_t offset_bytes,
                                             std::uint64_t bytes) const {
    if (!writable_) return token_type(fault::read_only);
    status const refusal = range_refusal(layout_, offset_bytes, bytes, bytes_);
    if (!refusal.ok()) return token_type(refusal);
    if (scratch.data() == nullptr) return token_type(fault::not_registered);
    if (scratch.size_bytes() < layout_.drive_count * sizeof(nvme::dataset_management_range) ||
        bytes >> layout_.block_shift > 0xffffffff) {
      return token_type(fault::out_of_range);
    }
    if ((scratch.bus_address(0) & 3) != 0) return token_type(fault::bad_alignment);
    if (bytes == 0) return token_type(status());
    request_type r(queues_, layout_);
    if (!r.open(layout_.drive_count)) return token_type(fault::no_record);
    if (r.deallocate(scratch, first_byte_ + offset_bytes, bytes)) r.complete_unsent();
    return r.to_token();
  }
  /// Starts to make every write that completed before the call durable, on every drive.
  FOREBAY_DEVICE token_type flush_async() const {
    request_type r(queues_, layout_);
    if (!r.open(layout_.drive_count)) return token_type(fault::no_record);
    for (std::uint32_t drive = 0; drive < layout_.drive_count; ++drive) {
      io_command command;
      command.opcode = nvme::io_opcode::flush;
      command.nsid = layout_.nsid;
      if (!r.submit(drive, command)) break;
    }
    return r.to_token();
  }

  /// Starts the transfer and waits up to the storage's default time. After `timed_out` the request goes on, detached:
  /// the buffer belongs to it until the storage has been flushed or destroyed.
  FOREBAY_DEVICE status read(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return read_async(to, offset_bytes, bytes).wait_once();
  }
  FOREBAY_DEVICE status write(buffer_ref const& from, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return write_async(from, offset_bytes, bytes).wait_once();
  }
  /// Starts a flush and waits up to the storage's `flush_timeout_ns`.
  FOREBAY_DEVICE status flush() const { return flush_async().wait_once(M::clock_ns() + queues_.flush_timeout_ns()); }

 private:
  using request_type = request<M, queues_type>;

  FOREBAY_DEVICE token_type transfer(nvme::io_opcode opcode, buffer_ref const& buffer, std::uint64_t offset_bytes,
                                     std::uint64_t bytes) const {
    status const refusal = transfer_refusal(layout_, buffer, offset_bytes, bytes, bytes_);
    if (!refusal.ok()) return token_type(refusal);
    if (bytes == 0) return token_type(status());

    std::uint64_t const first = first_byte_ + offset_bytes;
    request_type r(queues_, layout_);
    if (!r.open(commands_for(first, bytes))) return token_type(fault::no_record);
    r.transfer(opcode, buffer, first, bytes);
    return r.to_token();
  }

  /// How many commands reach bytes [first, first + bytes) of the storage.
  FOREBAY_DEVICE std::uint32_t commands_for(std::uint64_t first, std::uint64_t bytes) const {
    std::uint32_t commands = 0;
    for (std::uint64_t done = 0; done < bytes; ++commands) {
      done += request_type::piece_at(layout_, first + done, bytes - done).bytes;
    }
    return commands;
  }

  queues_type queues_;
  storage_layout layout_;
  std::uint64_t first_byte_ = 0;
  std::uint64_t bytes_ = 0;
  bool writable_ = false;
};

}  // namespace forebay
