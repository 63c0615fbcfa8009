// SPDX-License-Identifier: Apache-2.0
//! \file
//! A client that only submits and waits: warps put 32 commands at a time into shared queues, and look at one word, or
//! at every word, of what they read. What it reaches bounds what any client library can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "forebay/emulator/timing_model.hpp"
#include "forebay/nvme/command.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::bench {

/// A queue pair and what its clients share. The rings have as many entries each.
struct raw_queue {
  nvme::submission_entry* sq = nullptr;
  nvme::completion_entry* cq = nullptr;
  std::uint32_t* tail_doorbell = nullptr;
  std::uint32_t* head_doorbell = nullptr;
  std::uint32_t* done = nullptr;  ///< by command id: the lap whose completion was seen by someone else
  std::uint32_t entries = 0;      ///< a power of two, at least 64
  std::uint32_t unused = 0;
  alignas(128) std::uint32_t tickets = 0;
  alignas(128) std::uint32_t rung = 0;      ///< tickets whose entries the doorbell covers
  alignas(128) std::uint32_t consumed = 0;  ///< tickets whose completions the head doorbell covers
};

struct raw_workload {
  std::uint64_t blocks = 0;
  std::uint32_t block_bytes = 512;  ///< of a command; a multiple of the drive's block
  std::uint32_t lba_bytes = 512;
  std::uint32_t write_percent = 0;
  std::uint32_t rounds = 1;  ///< commands of each thread
  bool in_order = false;     ///< thread t's nth command is block n * threads + t, in place of any block
  bool check_all = false;    ///< every word of every block, in place of the first
  std::uint32_t lanes = 32;  ///< threads of each warp that submit; the others idle
  std::uint64_t seed = 1;
  std::uint64_t deadline_ns = 10'000'000'000;
};

/// What the client saw. Zeroed by the host.
struct raw_result {
  std::uint64_t commands = 0;
  std::uint64_t writes = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;  ///< words
  std::uint64_t timed_out = 0;
  std::uint64_t latency_sum_ns = 0;
  std::uint64_t latency_min_ns = ~std::uint64_t{0};
  std::uint64_t latency_max_ns = 0;
  static constexpr std::uint32_t bins = 8192;  ///< of 32 ns; the last holds the rest
  std::uint32_t latency_bin[bins] = {};
};

FOREBAY_DEVICE std::uint32_t pattern(std::uint64_t block, std::uint32_t word) {
  std::uint64_t const z = (block * 0x9e3779b97f4a7c15u) ^ (std::uint64_t{word} * 0xc2b2ae3d27d4eb4fu);
  return static_cast<std::uint32_t>(z >> 32 ^ z);
}

/// Fills a drive's memory with the pattern that the client expects.
template <class M>
struct fill_pattern {
  std::uint32_t* words = nullptr;
  std::uint64_t blocks = 0;
  std::uint32_t block_bytes = 512;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const in_block = block_bytes / 4;
    std::uint64_t const total = blocks * in_block;
    for (std::uint64_t i = M::thread_rank(); i < total; i += M::thread_count()) {
      words[i] = pattern(i / in_block, static_cast<std::uint32_t>(i % in_block));
    }
  }
};

template <class M>
struct raw_client {
  raw_queue* queues = nullptr;
  std::uint32_t queue_count = 0;
  std::byte* buffers = nullptr;  ///< `block_bytes` for each thread
  std::int64_t bus_offset = 0;   ///< from an address to what the drive calls it
  raw_workload work;
  raw_result* result = nullptr;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint32_t const thread = M::thread_rank();
    raw_queue& queue = queues[thread / 32 % queue_count];
    std::byte* const mine = buffers + std::uint64_t{thread} * work.block_bytes;
    std::uint64_t sum_ns = 0, min_ns = ~std::uint64_t{0}, max_ns = 0, wrong = 0, failed = 0, writes = 0;
    std::uint32_t const n = work.lanes;
    std::uint64_t const end_ns = M::clock_ns() + work.deadline_ns;
    bool stuck = false;

    for (std::uint32_t round = 0; round < work.rounds && !stuck; ++round) {
      std::uint64_t const draw = emulator::mix(work.seed ^ emulator::mix((std::uint64_t{thread} << 32) + round));
      std::uint64_t const next = std::uint64_t{round} * M::thread_count() + thread;
      std::uint64_t const block = (work.in_order ? next : draw >> 8) % work.blocks;
      bool const write = (draw & 0xff) * 100 < work.write_percent * 256u;
      if (write) put(mine, block);

      std::uint32_t base = 0;
      // Relaxed: a ticket carries nothing.
      if (lane == 0) base = simt::atomic<M>(queue.tickets).fetch_add(n, simt::order::relaxed);
      base = warp.shfl(base, 0);
      if (lane == 0) {
        stuck = !M::wait_until(
            [&] {
              // Acquire: pairs with the release of `consumed` below; the slots' last commands have completed.
              std::uint32_t const consumed = simt::atomic<M>(queue.consumed).load(simt::order::acquire);
              return base + n - consumed < queue.entries;
            },
            end_ns);
      }
      stuck = warp.any(stuck);
      if (stuck) break;
      warp.sync();  // what the first lane acquired is every lane's

      std::uint32_t const ticket = base + lane;
      std::uint32_t const slot = ticket & (queue.entries - 1);
      std::uint32_t const lap = ticket / queue.entries;
      std::uint64_t const start_ns = M::clock_ns();
      if (lane < n) submit(queue, slot, write, block, mine);
      warp.sync();
      // Release: with the doorbell it pairs with the drive's acquire of the doorbell; all lanes' entries are there.
      M::fence(simt::scope::system, simt::order::release);
      if (lane == 0) {
        stuck = !M::wait_until(
            [&] {
              // Acquire: pairs with the release of the same word below, so that doorbells follow each other.
              return simt::atomic<M>(queue.rung).load(simt::order::acquire) == base;
            },
            end_ns);
        M::st_mmio(queue.tail_doorbell, (base + n) & (queue.entries - 1));
        simt::atomic<M>(queue.rung).store(base + n, simt::order::release);  // release: see above
      }

      std::uint32_t status = 0;
      if (lane < n && !wait(queue, slot, lap, end_ns, status)) stuck = true;
      std::uint64_t const took_ns = M::clock_ns() - start_ns;
      stuck = warp.any(stuck);
      if (stuck) break;
      if (lane < n) {
        sum_ns += took_ns;
        if (took_ns < min_ns) min_ns = took_ns;
        if (took_ns > max_ns) max_ns = took_ns;
        std::uint64_t const bin = took_ns / 32;
        // Relaxed: a counter.
        simt::atomic<M>(result->latency_bin[bin < raw_result::bins ? bin : raw_result::bins - 1])
            .fetch_add(1, simt::order::relaxed);
        failed += status != 0;
        writes += write;
        if (!write) wrong += check(mine, block);
      }
      warp.sync();
      if (lane == 0) {
        stuck = !M::wait_until(
            [&] {
              // Acquire: pairs with the release of the same word below, so that heads follow each other.
              return simt::atomic<M>(queue.consumed).load(simt::order::acquire) == base;
            },
            end_ns);
        // Release, both: pair with the drive's acquire of the head doorbell, and with the acquires of the warps that
        // wait for room or for their turn; the lanes have read their entries.
        simt::atomic<M, simt::scope::system>(*queue.head_doorbell)
            .store((base + n) & (queue.entries - 1), simt::order::release);
        simt::atomic<M>(queue.consumed).store(base + n, simt::order::release);
      }
      stuck = warp.any(stuck);
    }
    auto const add = [&](std::uint64_t& to, std::uint64_t value) {
      simt::atomic<M>(to).fetch_add(value, simt::order::relaxed);  // relaxed: a counter
    };
    if (stuck && lane == 0) add(result->timed_out, 1);
    if (lane >= n) return;
    if (!stuck) add(result->commands, work.rounds);
    add(result->writes, writes);
    add(result->failed, failed);
    add(result->wrong, wrong);
    add(result->latency_sum_ns, sum_ns);
    simt::atomic<M>(result->latency_max_ns).fetch_max(max_ns, simt::order::relaxed);  // relaxed: as above
    // Relaxed, both: as above.
    std::uint64_t seen = simt::atomic<M>(result->latency_min_ns).load(simt::order::relaxed);
    while (min_ns < seen &&
           !simt::atomic<M>(result->latency_min_ns).compare_exchange(seen, min_ns, simt::order::relaxed)) {
    }
  }

 private:
  FOREBAY_DEVICE void submit(raw_queue& queue, std::uint32_t slot, bool write, std::uint64_t block,
                             std::byte* mine) const {
    auto entry =
        nvme::make_io_command(write ? nvme::io_opcode::write : nvme::io_opcode::read, static_cast<std::uint16_t>(slot),
                              1, block * (work.block_bytes / work.lba_bytes), work.block_bytes / work.lba_bytes);
    entry.prp1 = reinterpret_cast<std::uint64_t>(mine) + static_cast<std::uint64_t>(bus_offset);
    entry.prp2 = work.block_bytes > 4096 ? (entry.prp1 | 4095) + 1 : 0;
    auto* const to = reinterpret_cast<simt::vec16*>(queue.sq + slot);
    for (std::uint32_t i = 0; i < 4; ++i) {
      simt::vec16 part;
      std::memcpy(&part, reinterpret_cast<std::byte const*>(&entry) + 16 * i, 16);
      M::st(to + i, part);
    }
  }

  /// Waits for the completion of command `slot`. Each ticket looks at its own place in the completion ring; where that
  /// holds another's command, it tells that one.
  FOREBAY_DEVICE bool wait(raw_queue& queue, std::uint32_t slot, std::uint32_t lap, std::uint64_t end_ns,
                           std::uint32_t& status) const {
    std::uint32_t dw3 = 0;
    std::uint32_t const phase = (lap & 1) ^ 1;
    if (!M::wait_until(
            [&] {
              // Acquire: pairs with the drive's release of the phase tag; the data is there.
              dw3 = simt::atomic<M, simt::scope::system>(queue.cq[slot].dw3).load(simt::order::acquire);
              return (dw3 >> 16 & 1) == phase;
            },
            end_ns)) {
      return false;
    }
    status = dw3 >> 17;
    std::uint32_t const id = dw3 & 0xffff;
    if (id == slot) return true;
    // Release: pairs with the acquire below; the data that the completion announced is there for the other too.
    simt::atomic<M>(queue.done[id]).store((lap << 8 | (status & 0x7f) << 1 | 1), simt::order::release);
    return M::wait_until(
        [&] {
          // Acquire: pairs with the release above, of the thread that saw the completion.
          std::uint32_t const word = simt::atomic<M>(queue.done[slot]).load(simt::order::acquire);
          status = word >> 1 & 0x7f;
          return (word & 1) != 0 && simt::atomic<M>(queue.done[slot]).exchange(0, simt::order::relaxed) != 0;
        },
        end_ns);
  }

  FOREBAY_DEVICE void put(std::byte* mine, std::uint64_t block) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(mine);
    std::uint32_t const count = work.check_all ? work.block_bytes / 4 : 1;
    for (std::uint32_t w = 0; w < count; ++w) M::st(words + w, pattern(block, w));
  }
  FOREBAY_DEVICE std::uint64_t check(std::byte const* mine, std::uint64_t block) const {
    auto const* const words = reinterpret_cast<std::uint32_t const*>(mine);
    std::uint32_t const count = work.check_all ? work.block_bytes / 4 : 1;
    std::uint64_t wrong = 0;
    for (std::uint32_t w = 0; w < count; ++w) wrong += M::ld(words + w) != pattern(block, w);
    return wrong;
  }
};

}  // namespace forebay::bench
