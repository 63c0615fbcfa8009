// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernels of docs/how-to/overlap-reads-and-computation.md: they add up what lies on a drive.
#pragma once

#include <cstdint>

#include "forebay/pipeline.hpp"
#include "forebay/slots.hpp"
#include "forebay/storage.hpp"
#include "forebay/token_group.hpp"

namespace overlap_reads {

inline constexpr std::uint32_t record_bytes = 4096;
inline constexpr std::uint32_t words_per_record = record_bytes / 8;

/// What a kernel leaves behind, one for each thread.
struct result {
  std::uint64_t sum = 0;
  forebay::status status;
};

/// Each thread reads a record, adds it up, and reads the next one.
template <class M>
struct plain_loop {
  forebay::storage_ref<M> drive;
  forebay::buffer_ref buffers;  ///< a record for each thread
  result* results;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const me = M::thread_rank(), records = drive.size_bytes() / record_bytes;
    forebay::buffer_ref const mine = buffers.subspan(me * record_bytes, record_bytes);
    result r;
    for (std::uint64_t i = me; i < records; i += M::thread_count()) {
      r.status = drive.read(mine, i * record_bytes, record_bytes);
      if (!r.status) break;
      auto const* words = reinterpret_cast<std::uint64_t const*>(mine.data());
      for (std::uint32_t w = 0; w < words_per_record; ++w) r.sum += M::ld(words + w);
    }
    results[me] = r;
  }
};

/// The same with four records of each thread under way.
template <class M>
struct by_threads {
  static constexpr std::uint32_t depth = 4;

  forebay::storage_ref<M> drive;
  forebay::buffer_ref buffers;  ///< `depth` records for each thread
  result* results;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const me = M::thread_rank(), records = drive.size_bytes() / record_bytes;
    forebay::slots<M, depth> const place(buffers, record_bytes);
    result r;
    r.status = forebay::pipeline<depth>(
        forebay::grid_stride<M>(records),
        [&](std::uint64_t i, std::uint32_t slot) {
          return drive.read_async(place[slot], i * record_bytes, record_bytes);
        },
        [&](std::uint64_t, std::uint32_t slot) {
          auto const* words = reinterpret_cast<std::uint64_t const*>(place[slot].data());
          for (std::uint32_t w = 0; w < words_per_record; ++w) r.sum += M::ld(words + w);
        });
    results[me] = r;
  }
};

/// Each warp adds up a record together, which makes its loads coalesced. One lane reads for all.
template <class M>
struct by_warps {
  static constexpr std::uint32_t depth = 4;

  forebay::storage_ref<M> drive;
  forebay::buffer_ref buffers;  ///< `depth` records for each warp
  result* results;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const records = drive.size_bytes() / record_bytes;
    std::uint32_t const warp = M::thread_rank() / 32, lane = M::thread_rank() % 32;
    forebay::slots<M, depth> const places(buffers, record_bytes);
    auto const place = [&](std::uint32_t slot) { return places.of(warp, slot); };
    result r;
    r.status = forebay::pipeline<depth>(
        forebay::warp_stride<M>(records),
        [&](std::uint64_t i, std::uint32_t slot) {
          if (lane != 0) return forebay::token<M>();
          return drive.read_async(place(slot), i * record_bytes, record_bytes);
        },
        [&](std::uint64_t, std::uint32_t slot) {
          auto const* words = reinterpret_cast<std::uint64_t const*>(place(slot).data());
          for (std::uint32_t w = lane; w < words_per_record; w += 32) r.sum += M::ld(words + w);
        });
    results[M::thread_rank()] = r;
  }
};

/// Each thread needs two records for an index, and stops at the first pair that is equal.
template <class M>
struct compare_halves {
  static constexpr std::uint32_t depth = 2;

  forebay::storage_ref<M> drive;
  forebay::buffer_ref buffers;  ///< `2 * depth` records for each thread
  result* results;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const me = M::thread_rank(), half = drive.size_bytes() / record_bytes / 2;
    forebay::slots<M, depth> const places(buffers, 2 * record_bytes);
    auto const place = [&](std::uint32_t slot, std::uint32_t side) {
      return places[slot].subspan(side * record_bytes, record_bytes);
    };
    result r;
    r.status = forebay::pipeline<depth>(
        forebay::grid_stride<M>(half),
        [&](std::uint64_t i, std::uint32_t slot) {
          return forebay::join(drive.read_async(place(slot, 0), i * record_bytes, record_bytes),
                               drive.read_async(place(slot, 1), (half + i) * record_bytes, record_bytes));
        },
        [&](std::uint64_t, std::uint32_t slot) {
          auto const* left = reinterpret_cast<std::uint64_t const*>(place(slot, 0).data());
          auto const* right = reinterpret_cast<std::uint64_t const*>(place(slot, 1).data());
          std::uint32_t equal = 0;
          while (equal < words_per_record && M::ld(left + equal) == M::ld(right + equal)) ++equal;
          r.sum += equal;
          return equal != words_per_record;
        });
    results[me] = r;
  }
};

/// Each warp adds up pages of an array behind the cache. The cache has the buffers; the pipeline asks for pages ahead.
template <class M>
struct through_the_cache {
  static constexpr std::uint32_t depth = 8;

  forebay::storage_ref<M, forebay::cached> drive;
  result* results;

  FOREBAY_DEVICE void operator()() const {
    auto const words = drive.template array<std::uint64_t const>();
    std::uint64_t const per_page = drive.page_bytes() / 8, pages = words.size() / per_page;
    std::uint32_t const lane = M::thread_rank() % 32;
    auto page = words.warp_page();
    result r;
    r.status = forebay::pipeline<depth>(
        forebay::warp_stride<M>(pages),
        [&](std::uint64_t i, std::uint32_t) {
          if (lane == 0) (void)words.prefetch(i * per_page);
        },
        [&](std::uint64_t i, std::uint32_t) {
          forebay::status const reached = page.seek(i * per_page);
          if (!reached) return reached;
          for (std::uint64_t w = lane; w < per_page; w += 32) r.sum += page[i * per_page + w];
          return reached;
        });
    results[M::thread_rank()] = r;
  }
};

}  // namespace overlap_reads
