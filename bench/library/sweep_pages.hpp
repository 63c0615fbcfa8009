// SPDX-License-Identifier: Apache-2.0
//! \file
//! Brings an array into a cache, page by page in their order.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

/// For a stream of its own, while others work on what they know that they need. Warps of 32 lanes, each of which waits
/// for `window` pages before it asks for the next: a drive that they keep busy is not long in answering others.
template <class M, class View>
struct sweep_pages {
  View view;
  std::uint64_t elements;
  std::uint32_t page_elements;
  std::uint32_t window;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const step = std::uint64_t{window} * page_elements;
    auto page = view.warp_pages(window);
    for (std::uint64_t at = M::thread_rank() / 32 * step; at < elements; at += M::thread_count() / 32 * step) {
      // A page that cannot be had is told to whoever needs it.
      if (!page.seek(at, elements - at < step ? elements : at + step).ok()) return;
    }
  }
};

}  // namespace forebay::bench
