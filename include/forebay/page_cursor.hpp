// SPDX-License-Identifier: Apache-2.0
//! \file
//! A position in an array; while it lies in a page, that page is pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// Holds the page of one element pinned, so that accesses to all elements of that page are plain loads and stores.
/// `WholeWarp`: all lanes of a full warp share one cursor. They make it, call `seek` and destroy it together, with the
/// same index. It can be neither copied nor moved. It releases its page when it seeks an element outside that page, and
/// when it is destroyed.
///
/// A thread may have several cursors. If cursors and accesses have pinned every frame that could take the page, `seek`
/// waits for them, and returns `no_frame` after the storage's default time: threads that hold cursors and seek with
/// others may wait for each other.
template <class T, class Cache, bool WholeWarp>
class page_cursor {
 public:
  using machine = typename Cache::machine;
  using value_type = std::remove_const_t<T>;

  /// `array_view::thread_page()` and `array_view::warp_page()` call this.
  FOREBAY_DEVICE page_cursor(Cache const& cache, std::uint64_t first_byte, std::uint64_t size, bool writable)
      : cache_(cache), first_byte_(first_byte), size_(size), writable_(writable) {}
  page_cursor(page_cursor const&) = delete;
  page_cursor& operator=(page_cursor const&) = delete;
  FOREBAY_DEVICE ~page_cursor() { release(); }

  /// Brings element `i` within reach. Waits if its page has to be read, or finds no frame. Returns success,
  /// `out_of_range`, `read_only`, `bad_alignment` (for an element that lies in two pages), `no_frame`, `timed_out`, or
  /// the drive's status.
  FOREBAY_DEVICE status seek(std::uint64_t i) {
    if (i - first_ < end_ - first_) return {};
    return move_to<false>(i);
  }
  /// The same for a caller that next needs the elements [i, stop). A cursor holds one page, so it makes no difference.
  FOREBAY_DEVICE status seek(std::uint64_t i, std::uint64_t /*stop*/) { return seek(i); }
  /// As seek(), but does not read the page if it lies wholly in the array. The caller writes every element of [first(),
  /// end()), and then calls release() or seeks with this cursor. Until then it waits for nothing and does not touch the
  /// page in any other way; every other access to the page waits. Elements that it does not write become undefined.
  FOREBAY_DEVICE status seek_overwrite(std::uint64_t i)
    requires(!std::is_const_v<T>)
  {
    if (i - first_ < end_ - first_) return {};
    return move_to<true>(i);
  }
  /// The elements [first(), end()) are within reach: those that lie wholly in the page.
  FOREBAY_DEVICE std::uint64_t first() const { return first_; }
  FOREBAY_DEVICE std::uint64_t end() const { return end_; }

  /// Element `i`, which must be within reach.
  FOREBAY_DEVICE T& operator[](std::uint64_t i) const { return data_[i - first_]; }
  /// The elements within reach, from `first()` on.
  FOREBAY_DEVICE T* data() const { return data_; }

  /// Unpins the page.
  FOREBAY_DEVICE void release() {
    if (end_ == first_) return;
    if constexpr (WholeWarp) {
      // All lanes are done with the page before one of them unpins it.
      machine::this_warp().sync();
      if (machine::this_warp().thread_rank() == 0) let_go();
    } else {
      let_go();
    }
    end_ = first_ = 0;
  }

 private:
  FOREBAY_DEVICE void let_go() {
    if (overwrites_) cache_.publish(frame_);
    cache_.unpin(frame_);
  }
  template <bool Overwrites>
  FOREBAY_DEVICE status move_to(std::uint64_t i) {
    release();
    if (i >= size_) return fault::out_of_range;
    if (!std::is_const_v<T> && !writable_) return fault::read_only;
    std::uint32_t const page_bytes = 1u << cache_.page_shift();
    std::uint64_t const byte = first_byte_ + i * sizeof(T);
    std::uint64_t const page = byte >> cache_.page_shift();
    std::uint64_t const page_begin = page << cache_.page_shift();
    if (byte + sizeof(T) > page_begin + page_bytes) return fault::bad_alignment;
    std::uint64_t const before = page_begin > first_byte_ ? (page_begin - first_byte_ + sizeof(T) - 1) / sizeof(T) : 0;
    std::uint64_t const after = (page_begin + page_bytes - first_byte_) / sizeof(T);
    page_pin pinned;
    access how = std::is_const_v<T> ? access::read : access::write;
    if constexpr (Overwrites) {
      bool const covers = page_begin >= first_byte_ && (page_begin - first_byte_) % sizeof(T) == 0 &&
                          page_bytes % sizeof(T) == 0 && after <= size_;
      if (covers) how = access::overwrite;
    }
    if constexpr (WholeWarp) {
      auto const warp = machine::this_warp();
      // Lane 0 pins nothing until all lanes have come: those that have not may be waiting for a frame themselves.
      warp.sync();
      if (warp.thread_rank() == 0) pinned = cache_.pin(page, how, when_full::wait);
      // What lane 0 has acquired, all lanes now have.
      warp.sync();
      pinned = warp.shfl(pinned, 0);
    } else {
      pinned = cache_.pin(page, how, when_full::wait);
    }
    if (!pinned.outcome.ok()) return pinned.outcome;
    frame_ = pinned.frame;
    overwrites_ = Overwrites && how == access::overwrite;
    first_ = before;
    end_ = after < size_ ? after : size_;
    data_ = reinterpret_cast<T*>(cache_.frame_data(pinned.frame) + (first_byte_ + before * sizeof(T) - page_begin));
    return {};
  }

  Cache const& cache_;
  std::uint64_t first_byte_;
  std::uint64_t size_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
  T* data_ = nullptr;
  std::uint32_t frame_ = 0;
  bool overwrites_ = false;  ///< the page is published when the cursor releases it
  bool writable_;
};

}  // namespace forebay
