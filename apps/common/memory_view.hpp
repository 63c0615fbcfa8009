// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array in plain memory with the interface of an array on drives. All of it is one page, and no access ever waits.
//! It shows what an application costs without a cache.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::apps {

/// Trivially copyable: kernels take it by value.
template <class T>
class memory_view {
 public:
  using value_type = T;

  /// Holds one page at a time; here all elements are within reach.
  class page {
   public:
    FOREBAY_DEVICE explicit page(memory_view const& array) : array_(array) {}
    FOREBAY_DEVICE status seek(std::uint64_t i, std::uint64_t = 0) const {
      return i < array_.size_ ? status() : status(fault::out_of_range);
    }
    FOREBAY_DEVICE std::uint64_t first() const { return 0; }
    FOREBAY_DEVICE std::uint64_t end() const { return array_.size_; }
    FOREBAY_DEVICE T const& operator[](std::uint64_t i) const { return array_.data_[i]; }

   private:
    memory_view const& array_;
  };

  memory_view() = default;
  FOREBAY_DEVICE memory_view(T const* data, std::uint64_t size) : data_(data), size_(size) {}

  FOREBAY_DEVICE std::uint64_t size() const { return size_; }
  FOREBAY_DEVICE T operator[](std::uint64_t i) const { return data_[i]; }
  FOREBAY_DEVICE page warp_page() const { return page(*this); }
  FOREBAY_DEVICE page warp_pages(std::uint32_t) const { return page(*this); }
  FOREBAY_DEVICE page thread_page() const { return page(*this); }
  FOREBAY_DEVICE bool touch(std::uint64_t) const { return true; }
  FOREBAY_DEVICE bool prefetch(std::uint64_t) const { return true; }
  FOREBAY_DEVICE bool await_prefetches(std::uint64_t) const { return true; }
  FOREBAY_DEVICE std::uint64_t prefetch_distance_max() const { return ~std::uint64_t{0}; }

 private:
  T const* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace forebay::apps
