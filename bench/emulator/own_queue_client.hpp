// SPDX-License-Identifier: Apache-2.0
//! \file
//! A client in which each warp has a queue of its own: nothing is shared, and a warp keeps the state of its queue in
//! registers.
//!
//! The threads of a warp go on together, when the commands of all of them are complete, like those of a program whose
//! threads each wait for their own data. Their next commands lie in the queue by then, so that only the doorbell must
//! be rung to go on.
#pragma once

#include <cstdint>

#include "emulator/raw_thread.hpp"
#include "emulator/raw_workload.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

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
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint32_t const thread = M::thread_rank() - 32 * first_warp;
    std::uint32_t const n = work.lanes;
    bool const used = lane < n;
    raw_queue& queue = queues[thread / 32];
    raw_rings const rings = queue;
    raw_thread<M> mine(area, work, thread, M::thread_count() - 32 * first_warp);
    std::uint32_t head = raw_queue::reservation{M::ld(&queue.reserved.word)}.tickets();
    std::uint32_t told = head, lost = 0;
    std::uint64_t const begin_ns = M::clock_ns();
    std::uint64_t now_ns = begin_ns;
    bool landed = false, stuck = false;

    std::uint32_t left = work.rounds;
    if (left != 0) store_next(mine, rings, head, warp);
    while (left != 0) {
      std::uint64_t const start_ns = now_ns;
      if (lane == 0) M::st_mmio(rings.tail_doorbell, (head + n) & (rings.entries - 1));
      mine.depart();
      settle(mine, landed, warp);
      if (--left != 0) store_next(mine, rings, head + n, warp);
      if (head != told && head - told >= rings.cq_entries / 4) tell(rings, head, told, lane);

      sight const seen = wait(rings, head + lane, used, begin_ns + work.deadline_ns);
      landed = false;
      stuck = warp.any(used && !seen.there);
      if (stuck) break;
      now_ns = M::clock_ns();
      head += n;
      landed = land(mine, seen, start_ns, warp);
      lost += n - simt::team<M>::ones(warp.ballot(landed));
      if (work.run_ns != 0 && warp.any(lane == 0 && now_ns - begin_ns >= work.run_ns)) break;
    }
    settle(mine, landed, warp);
    if (head != told) tell(rings, head, told, lane);
    if (lane == 0) {
      // For the next launch.
      std::uint32_t const batches = raw_queue::reservation{M::ld(&queue.reserved.word)}.batches();
      M::st(&queue.reserved.word, std::uint64_t{batches} << 32 | head);
      M::st(&queue.consumed, head);
      // Relaxed, both: counters.
      if (stuck) simt::atomic<M>(result->timed_out).fetch_add(1, simt::order::relaxed);
      if (lost != 0) simt::atomic<M>(result->failed).fetch_add(std::uint64_t{lost}, simt::order::relaxed);
    }
    if (used) mine.add_to(*result);
  }

 private:
  /// A completion, and when it was found at its place in the ring.
  struct sight {
    std::uint32_t dw3 = 0;
    bool there = false;
    std::uint64_t at_ns = 0;
  };

  /// Draws the next command of each lane and stores it, to be covered by a doorbell later.
  template <class Warp>
  FOREBAY_DEVICE void store_next(raw_thread<M>& mine, raw_rings const& rings, std::uint32_t first,
                                 Warp const& warp) const {
    std::uint32_t const lane = warp.thread_rank();
    if (lane < work.lanes) {
      mine.prepare();
      // Two batches fit into the ring, and all commands of the batch before the one in flight have completed: the drive
      // has read the entries that were here.
      mine.store(rings.slot(first + lane), lane);
    }
    warp.sync();
    // Release: with the doorbell that follows it pairs with the drive's acquire of the doorbell; all lanes' entries and
    // data are there.
    M::fence(simt::scope::system, simt::order::release);
  }

  FOREBAY_DEVICE static sight wait(raw_rings const& rings, std::uint32_t ticket, bool waits, std::uint64_t end_ns) {
    sight it;
    if (!waits) return it;
    it.there = M::wait_until(
        [&] {
          for (std::uint32_t turn = 0; turn < M::looks_per_poll; ++turn) {
            // Relaxed: `settle` has the fence, before anything is done with the data.
            it.dw3 = simt::atomic<M, simt::scope::system>(rings.place(ticket)).load(simt::order::relaxed);
            if (!rings.posted(ticket, it.dw3)) continue;
            it.at_ns = M::clock_ns();
            return true;
          }
          return false;
        },
        end_ns);
    return it;
  }

  /// Whether one of the completions that the lanes found is the calling lane's.
  template <class Warp>
  FOREBAY_DEVICE bool land(raw_thread<M>& mine, sight const& seen, std::uint64_t start_ns, Warp const& warp) const {
    std::uint32_t const lane = warp.thread_rank();
    bool const used = lane < work.lanes;
    std::uint32_t from = lane;
    bool found = used && (seen.dw3 & 0xffff) == lane;
    if (warp.any(used && !found)) {
      for (std::uint32_t k = 0; k < work.lanes; ++k) {
        if ((warp.shfl(seen.dw3, k) & 0xffff) != lane) continue;
        from = k;
        found = used;
      }
    }
    warp.sync();
    std::uint32_t const dw3 = warp.shfl(seen.dw3, from);
    std::uint64_t const at_ns = warp.shfl(seen.at_ns, from);
    if (found) mine.land(at_ns - start_ns, dw3 >> 17);
    return found;
  }

  /// Counts and checks the commands that have landed.
  template <class Warp>
  FOREBAY_DEVICE void settle(raw_thread<M>& mine, bool landed, Warp const& warp) const {
    // Acquire: with the loads of the phase tags it pairs with the drive's release of those; the data is there.
    M::fence(simt::scope::system, simt::order::acquire);
    warp.sync();  // what one lane acquired is every lane's
    if (landed) mine.account(*result);
  }

  /// Moves the head doorbell over what has been read.
  FOREBAY_DEVICE static void tell(raw_rings const& rings, std::uint32_t head, std::uint32_t& told, std::uint32_t lane) {
    // Release: pairs with the drive's acquire of the head doorbell; the lanes have read their entries.
    if (lane == 0) {
      simt::atomic<M, simt::scope::system>(*rings.head_doorbell)
          .store(head & (rings.cq_entries - 1), simt::order::release);
    }
    told = head;
  }
};

}  // namespace forebay::bench
