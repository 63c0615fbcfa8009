// SPDX-License-Identifier: Apache-2.0
//! \file
//! One level of breadth-first search whose threads read neighbour lists straight from the drive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "apps/common/in_flight.hpp"
#include "apps/common/latency_histogram.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::graph {

/// The distance of a vertex that no path has reached.
inline constexpr std::uint32_t unreached = ~std::uint32_t{0};

/// Words that the threads of a level share. Zeroed before each level.
struct level_control {
  std::uint32_t claimed = 0;    ///< vertices of the frontier that some thread has taken, and attempts beyond its end
  std::uint32_t next_size = 0;  ///< vertices of the next frontier
  std::uint32_t stop = 0;       ///< some thread met an error
};

/// What one thread counted, over all levels.
struct thread_result {
  apps::latency_summary latency;
  std::uint64_t read_bytes = 0;
  std::uint64_t useful_bytes = 0;  ///< of them, neighbour ids of frontier vertices
  std::uint64_t errors = 0;
  std::uint64_t bad_neighbours = 0;  ///< ids on the drive that name no vertex
  std::uint32_t first_bad_neighbour = 0;
  status first_error;
};

/// One read of one thread: whole drive blocks of one vertex's list.
struct list_read {
  std::uint64_t offset_bytes;  ///< in the edge list, a multiple of the alignment
  std::uint64_t bytes;
  std::uint64_t list_begin;  ///< the list's own bytes in the edge list, which this read overlaps
  std::uint64_t list_end;
};

/// `Storage` is a `storage_ref<M>` or a model of its `read_async`; `Buffer` a `buffer_ref`. Compressed sparse rows: the
/// out-neighbours of v are the 4-byte ids [row_begin[v], row_begin[v + 1]) of the edge list.
template <class M, class Storage, class Buffer>
struct bfs_level {
  using token_type =
      decltype(std::declval<Storage const&>().read_async(std::declval<Buffer>(), std::uint64_t{}, std::uint64_t{}));
  using read_type = apps::in_flight_slot<token_type, list_read>;

  Storage storage;  ///< a window whose first byte is the edge list's
  Buffer buffer;    ///< `threads * reads_per_thread * request_bytes`
  std::uint64_t alignment_bytes;
  std::uint64_t request_bytes;  ///< longest read; a multiple of `alignment_bytes`
  std::uint64_t timeout_ns;     ///< a thread gives up if none of its reads completes for this long
  std::uint32_t threads;
  std::uint32_t reads_per_thread;
  std::uint32_t vertices;
  std::uint32_t level;  ///< distance of the frontier
  std::uint32_t frontier_size;
  std::uint64_t const* row_begin;  ///< `vertices + 1`
  std::uint32_t* distances;        ///< `vertices`
  std::uint32_t const* frontier;
  std::uint32_t* next_frontier;  ///< room for `vertices`
  level_control* control;
  read_type* reads;        ///< `threads * reads_per_thread`, zeroed
  thread_result* results;  ///< `threads`
  std::uint64_t* latency_bins;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const rank = M::thread_rank();
    if (rank < threads) thread(*this, rank).run();
  }

 private:
  class thread {
   public:
    FOREBAY_DEVICE thread(bfs_level const& k, std::uint32_t rank)
        : k_(k),
          rank_(rank),
          reads_(k.reads, {rank * k.reads_per_thread, k.reads_per_thread}, k.timeout_ns),
          result_(k.results[rank]),
          latency_(k.latency_bins, result_.latency) {}

    FOREBAY_DEVICE void run() {
      for (std::uint32_t i = 0; i < reads_.size(); ++i) begin(i);
      while (reads_.count() != 0) reads_.wait(*this);
      result_.latency = latency_.summary();
      k_.results[rank_] = result_;
    }

    FOREBAY_DEVICE token_type submit(std::uint32_t i) const {
      list_read const& r = reads_[i].command;
      return k_.storage.read_async(room(i), r.offset_bytes, r.bytes);
    }

    /// Visits the neighbours that were read, and starts a read in the slot of the one that ended.
    FOREBAY_DEVICE void finish(std::uint32_t i, status outcome, std::uint64_t now) {
      if (!outcome) return fail(outcome);
      latency_.add(now - reads_[i].begun_ns);
      result_.read_bytes += reads_[i].command.bytes;
      visit(reads_[i].command, room(i).data());
      begin(i);
    }

   private:
    FOREBAY_DEVICE Buffer room(std::uint32_t i) const {
      return k_.buffer.subspan(reads_.number(i) * k_.request_bytes, k_.request_bytes);
    }

    /// Goes on to a vertex of the frontier that has a list. Returns false if the frontier is exhausted or a thread met
    /// an error.
    FOREBAY_DEVICE bool claim_vertex() {
      while (cursor_ >= list_end_) {
        // relaxed, both: `stop` only saves work, `claimed` only hands out numbers; the frontier is older than the
        // launch.
        if (simt::atomic<M>(k_.control->stop).load(simt::order::relaxed) != 0) return false;
        if (exhausted_) return false;
        std::uint32_t const index = simt::atomic<M>(k_.control->claimed).fetch_add(1, simt::order::relaxed);
        if (index >= k_.frontier_size) {
          exhausted_ = true;
          return false;
        }
        std::uint32_t const vertex = M::ld(k_.frontier + index);
        list_begin_ = M::ld(k_.row_begin + vertex) * sizeof(std::uint32_t);
        list_end_ = M::ld(k_.row_begin + vertex + 1) * sizeof(std::uint32_t);
        cursor_ = list_begin_ / k_.alignment_bytes * k_.alignment_bytes;
        result_.useful_bytes += list_end_ - list_begin_;
        if (list_begin_ == list_end_) cursor_ = list_end_;
      }
      return true;
    }

    /// Starts the next read of the current list in free slot `i`, if there is one. No block of a list is read twice.
    FOREBAY_DEVICE void begin(std::uint32_t i) {
      if (!claim_vertex()) return;
      list_read& r = reads_[i].command;
      std::uint64_t const aligned_end = (list_end_ + k_.alignment_bytes - 1) / k_.alignment_bytes * k_.alignment_bytes;
      std::uint64_t const left = aligned_end - cursor_;
      r.offset_bytes = cursor_;
      r.bytes = left < k_.request_bytes ? left : k_.request_bytes;
      r.list_begin = list_begin_;
      r.list_end = list_end_;
      cursor_ += r.bytes;
      reads_.begin(i, *this);
    }

    FOREBAY_DEVICE void visit(list_read const& r, std::byte const* data) {
      std::uint64_t const begin = r.list_begin > r.offset_bytes ? r.list_begin - r.offset_bytes : 0;
      std::uint64_t const rest = r.list_end - r.offset_bytes;
      std::uint64_t const end = rest < r.bytes ? rest : r.bytes;
      for (std::uint64_t byte = begin; byte < end; byte += sizeof(std::uint32_t)) {
        std::uint32_t const neighbour = M::ld(reinterpret_cast<std::uint32_t const*>(data + byte));
        if (neighbour >= k_.vertices) {
          if (result_.bad_neighbours++ == 0) result_.first_bad_neighbour = neighbour;
          stop();
          return;
        }
        auto distance = simt::atomic<M>(k_.distances[neighbour]);
        // relaxed, all: the thread that moves the distance from `unreached` owns the vertex, and only the next launch
        // reads the frontier.
        if (distance.load(simt::order::relaxed) != unreached) continue;
        std::uint32_t expected = unreached;
        if (!distance.compare_exchange(expected, k_.level + 1, simt::order::relaxed)) continue;
        std::uint32_t const end_of_next = simt::atomic<M>(k_.control->next_size).fetch_add(1, simt::order::relaxed);
        M::st(k_.next_frontier + end_of_next, neighbour);
      }
    }

    FOREBAY_DEVICE void fail(status outcome) {
      if (result_.errors++ == 0) result_.first_error = outcome;
      stop();
    }
    FOREBAY_DEVICE void stop() {
      // relaxed: see `claim_vertex`.
      simt::atomic<M>(k_.control->stop).store(1, simt::order::relaxed);
    }

    bfs_level const& k_;
    std::uint32_t rank_;
    apps::in_flight<M, read_type> reads_;
    bool exhausted_ = false;
    std::uint64_t list_begin_ = 0;
    std::uint64_t list_end_ = 0;
    std::uint64_t cursor_ = 0;  ///< the first byte of the current list's blocks that no read has asked for yet
    thread_result result_;
    apps::latency_recorder<M> latency_;
  };
};

}  // namespace forebay::graph
