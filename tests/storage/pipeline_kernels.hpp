// SPDX-License-Identifier: Apache-2.0
//! \file
//! Kernels of the pipeline suite, for any machine.
#pragma once

#include <cstdint>

#include "forebay/cached_storage_ref.hpp"
#include "forebay/pipeline.hpp"
#include "forebay/token_group.hpp"
#include "storage/storage_kernels.hpp"

namespace forebay::storage_test {

/// Reads block `order(i)` for each index, checks it, and counts it in `seen`. Indices from `good` on name no block.
template <class M, std::uint32_t Depth, bool Told>
struct read_pipelined {
  storage_ref<M> storage;
  buffer_ref buffer;  ///< `Depth` blocks for each thread
  std::uint64_t count_all;
  std::uint64_t good;
  std::uint64_t seed;
  std::uint64_t generation;
  std::uint32_t* seen;  ///< for each index: 1 + the rank of the thread that computed it
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const me = M::thread_rank(), block = storage.block_bytes(), blocks = storage.size_bytes() / block;
    auto const offset = [&](std::uint64_t i) { return i < good ? mix(seed + i) % blocks * block : blocks * block; };
    auto const place = [&](std::uint32_t slot) { return buffer.subspan((me * Depth + slot) * block, block); };
    std::uint64_t last = 0;
    bool in_order = true;
    auto const look = [&](std::uint64_t i, std::uint32_t slot, status told) {
      in_order = in_order && (last == 0 || last <= i);
      last = i + 1;
      M::st(seen + i, M::ld(seen + i) + static_cast<std::uint32_t>(me) + 1);
      bool const right = holds_stamps<M>(place(slot).data(), block, offset(i), generation);
      count<M>(result, told, right && in_order);
    };
    auto const issue = [&](std::uint64_t i, std::uint32_t slot) {
      M::st(reinterpret_cast<std::uint64_t*>(place(slot).data()), ~offset(i));
      return storage.read_async(place(slot), offset(i), block);
    };
    status outcome;
    if constexpr (Told) {
      outcome = pipeline<Depth>(grid_stride<M>(count_all), issue, look);
      if (!outcome.ok()) count<M>(result, outcome, true);
    } else {
      outcome = pipeline<Depth>(grid_stride<M>(count_all), issue,
                                [&](std::uint64_t i, std::uint32_t slot) { look(i, slot, {}); });
      // Each thread that has an index beyond `good` ends with its failure.
      if (!outcome.ok()) count<M>(result, outcome, true);
    }
  }
};

/// Warps read rows of 64 blocks: each lane starts the reads of two of them, and all check all of them.
template <class M, std::uint32_t Depth>
struct read_rows {
  storage_ref<M> storage;
  buffer_ref buffer;  ///< `Depth` rows for each warp
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const block = storage.block_bytes(), row = 64 * block;
    std::uint32_t const lane = M::thread_rank() % 32;
    auto const place = [&](std::uint32_t slot) {
      return buffer.subspan((M::thread_rank() / 32 * std::uint64_t{Depth} + slot) * row, row);
    };
    status const outcome = pipeline<Depth>(
        warp_stride<M>(storage.size_bytes() / row),
        [&](std::uint64_t i, std::uint32_t slot) {
          token_array<token<M>, 2> both;
          FOREBAY_UNROLL
          for (std::uint32_t k = 0; k < 2; ++k) {
            std::uint64_t const at = (k * 32 + lane) * block;
            buffer_ref const part = place(slot).subspan(at, block);
            M::st(reinterpret_cast<std::uint64_t*>(part.data()), ~i);
            both[k] = storage.read_async(part, i * row + at, block);
          }
          return both;
        },
        [&](std::uint64_t i, std::uint32_t slot) {
          count<M>(result, {}, holds_stamps<M>(place(slot).data(), row, i * row, generation));
        });
    if (!outcome.ok()) count<M>(result, outcome, false);
  }
};

/// Through the cache: copies the first half of the storage to the second, and then writes the first half anew.
template <class M, class Ref, std::uint32_t Depth>
struct copy_and_write {
  Ref storage;
  buffer_ref buffer;  ///< `Depth` pages for each thread
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const page = storage.page_bytes(), half = storage.size_bytes() / 2;
    auto const place = [&](std::uint32_t slot) {
      return buffer.subspan((M::thread_rank() * std::uint64_t{Depth} + slot) * page, page);
    };
    status const copied = pipeline<Depth>(
        grid_stride<M>(half / page),
        [&](std::uint64_t i, std::uint32_t slot) { return storage.read_async(place(slot), i * page, page); },
        [&](std::uint64_t i, std::uint32_t slot) {
          return storage.write_async(place(slot), half + i * page, page, write_until::cache).wait();
        });
    count<M>(result, copied, true);
    // Each thread writes what it has read.
    status const written = pipeline<Depth>(
        grid_stride<M>(half / page),
        [&](std::uint64_t i, std::uint32_t slot) {
          put_stamps<M>(place(slot).data(), page, i * page, generation);
          return storage.write_async(place(slot), i * page, page);
        },
        [&](std::uint64_t, std::uint32_t, status told) { count<M>(result, told, true); });
    if (!written.ok()) count<M>(result, written, true);
  }
};

}  // namespace forebay::storage_test
