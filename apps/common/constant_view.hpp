// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array whose elements are all the same and are nowhere in memory: the values of a matrix that has none.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::apps {

/// All of it is one page. It is a view, but for one promise of a cursor: `&cursor[i]` points at one element, and not at
/// those after it.
template <class T>
class constant_view {
 public:
  using value_type = T;

  class page {
   public:
    FOREBAY_DEVICE explicit page(constant_view const& array) : value_(array.value_), size_(array.size_) {}
    FOREBAY_DEVICE status seek(std::uint64_t, std::uint64_t = 0) const { return {}; }
    FOREBAY_DEVICE std::uint64_t first() const { return 0; }
    FOREBAY_DEVICE std::uint64_t end() const { return size_; }
    FOREBAY_DEVICE T const& operator[](std::uint64_t) const { return value_; }

   private:
    T value_;
    std::uint64_t size_;
  };

  constant_view() = default;
  FOREBAY_DEVICE constant_view(T value, std::uint64_t size) : value_(value), size_(size) {}

  FOREBAY_DEVICE std::uint64_t size() const { return size_; }
  FOREBAY_DEVICE T operator[](std::uint64_t) const { return value_; }
  FOREBAY_DEVICE page thread_page() const { return page(*this); }
  FOREBAY_DEVICE page warp_page() const { return page(*this); }
  FOREBAY_DEVICE page warp_pages(std::uint32_t) const { return page(*this); }
  FOREBAY_DEVICE bool prefetch(std::uint64_t) const { return true; }

 private:
  T value_{};
  std::uint64_t size_ = 0;
};

}  // namespace forebay::apps
