// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `exact_index::search` that each machine compiles for itself.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/search/exact_search.hpp"
#include "apps/search/placed_exact_index.hpp"
#include "apps/search/query_batches.hpp"
#include "apps/search/record_source.hpp"

namespace forebay::search {

/// The bits of a table that holds all that a query reads four times, up to 2^16 slots.
inline std::uint32_t visited_bits_for(exact_options const& options, std::uint32_t degree) {
  std::uint64_t const iterations = options.iterations == 0 ? options.list_size : options.iterations;
  std::uint64_t const reads = iterations * options.width * degree + 32;
  return static_cast<std::uint32_t>(std::clamp<int>(static_cast<int>(std::bit_width(4 * reads)), 8, 16));
}

template <class M>
search_found run_exact_on(placed_exact_index const& at, query_set const& queries, exact_options const& options) {
  apps::executor<M> const run(at.gpu);
  exact_shape const& shape = at.shape;
  exact_layout const& layout = shape.layout;
  std::uint32_t const requests = exact_requests(shape, options);
  auto const memory = memory_of_an_exact_query(shape, options);
  query_batches<M> batches(at.memory, queries, options.k, options.batch);
  std::uint32_t const most = options.concurrency == 0 ? room_for<M>(at.gpu, memory.bytes).blocks : options.concurrency;
  std::uint32_t const warps = std::max(1u, std::min(most, batches.batch()));
  std::uint32_t const bits = visited_bits_for(options, layout.degree_max);
  apps::device_array<std::uint32_t> const visited(at.memory, std::size_t{warps} << bits);
  apps::device_array<std::uint32_t> const lost(at.memory, warps);

  auto const search = [&](auto const& lists, auto const& vectors) {
    using lists_type = std::remove_cvref_t<decltype(lists)>;
    using vectors_type = std::remove_cvref_t<decltype(vectors)>;
    search_found found = batches(run, [&](query_batch const& batch) {
      exact_search<lists_type, vectors_type> const kernel{
          .lists = lists,
          .vectors = vectors,
          .layout = layout,
          .entries = {at.entry_slots.data(), at.entry_checksums.data(),
                      std::min(options.entries, static_cast<std::uint32_t>(at.entry_slots.size()))},
          .filter = batch.filter,
          .batch = batch.results,
          .effort = {options.list_size, options.width, options.iterations,
                     static_cast<std::uint64_t>(options.timeout_s * 1e9)},
          .warp_memory = memory,
          .elements = shape.elements,
          .how = shape.how,
          .slots = shape.slots,
          .requests = requests,
          .lost = lost.data(),
          .visited = visited.data(),
          .visited_bits = bits,
          .query_words = batch.words,
          .query_norms = batch.norms};
      run({.blocks = std::min(warps, batch.results.queries), .threads_per_block = 32, .shared_bytes = memory.bytes},
          kernel);
    });
    found.concurrency = warps;
    return found;
  };

  if (at.drives == nullptr) {
    return search(memory_records<M>{static_cast<std::byte const*>(at.lists_in_memory.data()), layout.list_bytes()},
                  memory_records<M>{static_cast<std::byte const*>(at.vectors_in_memory.data()), layout.vector_bytes()});
  }
  apps::io_buffer const list_buffer(*at.drives, std::uint64_t{warps} * options.width * layout.list_bytes());
  apps::io_buffer const vector_buffer(*at.drives, std::uint64_t{warps} * requests * layout.vector_bytes());
  auto const lists = at.drives->template ref<M>(*at.lists);
  auto const vectors = at.drives->template ref<M>(*at.vectors);
  using source = drive_records<std::remove_const_t<decltype(lists)>>;
  search_found found;
  run.beside(*at.drives, [&] {
    found = search(source{lists, list_buffer.ref(), layout.list_bytes()},
                   source{vectors, vector_buffer.ref(), layout.vector_bytes()});
  });
  return found;
}

}  // namespace forebay::search
