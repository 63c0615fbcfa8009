// SPDX-License-Identifier: Apache-2.0
//! \file
//! One level of breadth-first search whose threads read neighbour lists straight from the drive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "apps/common/latency_histogram.hpp"
#include "forebay/simt/vocabulary.hpp"
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
template <class Token>
struct list_read {
  Token token;
  std::uint64_t offset_bytes;  ///< in the edge list, a multiple of the alignment
  std::uint64_t bytes;
  std::uint64_t list_begin;  ///< the list's own bytes in the edge list, which this read overlaps
  std::uint64_t list_end;
  std::uint64_t submitted_ns;
  bool in_flight;
};

/// `Storage` is a `storage_ref<M>` or a model of its `read_async`; `Buffer` a `buffer_ref`. Compressed sparse rows: the
/// out-neighbours of v are the 4-byte ids [row_begin[v], row_begin[v + 1]) of the edge list.
template <class M, class Storage, class Buffer>
struct bfs_level {
  using token_type =
      decltype(std::declval<Storage const&>().read_async(std::declval<Buffer>(), std::uint64_t{}, std::uint64_t{}));
  using read_type = list_read<token_type>;

  Storage storage;  ///< a window whose first byte is the edge list's
  Buffer buffer;    ///< `threads * reads_per_thread * request_bytes`
  std::uint64_t alignment_bytes;
  std::uint64_t request_bytes;  ///< longest read; a multiple of `alignment_bytes`
  std::uint64_t timeout_ns;     ///< a thread whose reads all stay away this long gives up
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
          first_read_(rank * k.reads_per_thread),
          rank_(rank),
          result_(k.results[rank]),
          latency_(k.latency_bins, result_.latency) {}

    FOREBAY_DEVICE void run() {
      for (std::uint32_t i = 0; i < k_.reads_per_thread; ++i) begin(i);
      while (in_flight_ != 0) {
        if (M::wait_until([this] { return poll(); }, M::clock_ns() + k_.timeout_ns)) continue;
        abandon();
      }
      result_.latency = latency_.summary();
      k_.results[rank_] = result_;
    }

   private:
    FOREBAY_DEVICE read_type& at(std::uint32_t i) const { return k_.reads[first_read_ + i]; }
    FOREBAY_DEVICE Buffer room(std::uint32_t i) const {
      return k_.buffer.subspan((first_read_ + i) * k_.request_bytes, k_.request_bytes);
    }

    /// Goes on to a vertex of the frontier that has a list. False if the frontier is exhausted or a thread met an
    /// error.
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

    /// Starts the next read of the current list in free place `i`, if there is one. No block of a list is read twice.
    FOREBAY_DEVICE void begin(std::uint32_t i) {
      if (!claim_vertex()) return;
      read_type& r = at(i);
      std::uint64_t const aligned_end = (list_end_ + k_.alignment_bytes - 1) / k_.alignment_bytes * k_.alignment_bytes;
      std::uint64_t const left = aligned_end - cursor_;
      r.offset_bytes = cursor_;
      r.bytes = left < k_.request_bytes ? left : k_.request_bytes;
      r.list_begin = list_begin_;
      r.list_end = list_end_;
      cursor_ += r.bytes;
      r.submitted_ns = M::clock_ns();
      submit(i);
      r.in_flight = true;
      ++in_flight_;
    }

    FOREBAY_DEVICE void submit(std::uint32_t i) {
      read_type& r = at(i);
      r.token = k_.storage.read_async(room(i), r.offset_bytes, r.bytes);
    }

    /// Visits the neighbours of every read that has arrived and starts a read in its place. Whether there was one.
    FOREBAY_DEVICE bool poll() {
      bool any = false;
      for (std::uint32_t i = 0; i < k_.reads_per_thread; ++i) {
        if (!at(i).in_flight || !at(i).token.ready()) continue;
        if (finish(i)) any = true;
      }
      return any;
    }

    /// False if the command could not be started and was tried again: that is no progress.
    FOREBAY_DEVICE bool finish(std::uint32_t i) {
      read_type& r = at(i);
      std::uint64_t const now = M::clock_ns();
      status const outcome = r.token.wait();
      if (outcome == status(fault::busy) || outcome == status(fault::no_record)) {
        submit(i);  // nothing was started; its latency goes on counting
        return false;
      }
      r.in_flight = false;
      --in_flight_;
      if (!outcome) {
        fail(outcome);
        return true;
      }
      latency_.add(now - r.submitted_ns);
      result_.read_bytes += r.bytes;
      visit(r, room(i).data());
      begin(i);
      return true;
    }

    FOREBAY_DEVICE void visit(read_type const& r, std::byte const* data) {
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
        // relaxed, all: whoever moves the distance from `unreached` owns the vertex, and the next launch is what reads
        // the frontier.
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

    /// No read came back in time: recovery is asked for each, they keep their room, and this thread ends.
    FOREBAY_DEVICE void abandon() {
      for (std::uint32_t i = 0; i < k_.reads_per_thread; ++i) {
        if (!at(i).in_flight) continue;
        at(i).in_flight = false;
        status const outcome = at(i).token.wait(M::clock_ns());
        if (outcome.ok()) continue;
        at(i).token.detach();
        fail(outcome);
      }
      in_flight_ = 0;
    }

    bfs_level const& k_;
    std::uint32_t first_read_;
    std::uint32_t rank_;
    std::uint32_t in_flight_ = 0;
    bool exhausted_ = false;
    std::uint64_t list_begin_ = 0;
    std::uint64_t list_end_ = 0;
    std::uint64_t cursor_ = 0;  ///< first byte of the current list's blocks that no read has asked for
    thread_result result_;
    apps::latency_recorder<M> latency_;
  };
};

}  // namespace forebay::graph
