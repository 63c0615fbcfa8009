// SPDX-License-Identifier: Apache-2.0
//! \file
//! Kernels of the storage suite, for any machine.
#pragma once

#include <cstdint>

#include "forebay/storage_ref.hpp"

namespace forebay::storage_test {

/// The results that a kernel reports to its host.
struct tally {
  std::uint32_t ok = 0;      ///< transfers that ended with success and, for reads, the right data
  std::uint32_t failed = 0;  ///< transfers with another status
  std::uint32_t wrong_data = 0;
  std::uint32_t first_failure = 0;
};

/// The 8 bytes that belong at byte `offset_bytes` of a storage after generation `g` was written.
FOREBAY_DEVICE constexpr std::uint64_t stamp(std::uint64_t offset_bytes, std::uint64_t g) {
  std::uint64_t x = offset_bytes * 0x9e3779b97f4a7c15 + g;
  x ^= x >> 32;
  return x * 0xd6e8feb86659fd93;
}

template <class M>
FOREBAY_DEVICE void count(tally* t, status s, bool data_ok) {
  // Relaxed: the launch orders them before the host's read.
  if (!s.ok()) {
    simt::atomic<M>(t->failed).fetch_add(1, simt::order::relaxed);
    std::uint32_t none = 0;
    simt::atomic<M>(t->first_failure).compare_exchange(none, s.bits(), simt::order::relaxed);
  } else {
    simt::atomic<M>(data_ok ? t->ok : t->wrong_data).fetch_add(1, simt::order::relaxed);
  }
}

template <class M>
FOREBAY_DEVICE bool holds_stamps(std::byte const* data, std::uint64_t bytes, std::uint64_t offset_bytes,
                                 std::uint64_t g) {
  auto const* words = reinterpret_cast<std::uint64_t const*>(data);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    if (M::ld(words + i) != stamp(offset_bytes + i * 8, g)) return false;
  }
  return true;
}

template <class M>
FOREBAY_DEVICE void put_stamps(std::byte* data, std::uint64_t bytes, std::uint64_t offset_bytes, std::uint64_t g) {
  auto* words = reinterpret_cast<std::uint64_t*>(data);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) M::st(words + i, stamp(offset_bytes + i * 8, g));
}

FOREBAY_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  return stamp(x, 0x5bd1e995);
}

/// Each thread reads `rounds` random ranges of 1 to `blocks_max` blocks into its part of `buffer`, and checks them.
template <class M, class Traits = uncached>
struct read_ranges {
  storage_ref<M, Traits> storage;
  buffer_ref buffer;  ///< `threads` parts
  std::uint32_t threads;
  std::uint32_t rounds;
  std::uint32_t blocks_max;
  std::uint64_t seed;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const me = M::thread_rank();
    if (me >= threads) return;
    std::uint64_t const block = storage.block_bytes();
    buffer_ref const mine = buffer.subspan(me * (blocks_max * block + 64), blocks_max * block + 64);
    for (std::uint32_t r = 0; r < rounds; ++r) {
      std::uint64_t const dice = mix(seed + me * 1000003ull + r);
      std::uint64_t const blocks = 1 + dice % blocks_max;
      std::uint64_t const first = (dice >> 20) % (storage.size_bytes() / block - blocks + 1);
      buffer_ref const to = mine.subspan(dice >> 60 << 3 & 63, blocks * block);
      status const s = storage.read(to, first * block, blocks * block);
      count<M>(result, s, holds_stamps<M>(to.data(), blocks * block, first * block, generation));
    }
  }
};

/// The threads write the whole window once, `blocks` blocks at a time, several requests in flight each.
template <class M, class Traits = uncached>
struct write_all {
  storage_ref<M, Traits> storage;
  buffer_ref buffer;  ///< `threads * in_flight` parts of `blocks` blocks
  std::uint32_t threads;
  std::uint32_t blocks;
  std::uint64_t generation;
  tally* result;
  static constexpr std::uint32_t in_flight = 4;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const me = M::thread_rank();
    if (me >= threads) return;
    std::uint64_t const bytes = std::uint64_t{blocks} * storage.block_bytes();
    typename storage_ref<M, Traits>::token_type tokens[in_flight];
    bool used[in_flight] = {};
    std::uint32_t next = 0;
    for (std::uint64_t at = me * bytes; at < storage.size_bytes(); at += threads * bytes) {
      if (used[next]) count<M>(result, tokens[next].wait(), true);
      std::uint64_t const n = storage.size_bytes() - at < bytes ? storage.size_bytes() - at : bytes;
      buffer_ref const from = buffer.subspan((me * in_flight + next) * bytes, n);
      put_stamps<M>(from.data(), n, at, generation);
      tokens[next] = storage.write_async(from, at, n);
      used[next] = true;
      next = (next + 1) % in_flight;
    }
    for (std::uint32_t i = 0; i < in_flight; ++i) {
      if (used[i]) count<M>(result, tokens[i].wait(), true);
    }
  }
};

/// One thread makes one transfer and reports its status.
template <class M>
struct one_transfer {
  storage_ref<M> storage;
  buffer_ref buffer;
  std::uint64_t offset_bytes;
  std::uint64_t bytes;
  bool write;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    if (M::thread_rank() != 0) return;
    status const s = write ? storage.write(buffer, offset_bytes, bytes) : storage.read(buffer, offset_bytes, bytes);
    count<M>(result, s, true);
  }
};

/// One thread zeroes or deallocates a range, and reports the status.
template <class M>
struct one_clearing {
  storage_ref<M> storage;
  buffer_ref scratch;  ///< empty: Write Zeroes
  std::uint64_t offset_bytes;
  std::uint64_t bytes;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    if (M::thread_rank() != 0) return;
    auto token = scratch.data() == nullptr ? storage.write_zeroes_async(offset_bytes, bytes)
                                           : storage.deallocate_async(scratch, offset_bytes, bytes);
    count<M>(result, token.wait(), true);
  }
};

/// Threads write and do not wait; the storage must still complete the writes.
template <class M>
struct write_detached {
  storage_ref<M> storage;
  buffer_ref buffer;  ///< one block a thread
  std::uint32_t threads;
  std::uint64_t generation;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const me = M::thread_rank();
    if (me >= threads) return;
    std::uint64_t const block = storage.block_bytes();
    buffer_ref const from = buffer.subspan(me * block, block);
    put_stamps<M>(from.data(), block, me * block, generation);
    storage.write_async(from, me * block, block).detach();
  }
};

}  // namespace forebay::storage_test
