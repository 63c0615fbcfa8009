// SPDX-License-Identifier: Apache-2.0
//! \file
//! From the PRP entries of a command to checked address ranges (NVM Express Base Specification 1.4, section 4.3).
#pragma once

#include <cstdint>

#include "forebay/emulator/dma_regions.hpp"
#include "forebay/nvme/status_code.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

/// A contiguous piece of a client's buffer.
struct dma_segment {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

/// How many segments `walk_prps` may produce for a transfer of `bytes`.
FOREBAY_DEVICE constexpr std::uint32_t max_segments(std::uint64_t bytes, std::uint64_t page_bytes) {
  return static_cast<std::uint32_t>(bytes / page_bytes + 2);
}

/// Result of `walk_prps`: status field 0 and `count` segments, or why the command must fail.
struct prp_walk {
  std::uint16_t status_field = 0;
  std::uint32_t count = 0;
};

/// Writes the pieces of the `bytes` bytes that `prp1` and `prp2` describe to `segments`, adjacent pages joined.
/// No byte of the buffer is touched, and a list is read only after its address was found in `regions`.
/// `page_bytes` is CC.MPS. Fails with PRP Offset Invalid, or Data Transfer Error for memory that is not registered.
template <class M>
FOREBAY_DEVICE prp_walk walk_prps(dma_region_table const& regions, std::uint64_t prp1, std::uint64_t prp2,
                                  std::uint64_t bytes, std::uint64_t page_bytes, dma_segment* segments) {
  constexpr std::uint16_t offset_invalid =
      nvme::status_field(nvme::generic_status::prp_offset_invalid) | nvme::do_not_retry;
  constexpr std::uint16_t transfer_error = nvme::status_field(nvme::generic_status::data_transfer_error);
  prp_walk walk;
  auto const append = [&](std::uint64_t address, std::uint64_t length) {
    if (!regions.contains<M>(address, length)) return false;
    if (walk.count != 0 && segments[walk.count - 1].address + segments[walk.count - 1].bytes == address) {
      segments[walk.count - 1].bytes += length;
    } else {
      segments[walk.count++] = {address, length};
    }
    return true;
  };

  if (prp1 % 4 != 0) return {offset_invalid, 0};
  std::uint64_t const offset = prp1 % page_bytes;
  std::uint64_t const in_first = page_bytes - offset < bytes ? page_bytes - offset : bytes;
  if (!append(prp1, in_first)) return {transfer_error, 0};
  std::uint64_t left = bytes - in_first;
  if (left == 0) return walk;
  if (left <= page_bytes) {
    if (prp2 % page_bytes != 0) return {offset_invalid, 0};
    if (!append(prp2, left)) return {transfer_error, 0};
    return walk;
  }

  if (prp2 % 8 != 0) return {offset_invalid, 0};
  for (std::uint64_t list = prp2; left != 0;) {
    std::uint64_t const room = (page_bytes - list % page_bytes) / 8;
    std::uint64_t const wanted = (left + page_bytes - 1) / page_bytes;
    bool const chained = wanted > room;  // then the last entry of the page names the next list page
    std::uint64_t const entries = chained ? room - 1 : wanted;
    if (!regions.contains<M>(list, (chained ? room : wanted) * 8)) return {transfer_error, 0};
    auto const* const words = reinterpret_cast<std::uint64_t const*>(list);
    for (std::uint64_t i = 0; i < entries; ++i) {
      std::uint64_t const entry = M::ld(words + i);
      std::uint64_t const length = left < page_bytes ? left : page_bytes;
      if (entry % page_bytes != 0) return {offset_invalid, 0};
      if (!append(entry, length)) return {transfer_error, 0};
      left -= length;
    }
    if (!chained) break;
    list = M::ld(words + entries);
    if (list % page_bytes != 0) return {offset_invalid, 0};
  }
  return walk;
}

}  // namespace forebay::emulator
