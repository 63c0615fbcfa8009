// SPDX-License-Identifier: Apache-2.0
//! \file
//! Threads that read and write through the library as a program would: each starts its requests, and waits for them in
//! the order in which it started them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/raw_workload.hpp"
#include "forebay/buffer_ref.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/storage_ref.hpp"

namespace forebay::bench {

/// The threads' counts. Zeroed by the host.
struct library_result {
  std::uint64_t commands = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;  ///< words
};

/// The bytes of a drive are written in blocks of this size, each of which has `pattern(block, word)`.
inline constexpr std::uint32_t pattern_block_bytes = 512;

template <class M>
struct library_tally {
  std::uint64_t commands = 0, failed = 0, wrong = 0;

  /// Looks at the first word of every block, or at every word, of what was read from `offset_bytes`.
  FOREBAY_DEVICE void count(status ended, std::byte const* read, std::uint64_t offset_bytes, std::uint32_t bytes,
                            std::uint32_t word_step) {
    ++commands;
    if (!ended.ok()) {
      ++failed;
      return;
    }
    constexpr std::uint32_t in_block = pattern_block_bytes / 4;
    auto const* const words = reinterpret_cast<std::uint32_t const*>(read);
    for (std::uint32_t w = 0; w < bytes / 4; w += word_step) {
      wrong += M::ld(words + w) != pattern(offset_bytes / pattern_block_bytes + w / in_block, w % in_block);
    }
  }
  FOREBAY_DEVICE void add_to(library_result& result) const {
    // Relaxed, all three: counters.
    simt::atomic<M>(result.commands).fetch_add(commands, simt::order::relaxed);
    if (failed != 0) simt::atomic<M>(result.failed).fetch_add(failed, simt::order::relaxed);
    if (wrong != 0) simt::atomic<M>(result.wrong).fetch_add(wrong, simt::order::relaxed);
  }
};

/// Random reads with `Open` open requests for each thread.
template <class M, std::uint32_t Open, class Traits = uncached>
struct library_reader {
  static constexpr unsigned max_threads_per_block = Open == 1 ? 1024 : 512;
  storage_ref<M, Traits> storage;
  buffer_ref buffers;  ///< `Open` blocks for each thread
  raw_workload work;
  library_result* result = nullptr;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const thread = M::thread_rank();
    std::uint32_t const word_step = work.check_all ? 1 : work.block_bytes / 4;
    std::uint64_t const stop_ns = work.run_ns == 0 ? ~std::uint64_t{0} : M::clock_ns() + work.run_ns;
    typename storage_ref<M, Traits>::token_type tokens[Open];
    std::uint64_t offsets[Open];
    library_tally<M> tally;
    std::uint32_t started = 0;
    std::uint32_t open = 0;  // a bit for each slot
    for (bool going = true; going || open != 0;) {
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < Open; ++k) {
        buffer_ref const to = buffers.subspan((std::uint64_t{thread} * Open + k) * work.block_bytes, work.block_bytes);
        if ((open >> k & 1) != 0) {
          open &= ~(1u << k);
          status const ended = tokens[k].wait();
          tally.count(ended, to.data(), offsets[k], work.block_bytes, word_step);
        }
        going = going && started < work.rounds && M::clock_ns() < stop_ns;
        if (!going) continue;
        std::uint64_t const draw = emulator::mix(work.seed ^ emulator::mix((std::uint64_t{thread} << 32) + started));
        ++started;
        offsets[k] = (draw >> 8) % work.blocks * work.block_bytes;
        // A value that the buffer keeps if a read transfers nothing.
        auto* const word = reinterpret_cast<std::uint32_t*>(to.data());
        M::st(word, ~pattern(offsets[k] / pattern_block_bytes, 0));
        tokens[k] = storage.read_async(to, offsets[k], work.block_bytes);
        open |= 1u << k;
      }
    }
    tally.add_to(*result);
  }
};

/// Writes the pattern to the whole drive, one request of a thread at a time.
template <class M>
struct library_writer {
  static constexpr std::uint32_t request_bytes = 4096;
  storage_ref<M> storage;
  buffer_ref buffers;  ///< `request_bytes` for each thread
  library_result* result = nullptr;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const thread = M::thread_rank();
    buffer_ref const from = buffers.subspan(std::uint64_t{thread} * request_bytes, request_bytes);
    auto* const words = reinterpret_cast<std::uint32_t*>(from.data());
    library_tally<M> tally;
    constexpr std::uint32_t in_block = pattern_block_bytes / 4;
    for (std::uint64_t at = std::uint64_t{thread} * request_bytes; at < storage.size_bytes();
         at += std::uint64_t{M::thread_count()} * request_bytes) {
      for (std::uint32_t w = 0; w < request_bytes / 4; ++w) {
        M::st(words + w, pattern(at / pattern_block_bytes + w / in_block, w % in_block));
      }
      ++tally.commands;
      if (!storage.write(from, at, request_bytes).ok()) ++tally.failed;
    }
    tally.add_to(*result);
  }
};

}  // namespace forebay::bench
