// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array on drives that is read past the cache: each cursor reads into memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/common/latency_histogram.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::apps {

/// What the cursors of one thread read.
struct direct_reads {
  latency_summary latency;  ///< of each read that succeeded: from the call that begins it until the thread sees its end
  std::uint64_t bytes = 0;
};

/// Trivially copyable: kernels take it by value. `Storage` is a `storage_ref` or a model of its `read_async`; `Buffer`
/// a `buffer_ref`. The size of `T` divides the block of the drives.
///
/// Each thread of a grid has one *piece* of the buffer, that with its number. A piece is as long as a page of the view.
/// A cursor reads the blocks that hold the elements which it is asked for, and no others: a thread's cursor with one
/// request, and a warp's with one request for each piece. So the grid has no more threads than there are pieces, and a
/// thread has one cursor at a time. What is read twice is read from the drives twice.
///
/// If it `Counts`, it records every read.
template <class T, class Storage, class Buffer, bool Counts = false>
class direct_view {
 public:
  using machine = typename Storage::machine;
  using value_type = T;

  /// Holds up to a page at a time; for a `WholeWarp`, up to as many as it was asked for, 32 at most. Must not outlive
  /// the view.
  template <bool WholeWarp>
  class cursor {
   public:
    FOREBAY_DEVICE cursor(direct_view const& view, std::uint32_t pages) : view_(view), pages_(pages) {
      std::uint32_t const lanes = WholeWarp ? simt::count_bits(machine::this_warp().mask()) : 1;
      if (pages_ > lanes) pages_ = lanes;
      if (pages_ == 0) pages_ = 1;
    }
    cursor(cursor const&) = delete;
    cursor& operator=(cursor const&) = delete;

    /// As any cursor. Reads no block behind element `stop`. `timed_out` if the reads have not ended within the view's
    /// time; the piece then belongs to the read until the storage has been drained.
    FOREBAY_DEVICE status seek(std::uint64_t i, std::uint64_t stop) {
      if (i - first_ < end_ - first_) return {};
      first_ = end_ = 0;
      if (i >= view_.size_) return fault::out_of_range;
      if (stop <= i) stop = i + 1;
      if (stop > view_.size_) stop = view_.size_;
      std::uint64_t const mask = view_.block_bytes_ - 1;
      std::uint64_t const begin = i * sizeof(T) & ~mask;
      std::uint64_t end = (stop * sizeof(T) + mask) & ~mask;
      std::uint64_t const room = std::uint64_t{pages_} * view_.page_bytes_;
      if (end - begin > room) end = begin + room;

      std::uint32_t const rank = machine::thread_rank();
      std::uint32_t const lane = WholeWarp ? machine::this_warp().thread_rank() : 0;
      std::uint64_t const mine = begin + lane * std::uint64_t{view_.page_bytes_};
      // All lanes are done with what they have read before.
      if constexpr (WholeWarp) machine::this_warp().sync();
      status outcome;
      if (mine < end) outcome = view_.read(rank, mine, end - mine < view_.page_bytes_ ? end - mine : view_.page_bytes_);
      if constexpr (WholeWarp) {
        // What each lane has read, all lanes now have.
        machine::this_warp().sync();
        std::uint32_t const failed = machine::this_warp().ballot(!outcome.ok());
        if (failed != 0) outcome = machine::this_warp().shfl(outcome, simt::lowest_bit(failed));
      }
      if (!outcome.ok()) return outcome;
      first_ = begin / sizeof(T);
      end_ = end / sizeof(T) < view_.size_ ? end / sizeof(T) : view_.size_;
      data_ = reinterpret_cast<T const*>(view_.piece(rank - lane).data());
      return {};
    }
    FOREBAY_DEVICE std::uint64_t first() const { return first_; }
    FOREBAY_DEVICE std::uint64_t end() const { return end_; }
    FOREBAY_DEVICE T const& operator[](std::uint64_t i) const { return data_[i - first_]; }

   private:
    direct_view const& view_;
    std::uint32_t pages_;
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
    T const* data_ = nullptr;
  };

  direct_view() = default;
  /// `size` elements from the first byte of `storage` on. `block_bytes` is that of the drives, `page_bytes` a multiple
  /// of it; both are powers of two. A thread gives a read up after `timeout_ns`. If the view `Counts`: `reads` has one
  /// element for each piece, and `latency_bins` has `latency_bins::count`, all zeroed.
  FOREBAY_DEVICE direct_view(Storage const& storage, Buffer const& buffer, std::uint64_t size,
                             std::uint32_t block_bytes, std::uint32_t page_bytes, std::uint64_t timeout_ns,
                             direct_reads* reads = nullptr, std::uint64_t* latency_bins = nullptr)
      : storage_(storage),
        buffer_(buffer),
        size_(size),
        timeout_ns_(timeout_ns),
        reads_(reads),
        latency_bins_(latency_bins),
        block_bytes_(block_bytes),
        page_bytes_(page_bytes) {}

  FOREBAY_DEVICE std::uint64_t size() const { return size_; }
  FOREBAY_DEVICE cursor<false> thread_page() const& { return {*this, 1}; }
  FOREBAY_DEVICE cursor<true> warp_page() const& { return {*this, 1}; }
  FOREBAY_DEVICE cursor<true> warp_pages(std::uint32_t pages) const& { return {*this, pages}; }
  void thread_page() const&& = delete;
  void warp_page() const&& = delete;
  void warp_pages(std::uint32_t pages) const&& = delete;
  /// Nothing would hold what is read ahead.
  FOREBAY_DEVICE bool prefetch(std::uint64_t) const { return false; }

 private:
  FOREBAY_DEVICE Buffer piece(std::uint32_t number) const {
    return buffer_.subspan(std::uint64_t{number} * page_bytes_, page_bytes_);
  }

  /// Reads whole blocks into the piece of thread `rank`, which is the caller.
  FOREBAY_DEVICE status read(std::uint32_t rank, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    std::uint64_t const begun_ns = machine::clock_ns();
    std::uint64_t const deadline_ns = begun_ns + timeout_ns_;
    status outcome;
    for (;;) {
      auto token = storage_.read_async(piece(rank), offset_bytes, bytes);
      outcome = token.wait(deadline_ns);
      if (outcome == status(fault::timed_out)) token.detach();
      if (outcome != status(fault::busy) && outcome != status(fault::no_record)) break;
      std::uint64_t const now_ns = machine::clock_ns();
      if (now_ns >= deadline_ns) break;
      // There was no room: reads of others end meanwhile, and then it is begun again.
      std::uint64_t const again_ns = now_ns + 1000;
      (void)machine::wait_until([] { return false; }, again_ns < deadline_ns ? again_ns : deadline_ns);
    }
    if constexpr (Counts) {
      if (outcome.ok()) {
        latency_recorder<machine> latency(latency_bins_, reads_[rank].latency);
        latency.add(machine::clock_ns() - begun_ns);
        reads_[rank].latency = latency.summary();
        reads_[rank].bytes += bytes;
      }
    }
    return outcome;
  }

  Storage storage_;
  Buffer buffer_;
  std::uint64_t size_ = 0;
  std::uint64_t timeout_ns_ = 0;
  direct_reads* reads_ = nullptr;
  std::uint64_t* latency_bins_ = nullptr;
  std::uint32_t block_bytes_ = 1;
  std::uint32_t page_bytes_ = 1;
};

}  // namespace forebay::apps
