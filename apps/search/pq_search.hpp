// SPDX-License-Identifier: Apache-2.0
//! \file
//! The search kernel of the mode `pq`: codes in the device's memory lead it, and it reads one record for each vertex.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/search/distance.hpp"
#include "apps/search/in_flight_reads.hpp"
#include "apps/search/keys.hpp"
#include "apps/search/navigation.hpp"
#include "apps/search/product_codes.hpp"
#include "apps/search/record.hpp"
#include "apps/search/search_results.hpp"
#include "apps/search/sorted_keys.hpp"
#include "apps/search/warp_memory.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::search {

/// How a search goes.
struct search_effort {
  std::uint32_t list_size = 64;        ///< candidates that it keeps: `itopk_size` of cuVS
  std::uint32_t width = 1;             ///< reads of a query in flight at most, 1 to 32; 0: adapts
  std::uint32_t refill = 1;            ///< reads of a query that end before it begins others
  std::uint32_t navigation_size = 32;  ///< candidates that it keeps in the navigation graph, and begins with
  std::uint64_t timeout_ns = 0;        ///< of one read
};

/// How many reads pay off. It begins with 4, and grows by one while at most a tenth of the records that came had fallen
/// out of the list before, once the five best candidates have been read. Then most of what is read ahead is of use.
class adaptive_width {
 public:
  FOREBAY_DEVICE explicit adaptive_width(std::uint32_t fixed) : fixed_(fixed) {}
  FOREBAY_DEVICE std::uint32_t operator()() const { return fixed_ != 0 ? fixed_ : width_; }
  FOREBAY_DEVICE void add(bool was_unused, bool best_are_read) {
    records_ += 1;
    unused_ += was_unused ? 1 : 0;
    if (best_are_read && unused_ * 10 <= records_ && width_ < 32) ++width_;
  }

 private:
  std::uint32_t fixed_;
  std::uint32_t width_ = 4;
  std::uint32_t records_ = 0;
  std::uint32_t unused_ = 0;
};

/// Blocks of full warps, `warp_memory.bytes` of memory for each warp. A warp takes one query after the other. `Source`
/// is one of record_source.hpp, with `pieces` pieces for each warp of the grid.
template <class Source>
struct pq_search {
  using M = typename Source::machine;
  using warp_type = typename M::warp;
  static constexpr unsigned max_threads_per_block = 128;

  Source source;
  record_layout record;
  product_codes codes;
  navigation_graph navigation;
  slot_filter filter;
  search_batch batch;
  search_effort effort;
  warp_memory_layout warp_memory;
  element elements;
  metric how;
  std::uint32_t slots;   ///< of the index
  std::uint32_t pieces;  ///< at least `effort.width`, at most 32
  /// A word for each warp, zeroed before the first of the launches that share the pieces: which of them are lost.
  std::uint32_t* lost;
  std::uint32_t const* query_words;       ///< `record.vector_words` for each query
  float const* query_norms;               ///< the length of each query
  float const* query_components;          ///< as `coded_query` has them, for each query
  float const* query_offsets_and_scales;  ///< two for each query

  FOREBAY_DEVICE void operator()() const { warp_search(*this).run(); }

 private:
  class warp_search {
   public:
    FOREBAY_DEVICE explicit warp_search(pq_search const& s)
        : s_(s),
          warp_(M::this_warp()),
          lane_(warp_.thread_rank()),
          memory_(&M::this_block().template shared<std::byte>() +
                  M::this_block().thread_rank() / 32 * s.warp_memory.bytes),
          query_(reinterpret_cast<std::uint32_t*>(memory_ + s.warp_memory.query_at)),
          taken_(reinterpret_cast<key*>(memory_ + s.warp_memory.taken_at)),
          table_(s.codes, reinterpret_cast<std::uint16_t*>(memory_)),
          list_(keys_at(s.warp_memory.lists_at), incoming(), s.effort.list_size),
          results_(keys_at(s.warp_memory.results_at), incoming(), s.batch.k),
          reads_(s.source, reinterpret_cast<std::uint32_t*>(memory_ + s.warp_memory.arrived_at),
                 std::uint64_t{M::thread_rank() / 32} * s.pieces, s.pieces, s.lost[M::thread_rank() / 32],
                 s.effort.timeout_ns) {}

    FOREBAY_DEVICE void run() {
      while (!reads_.exhausted()) {
        std::uint32_t query = 0;
        // relaxed: the counter only hands out numbers.
        if (lane_ == 0) query = simt::atomic<M>(*s_.batch.next_query).fetch_add(1, simt::order::relaxed);
        query = warp_.shfl(query, 0);
        if (query >= s_.batch.queries) return;
        begin(query);
        answer();
        finish_query<M>(warp_, s_.batch, query, counts_, begun_ns_, results_);
        if (lane_ == 0) s_.lost[M::thread_rank() / 32] = reads_.lost();
      }
    }

   private:
    FOREBAY_DEVICE key* keys_at(std::uint32_t at) const { return reinterpret_cast<key*>(memory_ + at); }
    FOREBAY_DEVICE key* incoming() const { return keys_at(s_.warp_memory.incoming_at); }

    FOREBAY_DEVICE void begin(std::uint32_t query) {
      counts_ = {};
      counts_.outcome = {};
      begun_ns_ = M::clock_ns();
      std::uint32_t const words = s_.record.vector_words;
      for (std::uint32_t i = lane_; i < words; i += 32) query_[i] = s_.query_words[std::uint64_t{query} * words + i];
      query_norm_ = s_.query_norms[query];
      coded_query const coded{s_.query_components + std::uint64_t{query} * s_.codes.chunks * s_.codes.chunk_dimension,
                              s_.query_offsets_and_scales[2 * std::uint64_t{query}],
                              s_.query_offsets_and_scales[2 * std::uint64_t{query} + 1]};
      table_.build(warp_, coded);
      results_.clear(warp_);
      list_.clear(warp_);
      sorted_keys<M> seeds(keys_at(s_.warp_memory.lists_at) + sorted_keys<M>::memory_keys(s_.effort.list_size),
                           incoming(), s_.effort.navigation_size);
      s_.navigation.template search<M>(warp_, table_, seeds, taken_);
      for (std::uint32_t first = 0; first < seeds.capacity(); first += 32) {
        list_.merge(warp_, first + lane_ < seeds.capacity() ? seeds[first + lane_] : no_key);
      }
    }

    /// Reads records until each candidate of the list has been read, or a read has failed.
    FOREBAY_DEVICE void answer() {
      adaptive_width width(s_.effort.width);
      for (;;) {
        std::uint32_t const most = width();
        std::uint32_t const room = counts_.outcome.ok() ? reads_.room(most) : 0;
        if (room != 0 && (room >= s_.effort.refill || room >= most || !reads_.any())) {
          std::uint32_t const count = list_.take(warp_, room, taken_);
          reads_.begin(warp_, taken_, count);
          counts_.reads += count;
        }
        if (!reads_.any()) return;
        for (std::uint32_t lanes = reads_.wait(warp_); lanes != 0; lanes &= lanes - 1) {
          std::uint32_t const from = simt::lowest_bit(lanes);
          key const candidate = reads_.key_of(warp_, from);
          status outcome = reads_.outcome(warp_, from);
          bool const unused = !list_.holds(candidate);
          if (outcome.ok() && counts_.outcome.ok()) {
            outcome = use(slot_of(candidate), reads_.words(from, slot_of(candidate)));
            counts_.unused_reads += unused ? 1 : 0;
            width.add(unused, list_.begins_expanded(5));
          }
          if (!outcome.ok() && counts_.outcome.ok()) {
            counts_.outcome = outcome;
            counts_.failed_slot = slot_of(candidate);
          }
        }
      }
    }

    /// Takes the vector of a record as a result, and its neighbours as candidates.
    FOREBAY_DEVICE status use(std::uint32_t slot, std::uint32_t const* words) {
      record_layout const& r = s_.record;
      distance_parts parts;
      std::uint32_t sum = 0;
      for (std::uint32_t i = lane_; i < r.checksum_at(); i += 32) {
        std::uint32_t const word = M::ld(words + i);
        sum += checksum_of_word(i, word);
        if (i < r.vector_words) parts.add(s_.elements, s_.how, query_[i], word);
      }
      sum = simt::team<M>::here().sum32(sum) + checksum_of_slot(slot);
      std::uint32_t const degree = M::ld(words + r.degree_at());
      if (sum != M::ld(words + r.checksum_at()) || degree > r.degree_max) return corrupt_record();
      float const distance = parts.template of_all_lanes<M>(s_.elements, s_.how, query_norm_);
      bool const found = lane_ == 0 && s_.filter.allows(slot);
      results_.merge(warp_, found ? make_key(ordered_bits(distance), slot) : no_key);
      for (std::uint32_t first = 0; first < degree; first += 32) {
        std::uint32_t const i = first + lane_;
        std::uint32_t const neighbour = i < degree ? M::ld(words + r.neighbours_at() + i) : 0;
        if (warp_.any(neighbour >= s_.slots)) return corrupt_record();
        list_.merge(warp_, i < degree ? make_key(table_.distance(neighbour), neighbour) : no_key);
      }
      return {};
    }

    pq_search const& s_;
    warp_type warp_;
    std::uint32_t lane_;
    std::byte* memory_;
    std::uint32_t* query_;
    key* taken_;
    distance_table<M> table_;
    sorted_keys<M> list_;
    sorted_keys<M> results_;
    in_flight_reads<Source> reads_;
    query_outcome counts_;
    std::uint64_t begun_ns_ = 0;
    float query_norm_ = 0;
  };
};

}  // namespace forebay::search
