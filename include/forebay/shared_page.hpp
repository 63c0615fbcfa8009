// SPDX-License-Identifier: Apache-2.0
//! \file
//! A user's buffer that serves as a page of a storage while it is shared.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// What `storage_ref::share()` returns: one pinned page. Every thread of every kernel finds its bytes where data()
/// points, whichever path the thread takes. Trivially copyable, but all copies stand for one pin: exactly one copy
/// calls take_back() or leave().
template <class Cache>
class [[nodiscard]] shared_page {
 public:
  using machine = typename Cache::machine;

  shared_page() = default;
  /// `storage_ref::share()` calls this.
  FOREBAY_DEVICE shared_page(Cache const& cache, std::uint64_t page, page_share const& shared, bool writable)
      : cache_(cache), page_(page), shared_(shared), writable_(writable) {}

  /// Why there is no page: `read_only`, `not_registered`, `bad_alignment`, `out_of_range` or `no_frame`; success if
  /// there is one.
  FOREBAY_DEVICE status outcome() const { return shared_.pinned.outcome; }
  /// Whether the page lies in the buffer that was shared. If not, another frame held the page already, or the sharing
  /// policy or the lack of a user frame sent the page to the cache, or there is no page; the buffer is then the
  /// caller's.
  FOREBAY_DEVICE bool is_own() const { return shared_.ticket != 0; }
  /// The page's bytes, once wait() has returned success.
  FOREBAY_DEVICE std::byte* data() const { return cache_.frame_data(shared_.pinned.frame); }

  /// Waits until the page has been read, up to the storage's default time. After a failure there is no page; the caller
  /// still calls take_back().
  FOREBAY_DEVICE status wait() { return wait(cache_.default_deadline_ns()); }
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (!outcome().ok()) return outcome();
    return cache_.wait_for_shared(page_, shared_, deadline_ns);
  }
  /// Says that the page is about to be written. Call it before writing: unless it returns success, the writes are lost.
  /// `read_only`: the page must not be written.
  FOREBAY_DEVICE status will_write() const {
    if (!outcome().ok()) return outcome();
    if (!writable_) return fault::read_only;
    cache_.mark_written(shared_.pinned.frame);
    return {};
  }

  /// Ends the sharing, and waits until the buffer is the caller's again: the page has been written back if it was
  /// written, and no other thread has it pinned. After `timed_out`, or a status of the write-back, the buffer is still
  /// the page's.
  FOREBAY_DEVICE status take_back() { return take_back(cache_.default_deadline_ns()); }
  FOREBAY_DEVICE status take_back(std::uint64_t deadline_ns) {
    if (is_own()) return cache_.take_back(shared_.pinned.frame, shared_.ticket, deadline_ns);
    leave();
    return {};
  }
  /// Ends the sharing without waiting. The buffer stays the page's until `storage::take_back()` on the host. The same
  /// holds if a kernel ends without having called either.
  FOREBAY_DEVICE void leave() {
    if (is_own()) {
      cache_.let_go(shared_.pinned.frame, shared_.ticket);
    } else if (outcome().ok()) {
      cache_.unpin(shared_.pinned.frame);
    }
    shared_.pinned.outcome = fault::no_frame;
  }

 private:
  Cache cache_;
  std::uint64_t page_ = 0;
  page_share shared_{{~0u, fault::no_frame}, 0};
  bool writable_ = false;
};

}  // namespace forebay
