// SPDX-License-Identifier: Apache-2.0
//! \file
//! Computation against communication: one block whose threads read and compute in rounds, either in turn or with the
//! reads of the next rounds under way (AGILE, SC 2025: one block of 1,024 threads, 64 commands of each).
//!
//! A round belongs to the block: no thread computes before all threads have their data, as in programs whose threads
//! use what others read. Both ways have that barrier; they differ only in when a round's reads are started.
#pragma once

#include <cstdint>
#include <utility>

#include "apps/common/random.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay::bench {

/// Let `c` be the time of computation over that of communication. Then a round takes 1 + c if both run in turn, and at
/// best max(1, c) if they overlap; the first round's reads and the last one's computation overlap with nothing. With
/// more than one round ahead the drive is asked before it becomes idle, and a round's reads take less time than in
/// turn: then the ratio may be better than this.
constexpr double ctc_ideal_ratio(double c, std::uint32_t rounds) {
  double const n = rounds, longer = c > 1 ? c : 1;
  return n * (1 + c) / (1 + c + (n - 1) * longer);
}

struct ctc_work {
  std::uint32_t rounds = 64;
  std::uint32_t commands = 1;  ///< of each thread in a round
  std::uint32_t block_bytes = 4096;
  std::uint64_t blocks = 0;  ///< of the drive
  std::uint32_t steps = 0;   ///< of computation, each one multiply-add that waits for the one before
  std::uint32_t ahead = 0;   ///< rounds whose reads are under way while one computes; 0: all in turn
  bool together = true;      ///< all threads wait for the reads of all; else each for its own
  std::uint64_t seed = 1;

  /// Buffers, and requests open at a time, of each thread.
  FOREBAY_DEVICE constexpr std::uint32_t slots() const { return (ahead + 1) * commands; }
};

/// Zeroed by the host.
struct ctc_result {
  std::uint64_t reads = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;     ///< reads that brought other words than were written
  std::uint32_t computed = 0;  ///< so that the computation is for something
};

/// What is written at 8-byte word `word` of the drive.
FOREBAY_DEVICE std::uint64_t ctc_word(std::uint64_t word) {
  return apps::mix64(word + 0x9e3779b97f4a7c15u);
}

template <class Storage, class Buffer>
using ctc_token = decltype(std::declval<Storage>().read_async(std::declval<Buffer>(), 0, 0));

/// `Storage` is `storage_ref<M>` or a model of it.
template <class M, class Storage, class Buffer>
struct ctc_kernel {
  static constexpr unsigned max_threads_per_block = 1024;
  using token_type = ctc_token<Storage, Buffer>;

  Storage storage;
  Buffer buffer;  ///< `work.slots()` blocks for each thread
  ctc_work work;
  token_type* tokens;  ///< `work.slots()` for each thread
  ctc_result* result;

  FOREBAY_DEVICE void operator()() const {
    tally t;
    float value = static_cast<float>(M::thread_rank());
    // One loop for both ways, so that they compute with the same instructions.
    for (std::uint32_t round = 0; round < work.ahead && round < work.rounds; ++round) issue(round);
    for (std::uint32_t round = 0; round < work.rounds; ++round) {
      if (work.ahead == 0) issue(round);
      wait(round, t);
      if (work.together) M::this_block().sync();
      if (work.ahead != 0 && round + work.ahead < work.rounds) issue(round + work.ahead);
      value = compute(round, value);
    }
    // relaxed, all: counters that the host reads after the launch.
    simt::atomic<M>(result->reads).fetch_add(t.reads, simt::order::relaxed);
    if (t.failed != 0) simt::atomic<M>(result->failed).fetch_add(t.failed, simt::order::relaxed);
    if (t.wrong != 0) simt::atomic<M>(result->wrong).fetch_add(t.wrong, simt::order::relaxed);
    if (value > 0.5f) simt::atomic<M>(result->computed).fetch_add(1, simt::order::relaxed);
  }

 private:
  struct tally {
    std::uint32_t reads = 0, failed = 0, wrong = 0;
  };

  FOREBAY_DEVICE std::uint64_t slot(std::uint32_t round, std::uint32_t k) const {
    std::uint32_t const first = round % (work.ahead + 1) * work.commands;
    return std::uint64_t{first + k} * M::thread_count() + M::thread_rank();
  }
  FOREBAY_DEVICE Buffer place(std::uint64_t slot) const {
    return buffer.subspan(slot * work.block_bytes, work.block_bytes);
  }
  FOREBAY_DEVICE std::uint64_t offset_bytes(std::uint32_t round, std::uint32_t k) const {
    std::uint64_t const number = (std::uint64_t{round} * M::thread_count() + M::thread_rank()) * work.commands + k;
    return apps::mix64(work.seed + apps::mix64(number)) % work.blocks * work.block_bytes;
  }

  FOREBAY_DEVICE void issue(std::uint32_t round) const {
    for (std::uint32_t k = 0; k < work.commands; ++k) {
      std::uint64_t const s = slot(round, k);
      Buffer const to = place(s);
      // A value that the buffer keeps if a read transfers nothing.
      M::st(last_word(to), std::uint64_t{0});
      tokens[s] = storage.read_async(to, offset_bytes(round, k), work.block_bytes);
    }
  }
  FOREBAY_DEVICE void wait(std::uint32_t round, tally& t) const {
    for (std::uint32_t k = 0; k < work.commands; ++k) {
      std::uint64_t const s = slot(round, k);
      status const ended = tokens[s].wait();
      ++t.reads;
      if (!ended.ok()) {
        ++t.failed;
        continue;
      }
      std::uint64_t const after = (offset_bytes(round, k) + work.block_bytes) / 8;
      if (M::ld(last_word(place(s))) != ctc_word(after - 1)) ++t.wrong;
    }
  }
  FOREBAY_DEVICE std::uint64_t* last_word(Buffer const& of) const {
    return reinterpret_cast<std::uint64_t*>(of.data() + work.block_bytes) - 1;
  }

  /// Starts from the data that was read, and stays within (0, 1).
  FOREBAY_DEVICE float compute(std::uint32_t round, float value) const {
    if (work.commands != 0) {
      value = static_cast<float>(M::ld(last_word(place(slot(round, 0)))) >> 40) * 0x1p-24f;
    }
    for (std::uint32_t i = 0; i < work.steps; ++i) value = value * 0.75f + 0.125f;
    return value;
  }
};

/// Writes `ctc_word` all over the drive, a block of each thread at a time.
template <class M, class Storage, class Buffer>
struct ctc_fill {
  Storage storage;
  Buffer buffer;  ///< a block for each thread
  ctc_work work;
  ctc_result* result;

  FOREBAY_DEVICE void operator()() const {
    Buffer const from = buffer.subspan(std::uint64_t{M::thread_rank()} * work.block_bytes, work.block_bytes);
    auto* const words = reinterpret_cast<std::uint64_t*>(from.data());
    std::uint32_t const count = work.block_bytes / 8;
    for (std::uint64_t block = M::thread_rank(); block < work.blocks; block += M::thread_count()) {
      for (std::uint32_t w = 0; w < count; ++w) M::st(words + w, ctc_word(block * count + w));
      if (!storage.write_async(from, block * work.block_bytes, work.block_bytes).wait().ok()) {
        simt::atomic<M>(result->failed).fetch_add(1, simt::order::relaxed);  // as above
      }
    }
  }
};

}  // namespace forebay::bench
