// SPDX-License-Identifier: Apache-2.0
//! \file
//! Several consecutive pages of an array, which a warp holds at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// Up to 32 consecutive pages that a full warp holds: the counterpart of a warp's `page_cursor` for warps that go
/// through ranges of many pages. Each lane pins a different page, so that all lookups together take as long as one, and
/// so do the reads of missing pages. All lanes of a full warp share one window. They make it, call `seek` and
/// `release`, and destroy it together, with the same arguments. Not copyable.
///
/// One page is *within reach* at a time. Moving to another page that the window holds costs next to nothing.
///
/// The window takes pages beyond the one that is asked for only if there is room for them. It waits for the pins of
/// others only after it has released all of its own, so warps with one window each do not wait for each other in a
/// circle. Warps with more than one window, or with other cursors, may, and `seek` then returns `no_frame` after the
/// storage's default time. In an array that can be written, every page that the window takes counts as written.
template <class T, class Cache>
class page_window {
 public:
  using machine = typename Cache::machine;
  using value_type = std::remove_const_t<T>;

  /// A window of at most `pages` pages. Each lane holds one, so there are no more pages than a warp has lanes; 0 counts
  /// as 1.
  FOREBAY_DEVICE page_window(Cache const& cache, std::uint64_t first_byte, std::uint64_t size, bool writable,
                             std::uint32_t pages)
      : cache_(cache), first_byte_(first_byte), size_(size), pages_(pages), writable_(writable) {}
  page_window(page_window const&) = delete;
  page_window& operator=(page_window const&) = delete;
  FOREBAY_DEVICE ~page_window() { release(); }

  /// Brings element `i` within reach, and returns a status as a cursor does. Waits if its page has to be read.
  FOREBAY_DEVICE status seek(std::uint64_t i) { return seek(i, size_); }
  /// The same for a warp that next needs the elements [i, stop). If the window does not hold the page of `i`, it
  /// releases the pages that it holds, and takes only pages of those elements.
  FOREBAY_DEVICE status seek(std::uint64_t i, std::uint64_t stop) {
    if (i - first_ < end_ - first_) return {};
    std::uint64_t const byte = first_byte_ + i * sizeof(T);
    std::uint64_t const page = byte >> cache_.page_shift();
    if (i >= size_) return fault::out_of_range;
    if (byte + sizeof(T) > (page + 1) << cache_.page_shift()) return fault::bad_alignment;
    if (page - first_page_ >= held_) {
      status const outcome = move_to(page, i, stop);
      if (!outcome.ok()) return outcome;
    }
    show(page);
    return {};
  }
  /// The elements [first(), end()) are within reach: those that lie wholly in the page.
  FOREBAY_DEVICE std::uint64_t first() const { return first_; }
  FOREBAY_DEVICE std::uint64_t end() const { return end_; }

  /// Element `i`, which must be within reach.
  FOREBAY_DEVICE T& operator[](std::uint64_t i) const { return data_[i - first_]; }
  /// The elements within reach, from `first()` on.
  FOREBAY_DEVICE T* data() const { return data_; }

  /// Releases all pages.
  FOREBAY_DEVICE void release() {
    if (held_ == 0) return;
    auto const warp = machine::this_warp();
    // All lanes are done with the pages before they are unpinned.
    warp.sync();
    if (warp.thread_rank() < held_) cache_.unpin(frame_);
    held_ = 0;
    end_ = first_ = 0;
  }

 private:
  /// Holds `page`, that of element `i`, and those after it up to element `stop`.
  FOREBAY_DEVICE status move_to(std::uint64_t page, std::uint64_t i, std::uint64_t stop) {
    release();
    if (!std::is_const_v<T> && !writable_) return fault::read_only;
    constexpr access how = std::is_const_v<T> ? access::read : access::write;
    if (stop > size_) stop = size_;
    auto const warp = machine::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint64_t const pages =
        stop <= i ? 1 : ((first_byte_ + stop * sizeof(T) - 1) >> cache_.page_shift()) - page + 1;
    std::uint32_t wanted = pages_ < warp.size() ? pages_ : warp.size();
    if (pages < wanted) wanted = static_cast<std::uint32_t>(pages);
    if (wanted == 0) wanted = 1;
    page_pin pinned;
    // No lane pins anything until all lanes have come: those that have not may be waiting for a frame themselves.
    warp.sync();
    if (lane < wanted) pinned = cache_.pin(page + lane, how, when_full::fail);
    // What a lane has acquired, all lanes now have.
    warp.sync();
    bool const has = lane < wanted && pinned.outcome.ok();
    std::uint32_t const failed = ~warp.ballot(has);
    held_ = failed == 0 ? warp.size() : simt::lowest_bit(failed);
    if (has && lane >= held_) cache_.unpin(pinned.frame);
    if (held_ == 0) {
      if (warp.shfl(pinned.outcome, 0).kind() == fault::no_frame) {
        // After this, no lane has a page pinned for which another thread may be waiting.
        warp.sync();
        if (lane == 0) pinned = cache_.pin_missing(page, how, when_full::wait);
        warp.sync();
      }
      status const outcome = warp.shfl(pinned.outcome, 0);
      if (!outcome.ok()) return outcome;
      held_ = 1;
    }
    frame_ = pinned.frame;
    first_page_ = page;
    return {};
  }

  /// Brings a page that the window holds within reach.
  FOREBAY_DEVICE void show(std::uint64_t page) {
    std::uint32_t const frame = machine::this_warp().shfl(frame_, static_cast<std::uint32_t>(page - first_page_));
    std::uint64_t const page_begin = page << cache_.page_shift();
    std::uint64_t const page_end = (page + 1) << cache_.page_shift();
    std::uint64_t const before = page_begin > first_byte_ ? (page_begin - first_byte_ + sizeof(T) - 1) / sizeof(T) : 0;
    std::uint64_t const after = (page_end - first_byte_) / sizeof(T);
    first_ = before;
    end_ = after < size_ ? after : size_;
    data_ = reinterpret_cast<T*>(cache_.frame_data(frame) + (first_byte_ + before * sizeof(T) - page_begin));
  }

  Cache const& cache_;
  std::uint64_t first_byte_;
  std::uint64_t size_;
  std::uint64_t first_page_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
  T* data_ = nullptr;
  std::uint32_t frame_ = 0;  ///< of the lane's page
  std::uint32_t held_ = 0;   ///< how many pages the window holds: lane k < `held_` has one
  std::uint32_t pages_;
  bool writable_;
};

}  // namespace forebay
