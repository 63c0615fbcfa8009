// SPDX-License-Identifier: Apache-2.0
//! \file
//! Queries and their results in the device's memory, and the batches in which they are answered.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/search/index.hpp"
#include "apps/search/search_results.hpp"

namespace forebay::search {

/// What a kernel gets of the queries of one batch.
struct query_batch {
  std::uint64_t first;  ///< the number of its first query
  search_batch results;
  std::uint32_t const* words;
  float const* norms;
  slot_filter filter;
};

template <class M>
class query_batches {
 public:
  /// `queries` outlives this. `batch`: queries that are begun, and end, before others begin; 0: all.
  query_batches(memory::resource& memory, query_set const& queries, std::uint32_t k, std::uint32_t batch)
      : queries_(queries),
        k_(k),
        batch_(batch == 0 ? queries.count : std::min(batch, queries.count)),
        words_(memory, queries.words),
        norms_(memory, queries.norms),
        filter_(memory, queries.filter),
        next_(memory, (queries.count + batch_ - 1) / batch_),
        slots_(memory, std::size_t{queries.count} * k),
        distances_(memory, std::size_t{queries.count} * k),
        outcomes_(memory, queries.count) {
    std::vector<query_outcome> const none(queries.count);
    outcomes_.assign({none.data(), none.size()});
  }

  /// The most queries of a batch.
  std::uint32_t batch() const { return batch_; }

  /// Calls `launch(query_batch)` for each batch, in one stream, and returns what the kernels found.
  template <class Launch>
  search_found operator()(apps::executor<M> const& run, Launch&& launch) {
    std::uint64_t const words = queries_.words.size() / queries_.count;
    auto const begin = std::chrono::steady_clock::now();
    for (std::uint32_t b = 0; b < next_.size(); ++b) {
      std::uint64_t const first = std::uint64_t{b} * batch_;
      auto const count = static_cast<std::uint32_t>(std::min<std::uint64_t>(batch_, queries_.count - first));
      launch(query_batch{.first = first,
                         .results = {count, k_, next_.data() + b, slots_.data() + first * k_,
                                     distances_.data() + first * k_, outcomes_.data() + first},
                         .words = words_.data() + first * words,
                         .norms = norms_.data() + first,
                         .filter = {queries_.filter.empty() ? nullptr : filter_.data()}});
    }
    run.synchronize();
    search_found found;
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    found.slots = slots_.to_host();
    found.distances = distances_.to_host();
    found.outcomes = outcomes_.to_host();
    return found;
  }

 private:
  query_set const& queries_;
  std::uint32_t k_;
  std::uint32_t batch_;
  apps::device_array<std::uint32_t> words_;
  apps::device_array<float> norms_;
  apps::device_array<std::uint32_t> filter_;
  apps::device_array<std::uint32_t> next_;
  apps::device_array<std::uint32_t> slots_;
  apps::device_array<float> distances_;
  apps::device_array<query_outcome> outcomes_;
};

}  // namespace forebay::search
