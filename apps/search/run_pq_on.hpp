// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `vector_index::search` that each machine compiles for itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/search/placed_index.hpp"
#include "apps/search/pq_search.hpp"
#include "apps/search/record_source.hpp"

namespace forebay::search {

/// What a search has in the device's memory while it runs.
template <class M>
class pq_run {
 public:
  pq_run(placed_index const& at, apps::executor<M> const& run, query_set const& queries, search_options const& options)
      : at_(at),
        run_(run),
        queries_(queries),
        options_(options),
        words_(at.memory, queries.words),
        norms_(at.memory, queries.norms),
        components_(at.memory, queries.components),
        offsets_and_scales_(at.memory, queries.offsets_and_scales),
        filter_(at.memory, queries.filter),
        next_(at.memory, batches()),
        slots_(at.memory, std::size_t{queries.count} * options.k),
        distances_(at.memory, std::size_t{queries.count} * options.k),
        outcomes_(at.memory, queries.count) {
    std::vector<query_outcome> const none(queries.count);
    outcomes_.assign({none.data(), none.size()});
  }

  template <class Source>
  search_found operator()(Source const& source, std::uint32_t warps, std::uint32_t pieces,
                          warp_memory_layout const& layout) {
    index_shape const& shape = at_.shape;
    std::uint64_t const query_components = std::uint64_t{shape.chunks} * shape.chunk_dimension;
    auto const begin = std::chrono::steady_clock::now();
    for (std::uint32_t b = 0; b < batches(); ++b) {
      std::uint64_t const first = std::uint64_t{b} * batch();
      auto const count = static_cast<std::uint32_t>(std::min<std::uint64_t>(batch(), queries_.count - first));
      pq_search<Source> const kernel{
          .source = source,
          .record = shape.record,
          .codes = {at_.codes.data(), at_.codebook.data(), shape.chunks, shape.chunk_dimension,
                    shape.how == metric::inner_product},
          .navigation = {at_.navigation_slots.data(), at_.navigation_neighbours.data(),
                         static_cast<std::uint32_t>(at_.navigation_slots.size()), shape.navigation_degree},
          .filter = {queries_.filter.empty() ? nullptr : filter_.data()},
          .batch = {count, options_.k, next_.data() + b, slots_.data() + first * options_.k,
                    distances_.data() + first * options_.k, outcomes_.data() + first},
          .effort = {options_.list_size, options_.width, options_.navigation_size,
                     static_cast<std::uint64_t>(options_.timeout_s * 1e9)},
          .warp_memory = layout,
          .elements = shape.elements,
          .how = shape.how,
          .slots = shape.slots,
          .pieces = pieces,
          .query_words = words_.data() + first * shape.record.vector_words,
          .query_norms = norms_.data() + first,
          .query_components = components_.data() + first * query_components,
          .query_offsets_and_scales = offsets_and_scales_.data() + 2 * first};
      run_({.blocks = std::min(warps, count), .threads_per_block = 32, .shared_bytes = layout.bytes}, kernel);
    }
    run_.synchronize();
    search_found found;
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    found.concurrency = warps;
    found.slots = slots_.to_host();
    found.distances = distances_.to_host();
    found.outcomes = outcomes_.to_host();
    return found;
  }

  std::uint32_t batch() const {
    return options_.batch == 0 ? queries_.count : std::min(options_.batch, queries_.count);
  }
  std::uint32_t batches() const { return (queries_.count + batch() - 1) / batch(); }

 private:
  placed_index const& at_;
  apps::executor<M> const& run_;
  query_set const& queries_;
  search_options const& options_;
  apps::device_array<std::uint32_t> words_;
  apps::device_array<float> norms_;
  apps::device_array<float> components_;
  apps::device_array<float> offsets_and_scales_;
  apps::device_array<std::uint32_t> filter_;
  apps::device_array<std::uint32_t> next_;
  apps::device_array<std::uint32_t> slots_;
  apps::device_array<float> distances_;
  apps::device_array<query_outcome> outcomes_;
};

template <class M>
search_found run_pq_on(placed_index const& at, query_set const& queries, search_options const& options) {
  apps::executor<M> const run(at.gpu);
  index_shape const& shape = at.shape;
  auto const layout = memory_of_a_query(shape, options);
  block_room const room = room_for<M>(at.gpu, layout.bytes);
  pq_run<M> work(at, run, queries, options);
  std::uint32_t const most = options.concurrency == 0 ? room.blocks : options.concurrency;
  std::uint32_t const warps = std::max(1u, std::min(most, work.batch()));
  std::uint32_t const pieces = options.width == 0 ? 32 : options.width;
  search_found found;
  if (at.drives == nullptr) {
    found = work(memory_records<M>{static_cast<std::byte const*>(at.records_in_memory.data()), shape.record.bytes()},
                 warps, pieces, layout);
  } else {
    apps::io_buffer const buffer(*at.drives, std::uint64_t{warps} * pieces * shape.record.bytes());
    auto const ref = at.drives->template ref<M>(*at.records);
    run.beside(*at.drives, [&] {
      found = work(drive_records<std::remove_const_t<decltype(ref)>>{ref, buffer.ref(), shape.record.bytes()}, warps,
                   pieces, layout);
    });
  }
  return found;
}

}  // namespace forebay::search
