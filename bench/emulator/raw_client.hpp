// SPDX-License-Identifier: Apache-2.0
//! \file
//! A client in which any number of warps share a queue. A warp submits one command for each of its threads at a time,
//! and goes on when all of them are complete. The rate that it reaches is an upper bound for any client library.
//!
//! A warp waits for no other warp, except for room in the queue. It takes its places with one atomic addition, and
//! marks in one word that their entries are written. The warp that finds by that word that its own entries are next
//! rings the doorbell for them and for all written entries that follow.
#pragma once

#include <cstdint>

#include "emulator/raw_thread.hpp"
#include "emulator/raw_workload.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

template <class M>
struct raw_client {
  static constexpr unsigned max_threads_per_block = 1024;
  raw_queue* queues = nullptr;
  std::uint32_t queue_count = 0;
  std::uint32_t* told = nullptr;  ///< by thread of the client, zero: how its command ended, if another one saw that
  raw_area area;
  raw_workload work;
  raw_result* result = nullptr;
  std::uint32_t first_warp = 0;  ///< of the launch; those before are not the client's

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint32_t const n = work.lanes;
    std::uint32_t const threads = M::thread_count() - 32 * first_warp;
    std::uint32_t const thread = M::thread_rank() - 32 * first_warp;
    share const at(*this, thread, threads);
    raw_queue& queue = *at.queue;
    raw_thread<M> mine(area, work, thread, threads);
    bool const used = lane < n;
    std::uint64_t const end_ns = M::clock_ns() + work.deadline_ns;
    std::uint32_t consumed = 0, through = 0;
    std::uint64_t const stop_ns = work.run_ns == 0 ? ~std::uint64_t{0} : M::clock_ns() + work.run_ns;
    bool landed = false, unread = false, stuck = false;

    if (used && work.rounds != 0) mine.prepare();
    for (std::uint32_t round = 0; round < work.rounds; ++round) {
      if (round != 0 && warp.any(lane == 0 && M::clock_ns() >= stop_ns)) break;
      raw_queue::reservation got;
      // Acquire and release: pair with each other. A thread of one of the last `entries` commands before mine saw it
      // complete before that thread came here, so the drive has read what was in my places.
      if (lane == 0) {
        got.word = simt::atomic<M>(queue.reserved.word).fetch_add(std::uint64_t{1} << 32 | n, simt::order::acq_rel);
        // Acquire: as below.
        if (round == 0) consumed = simt::atomic<M>(queue.consumed).load(simt::order::acquire);
      }
      got = warp.shfl(got, 0);
      consumed = warp.shfl(consumed, 0);
      if (got.tickets() + n - consumed > at.room) {
        // Room may depend on completions that this warp has read and not yet given back.
        if (unread) collect(queue, through, warp);
        if (landed && used) mine.account(*result);
        landed = unread = false;
        if (lane == 0) {
          stuck = !M::wait_until(
              [&] {
                // Acquire: pairs with the release of `consumed` below; the drive has read the entries of those
                // commands.
                consumed = simt::atomic<M>(queue.consumed).load(simt::order::acquire);
                return got.tickets() + n - consumed <= at.room;
              },
              end_ns);
        }
        consumed = warp.shfl(consumed, 0);
        stuck = warp.any(stuck);
        if (stuck) break;
      }
      warp.sync();  // what the first lane acquired is every lane's

      std::uint32_t const ticket = got.tickets() + lane;
      std::uint64_t const start_ns = M::clock_ns();
      if (used) mine.store(at.rings.slot(ticket), at.command_id);
      if (used) mine.depart();
      warp.sync();
      if (lane == 0) ring(queue, at.rings, got);
      if (unread) collect(queue, through, warp);
      if (landed && used) mine.account(*result);
      landed = unread = false;
      if (used && !mine.finished()) mine.prepare();

      sight seen;
      stuck = warp.any(used && !look(at, ticket, end_ns, seen));
      if (stuck) break;
      through = got.batches();
      unread = true;
      bool const elsewhere = used && !seen.mine;
      if (warp.any(elsewhere)) {
        // The drive may need these places for the completions that this warp still waits for.
        collect(queue, through, warp);
        unread = false;
        stuck = warp.any(elsewhere && !be_told(thread, end_ns, seen));
        if (stuck) break;
      }
      if (used) mine.land(seen.at_ns - start_ns, seen.status);
      landed = true;
    }
    if (unread) collect(queue, through, warp);
    if (landed && used) mine.account(*result);
    // Relaxed: a counter.
    if (stuck && lane == 0) simt::atomic<M>(result->timed_out).fetch_add(1, simt::order::relaxed);
    if (used) mine.add_to(*result);
  }

 private:
  /// Which queue a thread shares, and how.
  struct share {
    raw_queue* queue;
    raw_rings rings;
    std::uint32_t first;       ///< warp of the client that uses it; the next is `queue_count` later
    std::uint32_t command_id;  ///< that no other thread of the queue has
    std::uint32_t room;        ///< commands at most from the first that is not consumed to the last in the queue

    FOREBAY_DEVICE share(raw_client const& all, std::uint32_t thread, std::uint32_t threads) {
      std::uint32_t const n = all.work.lanes, rank = thread / 32 / all.queue_count;
      first = thread / 32 % all.queue_count;
      queue = all.queues + first;
      rings = *queue;
      command_id = 32 * rank + thread % 32;
      std::uint32_t const warps = (threads / 32 - first + all.queue_count - 1) / all.queue_count;
      // If the queue has places for all, the only limit is that a warp must not be a lap of the completion ring ahead:
      // one late completion keeps no other warp from going on.
      bool const for_all = warps <= 32 && warps * n < rings.entries;
      std::uint32_t const most = for_all ? rings.cq_entries : rings.entries - 1;
      std::uint32_t const batches = for_all ? raw_queue::marks : 32;
      room = most < batches * n ? most : batches * n;
    }
  };

  /// Marks the entries of a batch as written, and rings the doorbell for them if all batches before them are covered.
  /// Called by one lane, after its warp came together.
  FOREBAY_DEVICE void ring(raw_queue& queue, raw_rings const& rings, raw_queue::reservation batch) const {
    std::uint64_t const mine = std::uint64_t{1} << (batch.batches() % 32);
    // Release: the entries; acquire: those of the other warps, for which the caller may ring. Each pairs with the
    // other, and with the exchange below.
    std::uint64_t word = simt::atomic<M>(queue.written).fetch_add(mine, simt::order::acq_rel);
    if (static_cast<std::uint32_t>(word >> 32) != batch.batches()) return;  // the next batch's warp rings for this one
    word += mine;
    for (;;) {
      std::uint32_t const turn = batch.batches() % 32, bits = static_cast<std::uint32_t>(word);
      std::uint32_t const from_mine = turn == 0 ? bits : bits >> turn | bits << (32 - turn);
      std::uint32_t const follow = from_mine & ~(from_mine + 1);
      std::uint32_t const count = simt::team<M>::ones(follow);
      // Acquire: after an exchange that failed. Release: with the doorbell it pairs with the drive's acquire of the
      // doorbell; the entries of all these batches are there.
      M::fence(simt::scope::system, simt::order::acq_rel);
      M::st_mmio(rings.tail_doorbell, (batch.tickets() + count * work.lanes) & (rings.entries - 1));
      std::uint32_t const covered = turn == 0 ? follow : follow << turn | follow >> (32 - turn);
      std::uint64_t const next = std::uint64_t{batch.batches() + count} << 32 | (bits & ~covered);
      // Release: pairs with the acquire of the warp that is next, so that doorbells follow each other. Acquire: as
      // above.
      if (simt::atomic<M>(queue.written).compare_exchange(word, next, simt::order::acq_rel)) return;
    }
  }

  /// How a thread's command ended, if it is known, and when that was seen.
  struct sight {
    std::uint32_t status = 0;
    bool mine = false;
    std::uint64_t at_ns = 0;
  };

  /// Waits for a completion at the place of `ticket` in the completion ring, which the calling thread must read. If it
  /// is of another thread's command, tells that thread.
  FOREBAY_DEVICE bool look(share const& at, std::uint32_t ticket, std::uint64_t end_ns, sight& seen) const {
    std::uint32_t dw3 = 0;
    if (!M::wait_until(
            [&] {
              // Acquire: pairs with the drive's release of the phase tag; the data is there.
              dw3 = simt::atomic<M, simt::scope::system>(at.rings.place(ticket)).load(simt::order::acquire);
              return at.rings.posted(ticket, dw3);
            },
            end_ns)) {
      return false;
    }
    std::uint32_t const id = dw3 & 0xffff;
    seen = {dw3 >> 17, id == at.command_id, M::clock_ns()};
    if (seen.mine) return true;
    std::uint32_t const other = (id / 32 * queue_count + at.first) * 32 + id % 32;
    // Release: pairs with the acquire below; the data that the completion announced is there for the other too.
    simt::atomic<M>(told[other]).store(seen.status << 1 | 1, simt::order::release);
    return true;
  }
  /// Waits for the thread that found the completion of the calling thread's command at its own place.
  FOREBAY_DEVICE bool be_told(std::uint32_t thread, std::uint64_t end_ns, sight& seen) const {
    std::uint32_t word = 0;
    if (!M::wait_until(
            [&] {
              // Acquire: pairs with the release above, of the thread that saw the completion.
              word = simt::atomic<M>(told[thread]).load(simt::order::acquire);
              return word != 0;
            },
            end_ns)) {
      return false;
    }
    // Relaxed: the next thread that writes it has seen a completion of a command that comes after this one.
    simt::atomic<M>(told[thread]).store(0, simt::order::relaxed);
    seen = {word >> 1, true, M::clock_ns()};
    return true;
  }

  /// Marks the completions at the places of a batch as read, and moves the head over all batches that are. Called by
  /// all lanes.
  template <class Warp>
  FOREBAY_DEVICE void collect(raw_queue& queue, std::uint32_t batch, Warp const& warp) const {
    std::uint32_t const lane = warp.thread_rank();
    warp.sync();  // the lanes have read their places
    bool turn = false;
    if (lane == 0) {
      // Release: pairs with the acquires below, of the warp that moves the head over the batch.
      simt::atomic<M>(queue.through[batch % raw_queue::marks]).store(batch + 1, simt::order::release);
      turn = take_turn(queue);
    }
    while (warp.any(turn)) {
      warp.sync();  // what the first lane acquired is every lane's
      std::uint32_t const next = M::ld(&queue.collected);
      std::uint32_t const is_through = warp.ballot(read(queue, next + lane));
      std::uint32_t const count = simt::team<M>::ones(is_through & ~(is_through + 1));
      warp.sync();  // what the lanes acquired is the first one's
      if (lane != 0) continue;
      if (count != 0) {
        std::uint32_t const consumed = simt::atomic<M>(queue.consumed).load(simt::order::relaxed) + count * work.lanes;
        M::st(&queue.collected, next + count);
        // Release, both: pair with the drive's acquire of the head doorbell, and with the acquire of a warp that waits
        // for room; the places have been read.
        simt::atomic<M, simt::scope::system>(*queue.head_doorbell)
            .store(consumed & (queue.cq_entries - 1), simt::order::release);
        simt::atomic<M>(queue.consumed).store(consumed, simt::order::release);
      }
      // Release: pairs with the acquire of the warp that takes the turn next. Acquire: pairs with the release of a warp
      // that found the turn taken; its mark is seen here, or its exchange finds the turn free.
      simt::atomic<M>(queue.collecting).exchange(0, simt::order::acq_rel);
      turn = read(queue, next + count) && take_turn(queue);
    }
  }
  FOREBAY_DEVICE static bool take_turn(raw_queue& queue) {
    // Acquire and release: see where it is given back.
    return simt::atomic<M>(queue.collecting).exchange(1, simt::order::acq_rel) == 0;
  }
  FOREBAY_DEVICE static bool read(raw_queue& queue, std::uint32_t batch) {
    // Acquire: pairs with the release in `collect`.
    return simt::atomic<M>(queue.through[batch % raw_queue::marks]).load(simt::order::acquire) == batch + 1;
  }
};

}  // namespace forebay::bench
