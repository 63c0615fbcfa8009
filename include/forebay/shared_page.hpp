// SPDX-License-Identifier: Apache-2.0
//! \file
//! A user's buffer that is a page of a storage while it is shared.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// What `storage_ref::share()` returns: one page, pinned, whose bytes every thread of every kernel finds where
/// data() points, whichever path it takes. Trivially copyable, but there is one pin behind all copies: exactly one of
/// them calls take_back() or leave().
template <class Cache>
class [[nodiscard]] shared_page {
 public:
  using machine = typename Cache::machine;

  shared_page() = default;
  FOREBAY_DEVICE shared_page(Cache const& cache, std::uint64_t page, page_share const& shared, bool writable)
      : cache_(cache), page_(page), shared_(shared), writable_(writable) {}

  /// Why there is no page; success: there is one.
  FOREBAY_DEVICE status outcome() const { return shared_.pinned.outcome; }
  /// Whether the buffer that was shared is where the page lies. If not, another frame held the page already, the
  /// sharing policy or the lack of a user frame sent it to the cache, or there is no page; the buffer is then the
  /// caller's.
  FOREBAY_DEVICE bool is_own() const { return shared_.ticket != 0; }
  /// The page's bytes, once wait() has returned success.
  FOREBAY_DEVICE std::byte* data() const { return cache_.frame_data(shared_.pinned.frame); }

  /// Waits until the page has been read; for the storage's default time. After a failure there is no page; take_back()
  /// is still called.
  FOREBAY_DEVICE status wait() { return wait(cache_.default_deadline_ns()); }
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (!outcome().ok()) return outcome();
    return cache_.wait_for_shared(page_, shared_, deadline_ns);
  }
  /// The page is about to be written. To be called before the writing, which is lost unless this returns success.
  FOREBAY_DEVICE status will_write() const {
    if (!outcome().ok()) return outcome();
    if (!writable_) return fault::read_only;
    cache_.mark_written(shared_.pinned.frame);
    return {};
  }

  /// Ends the sharing, and waits until the buffer is the caller's again: the page has been written back if it was
  /// written, and no other thread has it pinned. `timed_out`, or a status of the write-back: it is still the page's.
  FOREBAY_DEVICE status take_back() { return take_back(cache_.default_deadline_ns()); }
  FOREBAY_DEVICE status take_back(std::uint64_t deadline_ns) {
    if (is_own()) return cache_.take_back(shared_.pinned.frame, shared_.ticket, deadline_ns);
    leave();
    return {};
  }
  /// Ends the sharing without waiting. The buffer stays the page's until `storage::take_back()` on the host; so it does
  /// where a kernel ends without having called either.
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
