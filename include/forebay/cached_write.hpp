// SPDX-License-Identifier: Apache-2.0
//! \file
//! A write through the cache that is on its way to the drives.
#pragma once

#include <cstdint>

#include "forebay/detail/queue/together.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// What `write_async()` of a ref through the cache returns. Trivially copyable. The cache owns the written bytes, so a
/// token may be waited for any number of times, or never.
template <class Cache>
class [[nodiscard]] cached_write {
 public:
  using machine = typename Cache::machine;

  cached_write() = default;
  /// A write that ended before it began.
  FOREBAY_DEVICE explicit cached_write(status ended) : ended_(ended) {}
  /// A write to the pages [first_page, end_page).
  FOREBAY_DEVICE cached_write(Cache const& cache, std::uint64_t first_page, std::uint64_t end_page)
      : cache_(cache), first_page_(first_page), end_page_(end_page) {}

  /// The deadline of a wait that starts now and lasts the storage's default time; 0 for a write that has ended.
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const {
    return first_page_ == end_page_ ? 0 : cache_.default_deadline_ns();
  }
  /// Waits up to the storage's default time.
  FOREBAY_DEVICE status wait() { return wait(default_deadline_ns()); }
  /// Waits until the drives have the written bytes. After `timed_out` it may be called again. After any other failure
  /// the bytes are still in the cache, and go to the drive with the next flush.
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (first_page_ == end_page_) return ended_;
    // Lanes that come together go on together, as from token::wait().
    auto const here = machine::converged();
    status outcome;
    for (; first_page_ != end_page_; ++first_page_) {
      outcome = cache_.clean_page(first_page_, deadline_ns);
      if (!outcome.ok()) break;
    }
    here.sync();
    if (outcome.kind() != fault::timed_out) end_page_ = first_page_;
    ended_ = outcome;
    return outcome;
  }
  /// The program will not wait for this write.
  FOREBAY_DEVICE void detach() { end_page_ = first_page_; }

 private:
  Cache cache_;
  std::uint64_t first_page_ = 0;
  std::uint64_t end_page_ = 0;
  status ended_;
};

}  // namespace forebay
