// SPDX-License-Identifier: Apache-2.0
//! \file
//! The search kernel of the mode `exact`: without codes, it reads the vector of each neighbour that it meets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/search/distance.hpp"
#include "apps/search/exact_record.hpp"
#include "apps/search/keys.hpp"
#include "apps/search/record_source.hpp"
#include "apps/search/search_results.hpp"
#include "apps/search/sorted_keys.hpp"
#include "apps/search/visited_slots.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::search {

/// Where a search by exact distances begins: slots, and the short checksums of their vectors.
struct exact_entries {
  std::uint32_t const* slots = nullptr;
  std::uint32_t const* checksums = nullptr;
  std::uint32_t count = 0;
};

struct exact_effort {
  std::uint32_t list_size = 64;  ///< candidates that it keeps: `itopk_size` of cuVS
  std::uint32_t width = 1;       ///< lists that it reads at a time, 1 to `exact_width_max`
  std::uint32_t iterations = 0;  ///< it ends after so many; 0: when each candidate's list was read
  std::uint64_t timeout_ns = 0;  ///< of the lists of a step, and again of the vectors of a step
};

inline constexpr std::uint32_t exact_width_max = 8;

/// A vector that is to be read.
struct exact_request {
  std::uint32_t slot;
  std::uint32_t checksum;
};

/// Where the parts of a warp's memory are in that of its block, in bytes.
struct exact_memory_layout {
  std::uint32_t results_at, incoming_at, taken_at, requests_at, query_at, bytes;

  FOREBAY_DEVICE static constexpr exact_memory_layout of(std::uint32_t list_size, std::uint32_t k,
                                                         std::uint32_t requests, std::uint32_t vector_words) {
    exact_memory_layout layout{};
    layout.results_at = 2 * list_size * 8;
    layout.incoming_at = layout.results_at + 2 * k * 8;
    layout.taken_at = layout.incoming_at + 32 * 8;
    layout.requests_at = layout.taken_at + 32 * 8;
    layout.query_at = layout.requests_at + requests * static_cast<std::uint32_t>(sizeof(exact_request));
    layout.bytes = (layout.query_at + vector_words * 4 + 15) / 16 * 16;
    return layout;
  }
};

/// Blocks of full warps, `warp_memory.bytes` of memory for each warp. A warp takes one query after the other. It reads
/// the lists of its best candidates, all at a time, and then the vectors of all their neighbours that it has not read,
/// all at a time. `Lists` and `Vectors` are sources of record_source.hpp, with `width` and `requests` pieces for each
/// warp of the grid.
template <class Lists, class Vectors>
struct exact_search {
  using M = typename Lists::machine;
  using warp_type = typename M::warp;
  static constexpr unsigned max_threads_per_block = 128;
  /// Reads that a lane has in flight at most.
  static constexpr std::uint32_t depth_max = 16;

  Lists lists;
  Vectors vectors;
  exact_layout layout;
  exact_entries entries;
  slot_filter filter;
  search_batch batch;
  exact_effort effort;
  exact_memory_layout warp_memory;
  element elements;
  metric how;
  std::uint32_t slots;     ///< of the index
  std::uint32_t requests;  ///< room for vectors to be read, of a warp: a multiple of 32, 512 at most
  /// A word for each warp, zeroed before the first of the launches that share the pieces: whether one of its is lost.
  std::uint32_t* lost;
  std::uint32_t* visited;  ///< 2^`visited_bits` words for each warp
  std::uint32_t visited_bits;
  std::uint32_t const* query_words;  ///< `layout.vector_words` for each query
  float const* query_norms;          ///< the length of each query

  FOREBAY_DEVICE void operator()() const { warp_search(*this).run(); }

 private:
  class warp_search {
   public:
    FOREBAY_DEVICE explicit warp_search(exact_search const& s)
        : s_(s),
          warp_(M::this_warp()),
          lane_(warp_.thread_rank()),
          number_(M::thread_rank() / 32),
          memory_(&M::this_block().template shared<std::byte>() +
                  M::this_block().thread_rank() / 32 * s.warp_memory.bytes),
          query_(reinterpret_cast<std::uint32_t*>(memory_ + s.warp_memory.query_at)),
          requests_(reinterpret_cast<exact_request*>(memory_ + s.warp_memory.requests_at)),
          taken_(keys_at(s.warp_memory.taken_at)),
          list_(keys_at(0), keys_at(s.warp_memory.incoming_at), s.effort.list_size),
          results_(keys_at(s.warp_memory.results_at), keys_at(s.warp_memory.incoming_at), s.batch.k),
          visited_(s.visited + (std::uint64_t{number_} << s.visited_bits), s.visited_bits),
          lost_(s.lost[number_] != 0) {}

    FOREBAY_DEVICE void run() {
      // A read that was given up owns its piece of buffer for good, so the warp stops.
      while (!lost_) {
        std::uint32_t query = 0;
        // relaxed: the counter only hands out numbers.
        if (lane_ == 0) query = simt::atomic<M>(*s_.batch.next_query).fetch_add(1, simt::order::relaxed);
        query = warp_.shfl(query, 0);
        if (query >= s_.batch.queries) return;
        begin(query);
        answer();
        finish_query<M>(warp_, s_.batch, query, counts_, begun_ns_, results_);
        if (lane_ == 0 && lost_) s_.lost[number_] = 1;
      }
    }

   private:
    FOREBAY_DEVICE key* keys_at(std::uint32_t at) const { return reinterpret_cast<key*>(memory_ + at); }

    FOREBAY_DEVICE void begin(std::uint32_t query) {
      counts_ = {};
      counts_.outcome = {};
      begun_ns_ = M::clock_ns();
      std::uint32_t const words = s_.layout.vector_words;
      for (std::uint32_t i = lane_; i < words; i += 32) query_[i] = s_.query_words[std::uint64_t{query} * words + i];
      query_norm_ = s_.query_norms[query];
      results_.clear(warp_);
      list_.clear(warp_);
      visited_.clear(warp_);
    }

    FOREBAY_DEVICE void answer() {
      // Not after a failure: the next ones would be read into the same pieces, and one may belong to a read for good.
      for (std::uint32_t first = 0; first < s_.entries.count && counts_.outcome.ok(); first += s_.requests) {
        std::uint32_t const left = s_.entries.count - first;
        std::uint32_t const count = left < s_.requests ? left : s_.requests;
        for (std::uint32_t i = lane_; i < count; i += 32) {
          requests_[i] = {s_.entries.slots[first + i], s_.entries.checksums[first + i]};
          (void)visited_.add(requests_[i].slot);
        }
        warp_.sync();
        read_vectors(count);
      }
      for (std::uint32_t i = 0; s_.effort.iterations == 0 || i < s_.effort.iterations; ++i) {
        if (!counts_.outcome.ok()) return;
        std::uint32_t const count = list_.take(warp_, s_.effort.width, taken_);
        if (count == 0) return;
        read_vectors(read_lists(count));
      }
    }

    /// Keeps the first failure, of the lanes and of all calls. Returns whether there was none.
    FOREBAY_DEVICE bool all_passed(status mine, std::uint32_t slot) {
      lost_ = lost_ || warp_.any(mine == status(fault::timed_out));
      std::uint32_t const failed = warp_.ballot(!mine.ok());
      if (failed == 0) return true;
      if (!counts_.outcome.ok()) return false;
      counts_.outcome = warp_.shfl(mine, simt::lowest_bit(failed));
      counts_.failed_slot = warp_.shfl(slot, simt::lowest_bit(failed));
      return false;
    }

    /// Waits for a read. If there was no room for it, begins it again.
    template <class Source>
    FOREBAY_DEVICE status finish_read(Source const& source, typename Source::token_type token, std::uint64_t piece,
                                      std::uint32_t slot, std::uint64_t deadline_ns) const {
      for (;;) {
        status const outcome = token.wait(deadline_ns);
        if (outcome == status(fault::timed_out)) token.detach();
        if (outcome != status(fault::busy) && outcome != status(fault::no_record)) return outcome;
        std::uint64_t const now_ns = M::clock_ns();
        if (now_ns >= deadline_ns) return outcome;
        std::uint64_t const soon_ns = now_ns + 1000;
        (void)M::wait_until([] { return false; }, soon_ns < deadline_ns ? soon_ns : deadline_ns);
        token = source.begin(piece, slot);
      }
    }

    /// Reads the lists of `taken_`, and lists the neighbours that have not been read. Returns how many there are.
    FOREBAY_DEVICE std::uint32_t read_lists(std::uint32_t count) {
      bool const mine = lane_ < count;
      std::uint32_t const slot = mine ? slot_of(taken_[lane_]) : 0;
      std::uint64_t const piece = std::uint64_t{number_} * s_.effort.width + lane_;
      std::uint32_t const* const words = s_.lists.words(piece, slot);
      counts_.reads += count;
      status outcome;
      if (mine) {
        std::uint64_t const deadline_ns = M::clock_ns() + s_.effort.timeout_ns;
        outcome = finish_read(s_.lists, s_.lists.begin(piece, slot), piece, slot, deadline_ns);
      }
      warp_.sync();
      if (mine && outcome.ok() && !is_sound(words, slot)) outcome = corrupt_record();
      if (!all_passed(outcome, slot)) return 0;
      std::uint32_t listed = 0;
      for (std::uint32_t from = 0; from < count; ++from) {
        auto const* const list =
            reinterpret_cast<std::uint32_t const*>(warp_.shfl(reinterpret_cast<std::uintptr_t>(words), from));
        std::uint32_t const degree = M::ld(list);
        for (std::uint32_t first = 0; first < degree; first += 32) {
          std::uint32_t const i = first + lane_;
          std::uint32_t const neighbour = i < degree ? M::ld(list + 1 + i) : 0;
          if (warp_.any(neighbour >= s_.slots)) {
            counts_.outcome = corrupt_record();
            counts_.failed_slot = warp_.shfl(slot, from);
            return 0;
          }
          bool const is_new = i < degree && visited_.add(neighbour);
          std::uint32_t const lanes = warp_.ballot(is_new);
          if (is_new) {
            std::uint32_t const pair = M::ld(list + s_.layout.checksums_at() + i / 2);
            requests_[listed + simt::count_bits(lanes & ((1u << lane_) - 1))] = {neighbour,
                                                                                 pair >> 16 * (i % 2) & 0xffff};
          }
          listed += simt::count_bits(lanes);
        }
      }
      warp_.sync();
      return listed;
    }

    FOREBAY_DEVICE bool is_sound(std::uint32_t const* words, std::uint32_t slot) const {
      std::uint32_t sum = checksum_of_slot(slot);
      for (std::uint32_t i = 0; i < s_.layout.checksum_at(); ++i) sum += checksum_of_word(i, M::ld(words + i));
      return sum == M::ld(words + s_.layout.checksum_at()) && M::ld(words) <= s_.layout.degree_max;
    }

    /// Reads the vectors of `requests_`, and takes them as candidates and as results.
    FOREBAY_DEVICE void read_vectors(std::uint32_t count) {
      if (count == 0) return;
      typename parked_read<typename Vectors::token_type>::type reads[depth_max];
      counts_.reads += count;
      std::uint64_t const deadline_ns = M::clock_ns() + s_.effort.timeout_ns;
      std::uint64_t const first_piece = std::uint64_t{number_} * s_.requests;
      for (std::uint32_t round = 0; round * 32 < count; ++round) {
        std::uint32_t const i = round * 32 + lane_;
        if (i < count) {
          reads[round] =
              parked_read<typename Vectors::token_type>::park(s_.vectors.begin(first_piece + i, requests_[i].slot));
        }
      }
      for (std::uint32_t round = 0; round * 32 < count; ++round) {
        std::uint32_t const i = round * 32 + lane_;
        std::uint32_t slot = 0;
        key candidate = no_key;
        status outcome;
        if (i < count) {
          slot = requests_[i].slot;
          outcome =
              finish_read(s_.vectors, typename Vectors::token_type(reads[round]), first_piece + i, slot, deadline_ns);
          if (outcome.ok()) outcome = use(s_.vectors.words(first_piece + i, slot), requests_[i], candidate);
        }
        // The other rounds are waited for even then: their reads use the buffer.
        bool const passed = all_passed(outcome, slot);
        if (!passed || !counts_.outcome.ok()) continue;
        list_.merge(warp_, candidate);
        bool const found = candidate != no_key && s_.filter.allows(slot);
        results_.merge(warp_, found ? candidate : no_key);
      }
      warp_.sync();
    }

    /// The candidate that a vector is. One lane for itself.
    FOREBAY_DEVICE status use(std::uint32_t const* words, exact_request const& request, key& candidate) const {
      distance_parts parts;
      std::uint32_t sum = 0;
      for (std::uint32_t i = 0; i < s_.layout.vector_words; i += 4) {
        simt::vec16 const four = M::ld(reinterpret_cast<simt::vec16 const*>(words + i));
        std::uint32_t const parts_of_four[] = {
            static_cast<std::uint32_t>(four.low), static_cast<std::uint32_t>(four.low >> 32),
            static_cast<std::uint32_t>(four.high), static_cast<std::uint32_t>(four.high >> 32)};
        FOREBAY_UNROLL
        for (std::uint32_t j = 0; j < 4; ++j) {
          sum += checksum_of_word(i + j, parts_of_four[j]);
          parts.add(s_.elements, s_.how, query_[i + j], parts_of_four[j]);
        }
      }
      if (short_checksum(request.slot, sum) != request.checksum) return corrupt_record();
      candidate = make_key(ordered_bits(parts.of_one_lane(s_.elements, s_.how, query_norm_)), request.slot);
      return {};
    }

    exact_search const& s_;
    warp_type warp_;
    std::uint32_t lane_;
    std::uint32_t number_;
    std::byte* memory_;
    std::uint32_t* query_;
    exact_request* requests_;
    key* taken_;
    sorted_keys<M> list_;
    sorted_keys<M> results_;
    visited_slots<M> visited_;
    query_outcome counts_;
    std::uint64_t begun_ns_ = 0;
    float query_norm_ = 0;
    bool lost_;
  };
};

}  // namespace forebay::search
