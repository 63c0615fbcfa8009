// SPDX-License-Identifier: Apache-2.0
//! \file
//! Turns the PRP entries of a command into checked address ranges (NVM Express Base Specification 1.4, section 4.3).
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

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

/// Whether `bytes` bytes at `prp1`, with `prp2`, are one piece of registered memory that needs no list; if so, `piece`
/// is that piece. If not, this says nothing about why: `walk_prps` says why a command must fail. One lane calls it.
template <class M>
FOREBAY_DEVICE bool one_piece(dma_region_table const& regions, std::uint64_t prp1, std::uint64_t prp2,
                              std::uint64_t bytes, std::uint64_t page_bytes, dma_segment& piece) {
  std::uint64_t const in_first = page_bytes - (prp1 & (page_bytes - 1));
  bool const follows = bytes <= in_first || (bytes <= in_first + page_bytes && prp2 == prp1 + in_first);
  if (prp1 % 4 != 0 || !follows || !regions.contains<M>(prp1, bytes)) return false;
  piece = {prp1, bytes};
  return true;
}

/// Writes the pieces of the `bytes` bytes that `prp1` and `prp2` describe to `segments`, one for each page. No byte of
/// the buffer is touched, and a list is read only after its address was found in `regions`. `page_bytes` is CC.MPS.
/// Fails with PRP Offset Invalid, or with Data Transfer Error for memory that is not registered. All lanes call it, and
/// share `segments`.
template <class M>
FOREBAY_DEVICE prp_walk walk_prps(simt::team<M> const& lanes, dma_region_table const& regions, std::uint64_t prp1,
                                  std::uint64_t prp2, std::uint64_t bytes, std::uint64_t page_bytes,
                                  dma_segment* segments) {
  constexpr std::uint16_t offset_invalid =
      nvme::status_field(nvme::generic_status::prp_offset_invalid) | nvme::do_not_retry;
  constexpr std::uint16_t transfer_error = nvme::status_field(nvme::generic_status::data_transfer_error);
  prp_walk walk;
  // The client may change lists and registrations at any time, so lanes must not diverge over what each of them found.
  auto const registered = [&](std::uint64_t address, std::uint64_t length) {
    return lanes.all(regions.contains<M>(address, length));
  };
  lanes.sync();  // no lane reads the segments of the command before any more

  if (prp1 % 4 != 0) return {offset_invalid, 0};
  std::uint64_t const offset = prp1 % page_bytes;
  std::uint64_t const in_first = page_bytes - offset < bytes ? page_bytes - offset : bytes;
  if (!registered(prp1, in_first)) return {transfer_error, 0};
  if (lanes.leader()) segments[0] = {prp1, in_first};
  walk.count = 1;
  std::uint64_t left = bytes - in_first;
  if (left != 0 && left <= page_bytes) {
    if (prp2 % page_bytes != 0) return {offset_invalid, 0};
    if (!registered(prp2, left)) return {transfer_error, 0};
    if (lanes.leader()) segments[1] = {prp2, left};
    walk.count = 2;
    left = 0;
  }
  if (left != 0 && prp2 % 8 != 0) return {offset_invalid, 0};
  for (std::uint64_t list = prp2; left != 0;) {
    std::uint64_t const room = (page_bytes - list % page_bytes) / 8;
    std::uint64_t const wanted = (left + page_bytes - 1) / page_bytes;
    bool const chained = wanted > room;  // then the last entry of the page names the next list page
    auto const entries = static_cast<std::uint32_t>(chained ? room - 1 : wanted);
    if (!registered(list, (chained ? room : wanted) * 8)) return {transfer_error, 0};
    auto const* const words = reinterpret_cast<std::uint64_t const*>(list);
    for (std::uint32_t first = 0; first < entries; first += lanes.count()) {
      std::uint32_t const i = first + lanes.rank();
      std::uint16_t problem = 0;
      if (i < entries) {
        std::uint64_t const entry = M::ld(words + i);
        std::uint64_t const rest = left - std::uint64_t{i} * page_bytes;
        std::uint64_t const length = rest < page_bytes ? rest : page_bytes;
        problem = entry % page_bytes != 0               ? offset_invalid
                  : !regions.contains<M>(entry, length) ? transfer_error
                                                        : std::uint16_t{0};
        segments[walk.count + i] = {entry, length};
      }
      if (std::uint32_t const bad = lanes.ballot(problem != 0); bad != 0) {
        return {lanes.broadcast(problem, simt::team<M>::lowest(bad)), 0};
      }
    }
    walk.count += entries;
    std::uint64_t const covered = std::uint64_t{entries} * page_bytes;
    left -= left < covered ? left : covered;
    if (!chained) break;
    list = lanes.broadcast(lanes.leader() ? M::ld(words + entries) : 0);
    if (list % page_bytes != 0) return {offset_invalid, 0};
  }
  lanes.sync();
  return walk;
}

}  // namespace forebay::emulator
