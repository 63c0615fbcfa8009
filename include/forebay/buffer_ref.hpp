// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that a drive may touch, as device code sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// A range of registered memory with the bus addresses of its pages, so that kernels build PRPs without a search.
/// Trivially copyable; empty when default-constructed. Valid while the registration lives. A transfer may begin at any
/// multiple of 4 bytes in it.
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

  /// The first byte of the range, as the storage's device sees it.
  FOREBAY_DEVICE std::byte* data() const { return data_; }
  /// The length of the range.
  FOREBAY_DEVICE std::uint64_t size_bytes() const { return bytes_; }
  /// The `bytes` bytes from `offset_bytes` on. If they do not lie within this range, an empty range, which every
  /// transfer rejects.
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
  /// Whether the range begins on a page of `page_bytes` of the drives, a power of two. Reads no table of pages, which
  /// may lie where only a GPU reaches it.
  FOREBAY_DEVICE bool starts_on_page(std::uint64_t page_bytes) const {
    return (bus_or_offset_ & (page_bytes - 1)) == 0;
  }
  /// The address that the drives use for byte `offset_bytes`. For an emulated drive it is the pointer.
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

}  // namespace forebay
