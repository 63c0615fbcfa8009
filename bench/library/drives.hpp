// SPDX-License-Identifier: Apache-2.0
//! \file
//! Random transfers over several drives: the work of each thread, past a cache or through one.
//!
//! The data that is written to a block follows from its number. So threads that write the same block at the same time
//! leave the data that a reader expects.
#pragma once

#include <cstdint>

#include "apps/common/random.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay::bench {

struct drives_work {
  std::uint32_t block_bytes = 4096;
  std::uint64_t blocks = 0;  ///< of the storage
  bool writes = false;
  std::uint64_t run_ns = 0;                     ///< a thread starts nothing after this time; 0: it goes on
  std::uint32_t transfers = ~std::uint32_t{0};  ///< of each thread
  std::uint64_t seed = 1;

  /// The `k`-th block of a thread.
  FOREBAY_DEVICE std::uint64_t block(std::uint64_t thread, std::uint32_t k) const {
    return apps::mix64(seed ^ apps::mix64(thread << 32 | k)) % blocks;
  }
};

/// Zeroed by the host.
struct drives_result {
  std::uint64_t transfers = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;  ///< blocks that were read and are not what was written

  template <class M>
  FOREBAY_DEVICE void add_to(drives_result& all) const {
    // Relaxed, all: counters.
    simt::atomic<M>(all.transfers).fetch_add(transfers, simt::order::relaxed);
    if (failed != 0) simt::atomic<M>(all.failed).fetch_add(failed, simt::order::relaxed);
    if (wrong != 0) simt::atomic<M>(all.wrong).fetch_add(wrong, simt::order::relaxed);
  }
};

/// Writes the first 8-byte word of each block, and its complement as the last one.
FOREBAY_DEVICE std::uint64_t drives_stamp(std::uint64_t block) {
  return apps::mix64(block + 0x51ed270b76e5a3c1u) | 1;
}

/// Each thread has one transfer of a block in flight at a time. `Storage` is a `storage_ref`, past or through a cache.
template <class M, class Storage, class Buffer>
struct transfer_blocks {
  static constexpr unsigned max_threads_per_block = 512;
  Storage storage;
  Buffer buffers;  ///< a block for each thread
  drives_work work;
  drives_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const thread = M::thread_rank();
    Buffer const mine = buffers.subspan(thread * work.block_bytes, work.block_bytes);
    auto* const first = reinterpret_cast<std::uint64_t*>(mine.data());
    std::uint64_t* const last = first + work.block_bytes / 8 - 1;
    std::uint64_t const stop_ns = work.run_ns == 0 ? ~std::uint64_t{0} : M::clock_ns() + work.run_ns;
    drives_result seen;
    for (std::uint32_t k = 0; k < work.transfers && M::clock_ns() < stop_ns; ++k) {
      std::uint64_t const block = work.block(thread, k), at = block * work.block_bytes;
      std::uint64_t const stamp = drives_stamp(block);
      // A read that transfers nothing leaves zeros.
      M::st(first, work.writes ? stamp : 0);
      M::st(last, work.writes ? ~stamp : 0);
      status const ended = work.writes ? storage.write_async(mine, at, work.block_bytes).wait()
                                       : storage.read_async(mine, at, work.block_bytes).wait();
      ++seen.transfers;
      if (!ended.ok()) {
        ++seen.failed;
      } else if (!work.writes && (M::ld(first) != stamp || M::ld(last) != ~stamp)) {
        ++seen.wrong;
      }
    }
    seen.template add_to<M>(*result);
  }
};

/// Reads a word of random blocks through an array view: nearly all of them miss a cache that is much smaller.
template <class M, class View>
struct load_blocks {
  View words;
  drives_work work;
  drives_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const stop_ns = work.run_ns == 0 ? ~std::uint64_t{0} : M::clock_ns() + work.run_ns;
    std::uint64_t const in_block = work.block_bytes / 8;
    drives_result seen;
    for (std::uint32_t k = 0; k < work.transfers && M::clock_ns() < stop_ns; ++k) {
      std::uint64_t const block = work.block(M::thread_rank(), k);
      std::uint64_t value = 0;
      ++seen.transfers;
      if (!words.try_load(block * in_block, value).ok()) {
        ++seen.failed;
      } else if (value != drives_stamp(block)) {
        ++seen.wrong;
      }
    }
    seen.template add_to<M>(*result);
  }
};

/// Writes every block of the storage.
template <class M, class Storage, class Buffer>
struct fill_blocks {
  Storage storage;
  Buffer buffers;  ///< a block for each thread
  drives_work work;
  drives_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const thread = M::thread_rank();
    Buffer const mine = buffers.subspan(thread * work.block_bytes, work.block_bytes);
    auto* const first = reinterpret_cast<std::uint64_t*>(mine.data());
    drives_result seen;
    for (std::uint64_t block = thread; block < work.blocks; block += M::thread_count()) {
      M::st(first, drives_stamp(block));
      M::st(first + work.block_bytes / 8 - 1, ~drives_stamp(block));
      ++seen.transfers;
      if (!storage.write_async(mine, block * work.block_bytes, work.block_bytes).wait().ok()) ++seen.failed;
    }
    seen.template add_to<M>(*result);
  }
};

}  // namespace forebay::bench
