// SPDX-License-Identifier: Apache-2.0
//! \file
//! Storage behind a cache, as a kernel sees it: one range of bytes whose pages come and go in frames.
#pragma once

#include <cstdint>
#include <type_traits>

#include "forebay/cache/cache_ref.hpp"
#include "forebay/simt/vocabulary.hpp"
#include "forebay/status.hpp"
#include "forebay/storage/array_view.hpp"

namespace forebay {

/// Trivially copyable: kernels take it by value. Thread-safe. A window on the storage: offset 0 is the window's first
/// byte. Threads of all kernels that have a ref of the same storage see each other's writes (C6).
template <class M, class Policy, bool Counted = false>
class cached_storage_ref {
 public:
  using cache_type = cache_ref<M, Policy, Counted>;
  template <class T>
  using view_type = array_view<T, cache_type, M>;

  cached_storage_ref() = default;
  /// Bytes [first_byte, first_byte + bytes) of the storage; `first_byte` is a multiple of the page.
  FOREBAY_DEVICE cached_storage_ref(cache_type const& cache, std::uint64_t first_byte, std::uint64_t bytes,
                                    bool writable)
      : cache_(cache), first_byte_(first_byte), bytes_(bytes), writable_(writable) {}

  FOREBAY_DEVICE std::uint64_t size_bytes() const { return bytes_; }
  FOREBAY_DEVICE std::uint32_t page_bytes() const { return 1u << cache_.page_shift(); }

  /// The window from `offset_bytes` on as an array of as many `T` as fit; of none, if `offset_bytes` is not a multiple
  /// of what a `T` is aligned to. Elements of 1, 2, 4, 8 or 16 bytes that are aligned to their size are the fastest.
  template <class T>
  FOREBAY_DEVICE view_type<T> array(std::uint64_t offset_bytes = 0) const {
    std::uint64_t const room = offset_bytes < bytes_ && offset_bytes % alignof(T) == 0 ? bytes_ - offset_bytes : 0;
    return view_type<T>(cache_, first_byte_ + offset_bytes, room / sizeof(T), writable_);
  }
  /// The same of `count` elements at most.
  template <class T>
  FOREBAY_DEVICE view_type<T> array(std::uint64_t offset_bytes, std::uint64_t count) const {
    view_type<T> const all = array<T>(offset_bytes);
    return all.size() <= count ? all : view_type<T>(cache_, first_byte_ + offset_bytes, count, writable_);
  }

  /// Starts bringing the page of byte `offset_bytes` into the cache. Never waits. False if there was no room for it, or
  /// no such byte.
  FOREBAY_DEVICE bool prefetch(std::uint64_t offset_bytes) const {
    return offset_bytes < bytes_ && cache_.prefetch((first_byte_ + offset_bytes) >> cache_.page_shift());
  }

  FOREBAY_DEVICE cache_type const& cache() const { return cache_; }

 private:
  cache_type cache_;
  std::uint64_t first_byte_ = 0;
  std::uint64_t bytes_ = 0;
  bool writable_ = false;
};

}  // namespace forebay
