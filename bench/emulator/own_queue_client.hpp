// SPDX-License-Identifier: Apache-2.0
//! \file
//! A client of which each warp has a queue of its own: nothing is shared, and what a warp knows of its queue is in
//! registers.
//!
//! Lanes go on by themselves: in each turn those whose commands have completed put their next ones into the queue
//! together, under one doorbell, before anything else is done. The time at which a thread saw its command complete
//! is the time at which its next one begins, so a thread's commands follow each other without a gap.
#pragma once

#include <cstdint>

#include "emulator/raw_thread.hpp"
#include "emulator/raw_workload.hpp"
#include "forebay/simt/team.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::bench {

template <class M>
struct own_queue_client {
  static constexpr unsigned max_threads_per_block = 512;
  raw_queue* queues = nullptr;  ///< as many as warps
  raw_area area;
  raw_workload work;
  raw_result* result = nullptr;
  std::uint32_t first_warp = 0;  ///< of the launch; those before are not the client's

  FOREBAY_DEVICE void operator()() const {
    using team = simt::team<M>;
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint32_t const thread = M::thread_rank() - 32 * first_warp;
    raw_queue& queue = queues[thread / 32];
    raw_rings const rings = queue;
    raw_thread<M> mine(area, work, thread, M::thread_count() - 32 * first_warp);
    std::uint32_t tail = raw_queue::reservation{M::ld(&queue.reserved.word)}.tickets();
    std::uint32_t head = tail, told = tail;
    std::uint64_t const end_ns = M::clock_ns() + work.deadline_ns;

    bool prepared = lane < work.lanes && work.rounds != 0;
    if (prepared) mine.prepare();
    bool asks = prepared, flies = false, landed = false, stuck = false;
    std::uint32_t lost = 0;
    std::uint64_t now_ns = M::clock_ns(), start_ns = 0;
    for (;;) {
      std::uint32_t const asking = warp.ballot(asks);
      if (asks) {
        std::uint32_t const before = team::ones(asking & ((1u << lane) - 1));
        mine.submit(rings.slot(tail + before), lane);
        start_ns = now_ns;
        prepared = false;
        flies = true;
      }
      tail += team::ones(asking);
      warp.sync();
      // Release: with the doorbell it pairs with the drive's acquire of the doorbell; all lanes' entries are there.
      // Acquire: with the loads of the phase tags below it pairs with the drive's release of those; the data is there.
      M::fence(simt::scope::system, simt::order::acq_rel);
      if (lane == 0 && asking != 0) M::st_mmio(rings.tail_doorbell, tail & (rings.entries - 1));
      warp.sync();  // what one lane acquired is every lane's

      if (landed) mine.account(*result);
      if (asks && !mine.finished()) {
        // Ahead of its time, so that then it need not be drawn.
        mine.prepare();
        prepared = true;
      }
      if (head != told && (head == tail || head - told >= rings.cq_entries / 4)) {
        // Release: pairs with the drive's acquire of the head doorbell; the lanes have read their entries.
        if (lane == 0) {
          simt::atomic<M, simt::scope::system>(*rings.head_doorbell)
              .store(head & (rings.cq_entries - 1), simt::order::release);
        }
        told = head;
      }
      if (head == tail) break;

      // Each lane reads a place of its own; whether to go on is up to the first, which all read.
      bool const looks = lane < tail - head;
      std::uint32_t first = 0, here = 0;
      stuck = !M::wait_until(
          [&] {
            for (std::uint32_t turn = 0; turn < M::looks_per_poll; ++turn) {
              first = look(rings, head);
              if (looks) here = lane == 0 ? first : look(rings, head + lane);
              if (rings.posted(head, first)) return true;
            }
            return false;
          },
          end_ns);
      now_ns = M::clock_ns();
      stuck = warp.any(stuck);
      if (stuck) break;
      std::uint32_t const there = warp.ballot(looks && rings.posted(head + lane, here));
      std::uint32_t const count = team::ones(there & ~(there + 1));  // without those behind one that is missing
      landed = false;
      for (std::uint32_t k = 0; k < count; ++k) {
        std::uint32_t const entry = warp.shfl(here, k);
        if (!flies || (entry & 0xffff) != lane) continue;
        mine.land(now_ns - start_ns, entry >> 17);
        landed = true;
        flies = false;
      }
      lost += count - team::ones(warp.ballot(landed));
      head += count;
      asks = landed && prepared;
    }
    if (lane == 0) {
      // For the next launch.
      std::uint32_t const batches = raw_queue::reservation{M::ld(&queue.reserved.word)}.batches();
      M::st(&queue.reserved.word, std::uint64_t{batches} << 32 | tail);
      M::st(&queue.consumed, tail);
      // Relaxed, both: counters.
      if (stuck) simt::atomic<M>(result->timed_out).fetch_add(1, simt::order::relaxed);
      if (lost != 0) simt::atomic<M>(result->failed).fetch_add(std::uint64_t{lost}, simt::order::relaxed);
    }
    if (lane < work.lanes) mine.add_to(*result);
  }

 private:
  FOREBAY_DEVICE static std::uint32_t look(raw_rings const& rings, std::uint32_t ticket) {
    // Relaxed: the fence above follows before anything is done with it.
    return simt::atomic<M, simt::scope::system>(rings.place(ticket)).load(simt::order::relaxed);
  }
};

}  // namespace forebay::bench
