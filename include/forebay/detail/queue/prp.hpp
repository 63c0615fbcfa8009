// SPDX-License-Identifier: Apache-2.0
//! \file
//! How commands name the memory that they transfer.
#pragma once

#include <cstdint>

#include "forebay/buffer_ref.hpp"
#include "forebay/detail/queue/slot_pool.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// Pages for PRP lists: every command of more than two memory pages borrows one until it completes.
struct prp_page_pool {
  buffer_ref pages;
  std::uint32_t page_bytes = 4096;
  /// Index i stands for bytes [i * page_bytes, (i + 1) * page_bytes) of `pages`.
  slot_pool free;

  static constexpr std::uint32_t none = slot_pool::none;
  /// One list page names at most this many bytes beyond the first, partial page.
  FOREBAY_DEVICE std::uint64_t bytes_named_by_one_page() const { return std::uint64_t{page_bytes} / 8 * page_bytes; }
};

/// The two PRP entries of a command (NVM Express Base 1.4, section 4.3).
struct prp_pair {
  std::uint64_t prp1 = 0;
  std::uint64_t prp2 = 0;
};

/// Whether `bytes` bytes from the start of `buffer` need a PRP list.
FOREBAY_DEVICE bool needs_prp_list(buffer_ref const& buffer, std::uint64_t bytes, std::uint32_t page_bytes) {
  return (buffer.bus_address(0) & (page_bytes - 1)) + bytes > 2ull * page_bytes;
}

/// Names the first `bytes` bytes of `buffer`. `list_page` is an index of `pool`, or `none` if no list is needed.
template <class M>
FOREBAY_DEVICE prp_pair build_prps(buffer_ref const& buffer, std::uint64_t bytes, prp_page_pool const& pool,
                                   std::uint32_t list_page) {
  std::uint64_t const page_bytes = pool.page_bytes;
  prp_pair prps{buffer.bus_address(0), 0};
  std::uint64_t named = page_bytes - (prps.prp1 & (page_bytes - 1));
  if (named >= bytes) return prps;
  if (list_page == prp_page_pool::none) {
    prps.prp2 = buffer.bus_address(named);
    return prps;
  }
  buffer_ref const list = pool.pages.subspan(list_page * page_bytes, page_bytes);
  prps.prp2 = list.bus_address(0);
  auto* entry = reinterpret_cast<std::uint64_t*>(list.data());
  for (; named < bytes; named += page_bytes) M::st(entry++, buffer.bus_address(named));
  return prps;
}

}  // namespace forebay
