// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array of small pages, as the applications see one on drives. It reports a failure when a cursor reads an element
//! that is not within reach. It has nonsense between its pages for accesses that go there by a pointer. It counts how
//! often a cursor moves to another page, and may have a page that cannot be read.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/status.hpp"

namespace forebay::testing {

template <class T>
struct paged_array {
  std::vector<T> elements;
  std::uint64_t page_elements = 16;
  std::uint64_t bad_page = ~std::uint64_t{0};
  std::vector<T> apart;                         ///< the pages, each with as much of nonsense behind it; a view makes it
  mutable std::atomic<std::uint64_t> moves{0};  ///< of cursors, those of a warp counted once
  mutable std::atomic<std::uint64_t> taken{0};  ///< pages that cursors took hold of, several at a time or one
  mutable std::atomic<std::uint64_t> prefetches{0};  ///< of elements that the array has
  mutable std::atomic<std::uint64_t> stray_prefetches{0};
  mutable std::atomic<std::int64_t> refused{0};  ///< so many prefetches find no room
  std::uint64_t room = ~std::uint64_t{0};        ///< for pages that are prefetched
};

template <class T>
class paged_view {
 public:
  using value_type = T;

  class page {
   public:
    page(paged_array<T> const& array, bool counts, std::uint32_t pages = 1)
        : array_(array), counts_(counts), pages_(pages) {}
    status seek(std::uint64_t i) { return seek(i, array_.elements.size()); }
    status seek(std::uint64_t i, std::uint64_t stop) {
      simt::fiber::check(i < array_.elements.size(), "seek to an element that the array does not have");
      simt::fiber::check(i < stop && stop <= array_.elements.size(), "a stretch that the array does not have");
      if (i >= first_ && i < end_) return {};
      std::uint64_t const number = i / array_.page_elements;
      if (number == array_.bad_page) return status::from_nvme(0x281);
      first_ = number * array_.page_elements;
      end_ = std::min<std::uint64_t>(first_ + array_.page_elements, array_.elements.size());
      if (counts_) array_.moves.fetch_add(1, std::memory_order_relaxed);
      if (number < held_first_ || number >= held_end_) {
        held_first_ = number;
        held_end_ = std::min(number + pages_, (stop - 1) / array_.page_elements + 1);
        if (counts_) array_.taken.fetch_add(held_end_ - held_first_, std::memory_order_relaxed);
      }
      return {};
    }
    std::uint64_t first() const { return first_; }
    std::uint64_t end() const { return end_; }
    T const& operator[](std::uint64_t i) const {
      simt::fiber::check(i >= first_ && i < end_, "an element that is not within reach");
      return array_.apart[i / array_.page_elements * 2 * array_.page_elements + i % array_.page_elements];
    }

   private:
    paged_array<T> const& array_;
    bool counts_;
    std::uint32_t pages_;
    std::uint64_t held_first_ = 0;
    std::uint64_t held_end_ = 0;
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
  };

  /// Of what the array has now.
  explicit paged_view(paged_array<T>& array) : array_(&array) {
    std::uint64_t const each = array.page_elements, size = array.elements.size();
    array.apart.assign((size + each - 1) / each * 2 * each, nonsense());
    for (std::uint64_t i = 0; i < size; ++i) array.apart[i / each * 2 * each + i % each] = array.elements[i];
  }

  std::uint64_t size() const { return array_->elements.size(); }
  T operator[](std::uint64_t i) const { return array_->elements.at(i); }
  page warp_page() const { return warp_pages(1); }
  page warp_pages(std::uint32_t pages) const {
    simt::fiber::check(pages >= 1 && pages <= 32, "as many pages as a warp has lanes");
    return page(*array_, simt::fiber::this_warp().thread_rank() == 0, pages);
  }
  page thread_page() const { return page(*array_, true); }
  bool touch(std::uint64_t) const { return false; }
  bool prefetch(std::uint64_t i) const {
    (i < size() ? array_->prefetches : array_->stray_prefetches).fetch_add(1, std::memory_order_relaxed);
    return array_->refused.fetch_sub(1, std::memory_order_relaxed) <= 0;
  }
  bool await_prefetches(std::uint64_t) const { return true; }
  std::uint64_t prefetch_distance_max() const { return array_->room; }

 private:
  static T nonsense() {
    T value;
    std::memset(&value, 0xff, sizeof value);
    return value;
  }
  paged_array<T> const* array_;
};

}  // namespace forebay::testing
