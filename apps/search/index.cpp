// SPDX-License-Identifier: Apache-2.0
#include "apps/search/index.hpp"

#include <fmt/format.h>

#include <utility>

#include "apps/search/index_checks.hpp"
#include "apps/search/keys.hpp"
#include "apps/search/placed_index.hpp"
#include "apps/search/product_codes.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {
namespace {

void validate(index_shape const& shape, index_parts const& parts) {
  refuse_unless(shape.slots >= 1 && shape.slots <= slots_max, "slots", shape.slots, "must be 1 to 2^31 - 1");
  record_layout const& record = shape.record;
  refuse_unless(record.words >= 4 && record.words <= 1u << 20, "record.words", record.words, "must be 4 to 2^20");
  refuse_unless(
      record.vector_words >= 1 && record.vector_words * 4 / bytes_of(shape.elements) <= distance_parts::dimension_max,
      "record.vector_words", record.vector_words,
      fmt::format("must hold 1 to {} components", distance_parts::dimension_max));
  refuse_unless(record.words >= 2 && record.vector_words <= record.words - 2 &&
                    record.degree_max <= record.words - 2 - record.vector_words,
                "record.degree_max", record.degree_max, "does not fit into the record");
  refuse_unless(shape.chunks >= 4 && shape.chunks % 4 == 0 && shape.chunks <= 1024, "chunks", shape.chunks,
                "must be a multiple of 4, 4 to 1024");
  refuse_unless(shape.chunk_dimension >= 1 && shape.chunk_dimension <= distance_parts::dimension_max, "chunk_dimension",
                shape.chunk_dimension, "must be at least 1");
  require_size("codes", parts.codes, std::uint64_t{shape.slots} * shape.chunks);
  require_size("codebook", parts.codebook,
               std::uint64_t{shape.chunks} * shape.chunk_dimension * product_codes::centroids);
  std::size_t const vertices = parts.navigation_slots.size();
  refuse_unless(vertices >= 1 && vertices <= slots_max, "navigation_slots", vertices,
                "must have 1 to 2^31 - 1 elements");
  require_size("navigation_neighbours", parts.navigation_neighbours, vertices * shape.navigation_degree);
  for (std::uint32_t const slot : parts.navigation_slots) {
    refuse_unless(slot < shape.slots, "navigation_slots", slot, "must be slots of the index");
  }
}

std::unique_ptr<placed_index> placed(index_shape const& shape, index_parts const& parts, int gpu) {
  validate(shape, parts);
  memory::resource& memory = memory_of(gpu);
  using apps::device_array;
  return std::unique_ptr<placed_index>(
      new placed_index{.shape = shape,
                       .gpu = gpu,
                       .memory = memory,
                       .codes = device_array<std::uint8_t>(memory, parts.codes),
                       .codebook = device_array<float>(memory, parts.codebook),
                       .navigation_slots = device_array<std::uint32_t>(memory, parts.navigation_slots),
                       .navigation_neighbours = device_array<std::uint32_t>(memory, parts.navigation_neighbours)});
}

void validate(index_shape const& shape, query_set const& queries, search_options const& options) {
  validate_queries(queries, shape.record.vector_words, shape.slots);
  std::uint64_t const count = queries.count;
  require_size("components", queries.components, count * shape.chunks * shape.chunk_dimension);
  require_size("offsets_and_scales", queries.offsets_and_scales, 2 * count);
  validate_options(options);
  refuse_unless(options.width <= 32, "search_width", options.width, "must be 1 to 32, or auto");
  std::uint32_t const most = options.width == 0 ? 32 : options.width;
  refuse_unless(options.refill >= 1 && options.refill <= most, "refill_size", options.refill,
                fmt::format("must be 1 to the search width, {}", most));
  refuse_unless(options.navigation_size >= 1 && options.navigation_size <= list_size_max, "navigation_size",
                options.navigation_size, fmt::format("must be 1 to {}", list_size_max));
}

}  // namespace

vector_index::vector_index(index_shape const& shape, index_parts const& parts, storage& drives, extent const& records) {
  validate(shape, parts);
  refuse_unless(shape.record.bytes() % drives.block_bytes() == 0, "record", shape.record.bytes(),
                fmt::format("must be a multiple of the drives' block, {} bytes: build the index for such drives",
                            drives.block_bytes()));
  refuse_unless(records.size_bytes / shape.record.bytes() >= shape.slots, "nodes", records.size_bytes,
                fmt::format("must have {} records of {} bytes: the extent was cut; build the index again", shape.slots,
                            shape.record.bytes()));
  placed_ = placed(shape, parts, drives.gpu_ordinal());
  placed_->drives = &drives;
  placed_->records = records;
}

vector_index::vector_index(index_shape const& shape, index_parts const& parts, std::span<std::byte const> records,
                           record_memory const& where) {
  validate(shape, parts);
  require_size("records", records, shape.record.bytes() * shape.slots);
  memory::resource& place = memory_for(where);
  placed_ = placed(shape, parts, where.gpu);
  placed_->records_in_memory = copied(place, records);
}

vector_index::vector_index(vector_index&&) noexcept = default;
vector_index& vector_index::operator=(vector_index&&) noexcept = default;
vector_index::~vector_index() = default;

search_found vector_index::search(query_set const& queries, search_options const& options) {
  validate(placed_->shape, queries, options);
  return on_machine(placed_->gpu, [&]<class M>(std::type_identity<M>) {
    std::uint32_t const needed = memory_of_a_query(placed_->shape, options).bytes;
    std::uint32_t const there = room_for<M>(placed_->gpu, needed).bytes_max;
    refuse_unless(needed <= there, "itopk_size", options.list_size,
                  fmt::format("a query needs {} bytes of the memory of a block, and there are {}: lower itopk_size or "
                              "navigation_size, or build the index with fewer chunks",
                              needed, there));
    return run_pq_on<M>(*placed_, queries, options);
  });
}

}  // namespace forebay::search
