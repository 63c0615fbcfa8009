// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that a drive may touch, as device code sees it, and how commands name it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/queue/slot_pool.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay {

/// A range of registered memory with the bus addresses of its pages. Trivially copyable, so kernels build PRPs without
/// a search. Valid while the registration lives.
class buffer_ref {
 public:
  buffer_ref() = default;
  /// A range whose bus addresses are contiguous from `first_bus_address`.
  FOREBAY_DEVICE buffer_ref(std::byte* data, std::uint64_t bytes, std::uint64_t first_bus_address)
      : data_(data), bytes_(bytes), bus_or_offset_(first_bus_address) {}
  /// A range that starts `offset_bytes` into the first page of `page_bus_addresses`.
  FOREBAY_DEVICE buffer_ref(std::byte* data, std::uint64_t bytes, std::uint64_t const* page_bus_addresses,
                            std::uint32_t page_shift, std::uint64_t offset_bytes)
      : data_(data), bytes_(bytes), pages_(page_bus_addresses), bus_or_offset_(offset_bytes), page_shift_(page_shift) {}

  FOREBAY_DEVICE std::byte* data() const { return data_; }
  FOREBAY_DEVICE std::uint64_t size_bytes() const { return bytes_; }
  /// The `bytes` bytes from `offset_bytes`, both within this range; else an empty range, which every transfer refuses.
  FOREBAY_DEVICE buffer_ref subspan(std::uint64_t offset_bytes, std::uint64_t bytes) const {
    buffer_ref part = *this;
    if (offset_bytes > bytes_ || bytes > bytes_ - offset_bytes) {
      part.bytes_ = 0;
      return part;
    }
    part.data_ += offset_bytes;
    part.bytes_ = bytes;
    part.bus_or_offset_ += offset_bytes;
    return part;
  }
  /// The address that the controller uses for byte `offset_bytes`.
  FOREBAY_DEVICE std::uint64_t bus_address(std::uint64_t offset_bytes) const {
    std::uint64_t const at = bus_or_offset_ + offset_bytes;
    if (pages_ == nullptr) return at;
    return pages_[at >> page_shift_] + (at & ((std::uint64_t{1} << page_shift_) - 1));
  }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t const* pages_ = nullptr;
  std::uint64_t bus_or_offset_ = 0;
  std::uint32_t page_shift_ = 0;
};

/// Pages for PRP lists: every command beyond two memory pages borrows one until it completes.
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

/// Names the first `bytes` bytes of `buffer`. `list_page` is an index of `pool`, or `none` where no list is needed.
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
