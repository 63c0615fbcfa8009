// SPDX-License-Identifier: Apache-2.0
//! \file
//! Brings an array into a cache, page by page in order.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

/// Runs on a stream of its own, while other kernels work on the pages that they know they need. Each warp of 32 lanes
/// waits for `window` pages before it asks for the next ones, so the drive still answers other kernels soon.
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
      // A page that cannot be read ends the sweep of its warp. A kernel that needs the page gets the error itself.
      if (!page.seek(at, elements - at < step ? elements : at + step).ok()) return;
    }
  }
};

}  // namespace forebay::bench
