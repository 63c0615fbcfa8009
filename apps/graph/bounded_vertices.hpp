// SPDX-License-Identifier: Apache-2.0
//! \file
//! A view of vertices for kernels that use what they read as an index and do not look at it themselves.
#pragma once

#include <cstdint>

#include "apps/graph/list_errors.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::graph {

/// The elements of another view, with 0 in place of those that are no vertex, which a latch counts. It is a view, but
/// for one promise of a cursor: by `&cursor[i]` no other element may be read.
template <class M, class View>
class bounded_vertices {
 public:
  using value_type = std::uint32_t;

  /// An aggregate: a cursor of the other view may be one that cannot be moved.
  template <class Cursor>
  struct page {
    Cursor inner;
    range_latch* latch;
    std::uint32_t vertices;
    std::uint32_t none = 0;

    FOREBAY_DEVICE status seek(std::uint64_t i, std::uint64_t stop) { return inner.seek(i, stop); }
    FOREBAY_DEVICE std::uint64_t first() const { return inner.first(); }
    FOREBAY_DEVICE std::uint64_t end() const { return inner.end(); }
    FOREBAY_DEVICE std::uint32_t const& operator[](std::uint64_t i) const {
      std::uint32_t const& vertex = inner[i];
      return latch->passes<M>(vertex, vertices) ? vertex : none;
    }
  };

  /// `latch` is in the memory of the machine.
  FOREBAY_DEVICE bounded_vertices(View view, std::uint32_t vertices, range_latch* latch)
      : view_(view), vertices_(vertices), latch_(latch) {}

  FOREBAY_DEVICE std::uint64_t size() const { return view_.size(); }
  FOREBAY_DEVICE std::uint32_t operator[](std::uint64_t i) const {
    std::uint32_t const vertex = view_[i];
    return latch_->template passes<M>(vertex, vertices_) ? vertex : 0;
  }
  FOREBAY_DEVICE auto thread_page() const {
    return page<decltype(view_.thread_page())>{view_.thread_page(), latch_, vertices_};
  }
  FOREBAY_DEVICE auto warp_page() const {
    return page<decltype(view_.warp_page())>{view_.warp_page(), latch_, vertices_};
  }
  FOREBAY_DEVICE auto warp_pages(std::uint32_t pages) const {
    return page<decltype(view_.warp_pages(pages))>{view_.warp_pages(pages), latch_, vertices_};
  }
  FOREBAY_DEVICE bool prefetch(std::uint64_t i) const { return view_.prefetch(i); }

 private:
  View view_;
  std::uint32_t vertices_;
  range_latch* latch_;
};

}  // namespace forebay::graph
