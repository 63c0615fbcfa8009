// SPDX-License-Identifier: Apache-2.0
#include "apps/search/exact_index.hpp"

#include <fmt/format.h>

#include "apps/search/index_checks.hpp"
#include "apps/search/keys.hpp"
#include "apps/search/placed_exact_index.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {
namespace {

constexpr std::uint32_t requests_max = 512;

void validate(exact_shape const& shape, exact_entry_points const& entries) {
  refuse_unless(shape.slots >= 1 && shape.slots <= slots_max, "slots", shape.slots, "must be 1 to 2^31 - 1");
  exact_layout const& layout = shape.layout;
  refuse_unless(layout.vector_words >= 4 && layout.vector_words % 4 == 0 && layout.vector_words <= 1u << 20,
                "vector_words", layout.vector_words, "must be a multiple of 4, 4 to 2^20");
  refuse_unless(layout.degree_max >= 1 && layout.degree_max <= requests_max, "degree_max", layout.degree_max,
                fmt::format("must be 1 to {}", requests_max));
  refuse_unless(
      layout.list_words <= 1u << 20 && layout.checksums_at() + (layout.degree_max + 1) / 2 < layout.list_words,
      "list_words", layout.list_words, "must have room for the neighbours and their checksums");
  refuse_unless(!entries.slots.empty(), "entries", entries.slots.size(), "must be at least one");
  require_size("entry_checksums", entries.checksums, entries.slots.size());
  for (std::uint32_t const slot : entries.slots) {
    refuse_unless(slot < shape.slots, "entries", slot, "must be slots of the index");
  }
}

std::unique_ptr<placed_exact_index> placed(exact_shape const& shape, exact_entry_points const& entries, int gpu) {
  memory::resource& memory = memory_of(gpu);
  return std::unique_ptr<placed_exact_index>(
      new placed_exact_index{.shape = shape,
                             .gpu = gpu,
                             .memory = memory,
                             .entry_slots = apps::device_array<std::uint32_t>(memory, entries.slots),
                             .entry_checksums = apps::device_array<std::uint32_t>(memory, entries.checksums)});
}

void require_extent(storage const& drives, char const* field, extent const& part, std::uint64_t piece_bytes,
                    std::uint32_t slots) {
  refuse_unless(piece_bytes % drives.block_bytes() == 0, field, piece_bytes,
                fmt::format("must be a multiple of the drives' block, {} bytes: build the index for such drives",
                            drives.block_bytes()));
  refuse_unless(
      part.size_bytes / piece_bytes >= slots, field, part.size_bytes,
      fmt::format("must have {} times {} bytes: the extent was cut; build the index again", slots, piece_bytes));
}

}  // namespace

exact_index::exact_index(exact_shape const& shape, exact_entry_points const& entries, storage& drives,
                         extent const& lists, extent const& vectors) {
  validate(shape, entries);
  require_extent(drives, "lists", lists, shape.layout.list_bytes(), shape.slots);
  require_extent(drives, "vectors", vectors, shape.layout.vector_bytes(), shape.slots);
  placed_ = placed(shape, entries, drives.gpu_ordinal());
  placed_->drives = &drives;
  placed_->lists = lists;
  placed_->vectors = vectors;
}

exact_index::exact_index(exact_shape const& shape, exact_entry_points const& entries, std::span<std::byte const> lists,
                         std::span<std::byte const> vectors, record_memory const& where) {
  validate(shape, entries);
  require_size("lists", lists, shape.layout.list_bytes() * shape.slots);
  require_size("vectors", vectors, shape.layout.vector_bytes() * shape.slots);
  memory::resource& place = memory_for(where);
  placed_ = placed(shape, entries, where.gpu);
  placed_->lists_in_memory = copied(place, lists);
  placed_->vectors_in_memory = copied(place, vectors);
}

exact_index::exact_index(exact_index&&) noexcept = default;
exact_index& exact_index::operator=(exact_index&&) noexcept = default;
exact_index::~exact_index() = default;

search_found exact_index::search(query_set const& queries, exact_options const& options) {
  exact_shape const& shape = placed_->shape;
  validate_queries(queries, shape.layout.vector_words, shape.slots);
  validate_options(options);
  refuse_unless(
      options.width >= 1 && options.width <= exact_width_max && options.width * shape.layout.degree_max <= requests_max,
      "search_width", options.width,
      fmt::format("must be 1 to {}, and times the degree of the graph, {}, at most {}", exact_width_max,
                  shape.layout.degree_max, requests_max));
  refuse_unless(options.entries >= 1, "entries", options.entries, "must be at least 1");
  return on_machine(placed_->gpu, [&]<class M>(std::type_identity<M>) {
    std::uint32_t const needed = memory_of_an_exact_query(shape, options).bytes;
    std::uint32_t const there = room_for<M>(placed_->gpu, needed).bytes_max;
    refuse_unless(needed <= there, "itopk_size", options.list_size,
                  fmt::format("a query needs {} bytes of the memory of a block, and there are {}: lower itopk_size or "
                              "search_width",
                              needed, there));
    return run_exact_on<M>(*placed_, queries, options);
  });
}

}  // namespace forebay::search
