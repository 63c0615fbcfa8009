// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `vector_index::search` that each machine compiles for itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/search/placed_index.hpp"
#include "apps/search/pq_search.hpp"
#include "apps/search/query_batches.hpp"
#include "apps/search/record_source.hpp"

namespace forebay::search {

template <class M>
search_found run_pq_on(placed_index const& at, query_set const& queries, search_options const& options) {
  apps::executor<M> const run(at.gpu);
  index_shape const& shape = at.shape;
  auto const layout = memory_of_a_query(shape, options);
  query_batches<M> batches(at.memory, queries, options.k, options.batch);
  apps::device_array<float> const components(at.memory, queries.components);
  apps::device_array<float> const offsets_and_scales(at.memory, queries.offsets_and_scales);
  std::uint32_t const most = options.concurrency == 0 ? room_for<M>(at.gpu, layout.bytes).blocks : options.concurrency;
  std::uint32_t const warps = std::max(1u, std::min(most, batches.batch()));
  std::uint32_t const pieces = options.width == 0 ? 32 : options.width;
  apps::device_array<std::uint32_t> const lost(at.memory, warps);

  auto const search = [&](auto const& source) {
    using source_type = std::remove_cvref_t<decltype(source)>;
    search_found found = batches(run, [&](query_batch const& batch) {
      pq_search<source_type> const kernel{
          .source = source,
          .record = shape.record,
          .codes = {at.codes.data(), at.codebook.data(), shape.chunks, shape.chunk_dimension,
                    shape.how == metric::inner_product},
          .navigation = {at.navigation_slots.data(), at.navigation_neighbours.data(),
                         static_cast<std::uint32_t>(at.navigation_slots.size()), shape.navigation_degree},
          .filter = batch.filter,
          .batch = batch.results,
          .effort = {options.list_size, options.width, options.refill, options.navigation_size,
                     static_cast<std::uint64_t>(options.timeout_s * 1e9)},
          .warp_memory = layout,
          .elements = shape.elements,
          .how = shape.how,
          .slots = shape.slots,
          .pieces = pieces,
          .lost = lost.data(),
          .query_words = batch.words,
          .query_norms = batch.norms,
          .query_components = components.data() + batch.first * shape.chunks * shape.chunk_dimension,
          .query_offsets_and_scales = offsets_and_scales.data() + 2 * batch.first};
      run({.blocks = std::min(warps, batch.results.queries), .threads_per_block = 32, .shared_bytes = layout.bytes},
          kernel);
    });
    found.concurrency = warps;
    return found;
  };

  if (at.drives == nullptr) {
    return search(memory_records<M>{static_cast<std::byte const*>(at.records_in_memory.data()), shape.record.bytes()});
  }
  apps::io_buffer const buffer(*at.drives, std::uint64_t{warps} * pieces * shape.record.bytes());
  auto const ref = at.drives->template ref<M>(*at.records);
  search_found found;
  run.beside(*at.drives, [&] {
    found = search(drive_records<std::remove_const_t<decltype(ref)>>{ref, buffer.ref(), shape.record.bytes()});
  });
  return found;
}

}  // namespace forebay::search
