// SPDX-License-Identifier: Apache-2.0
//! \file
//! forebay._search: the vector search as python/forebay/search uses it. The stub python/forebay/_search.pyi declares
//! the same names and signatures. The library is that of forebay._core, which is loaded first: both modules share its
//! drives.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../arguments.hpp"
#include "../arrays.hpp"
#include "../python_buffer.hpp"
#include "../shared_storage.hpp"
#include "../used_in_turn.hpp"
#include "apps/search/exact_index.hpp"
#include "apps/search/index.hpp"
#include "forebay/status_text.hpp"

namespace nb = nanobind;

namespace forebay::search {
namespace {

using python::array_of;
using python::buffer_owner;
using python::gpu_of;
using python::named;
using python::python_buffer;
using python::span_of;
using python::vector_in;
using python::vector_out;

element element_of(std::string const& dtype) {
  return named<element>(
      "dtype", dtype,
      {{"uint8", element::u8}, {"int8", element::i8}, {"float16", element::f16}, {"float32", element::f32}});
}
metric metric_of(std::string const& how) {
  return named<metric>("metric", how,
                       {{"l2", metric::l2}, {"inner_product", metric::inner_product}, {"cosine", metric::cosine}});
}

std::span<std::byte const> bytes_of(python_buffer const& buffer) {
  return {static_cast<std::byte const*>(buffer.data()), buffer.size_bytes()};
}

record_memory memory_of(std::string const& place, std::string const& device) {
  return {.place = named<record_place>("memory", place, {{"hbm", record_place::hbm}, {"host", record_place::host}}),
          .gpu = gpu_of(device)};
}

template <class T, class Part>
vector_out<T> column(std::vector<query_outcome> const& outcomes, Part&& part) {
  std::vector<T> values;
  values.reserve(outcomes.size());
  for (query_outcome const& o : outcomes) values.push_back(static_cast<T>(part(o)));
  return array_of(std::move(values));
}

/// Arrays by name: flat, a row for each query.
nb::dict dict_of(search_found found) {
  std::vector<query_outcome> const& outcomes = found.outcomes;
  nb::dict parts;
  parts["status"] = column<std::uint32_t>(outcomes, [](query_outcome const& o) { return o.outcome.bits(); });
  parts["failed_slot"] = column<std::uint32_t>(outcomes, [](query_outcome const& o) { return o.failed_slot; });
  parts["reads"] = column<std::uint32_t>(outcomes, [](query_outcome const& o) { return o.reads; });
  parts["unused_reads"] = column<std::uint32_t>(outcomes, [](query_outcome const& o) { return o.unused_reads; });
  parts["latency_ns"] = column<std::uint64_t>(outcomes, [](query_outcome const& o) { return o.latency_ns; });
  parts["slots"] = array_of(std::move(found.slots));
  parts["distances"] = array_of(std::move(found.distances));
  parts["seconds"] = found.seconds;
  parts["concurrency"] = found.concurrency;
  return parts;
}

}  // namespace
}  // namespace forebay::search

NB_MODULE(_search, m) {
  using namespace forebay::search;
  using forebay::python::shared_storage;
  using bytes_in = vector_in<std::uint8_t>;
  using words_in = vector_in<std::uint32_t>;
  using floats_in = vector_in<float>;
  using storage_object = nb::typed<nb::object, shared_storage>;
  using shared_vectors = forebay::python::used_in_turn<vector_index>;
  using shared_exact = forebay::python::used_in_turn<exact_index>;

  nb::class_<index_shape>(m, "Shape")
      .def(
          "__init__",
          [](index_shape* self, std::string const& dtype, std::string const& how, std::uint32_t slots,
             std::uint32_t record_words, std::uint32_t vector_words, std::uint32_t degree_max, std::uint32_t chunks,
             std::uint32_t chunk_dimension, std::uint32_t navigation_degree) {
            new (self) index_shape{.elements = element_of(dtype),
                                   .how = metric_of(how),
                                   .slots = slots,
                                   .record = {record_words, vector_words, degree_max},
                                   .chunks = chunks,
                                   .chunk_dimension = chunk_dimension,
                                   .navigation_degree = navigation_degree};
          },
          nb::kw_only(), nb::arg("dtype"), nb::arg("metric"), nb::arg("slots"), nb::arg("record_words"),
          nb::arg("vector_words"), nb::arg("degree_max"), nb::arg("chunks"), nb::arg("chunk_dimension"),
          nb::arg("navigation_degree"));
  nb::class_<shared_vectors>(m, "Index")
      .def_static(
          "on_drives",
          [](storage_object storage, std::string const& nodes, index_shape const& shape, bytes_in const& codes,
             floats_in const& codebook, words_in const& navigation_slots, words_in const& navigation_neighbours) {
            return new shared_vectors(nb::object(std::move(storage)), [&](forebay::storage& s) {
              return vector_index(
                  shape, {span_of(codes), span_of(codebook), span_of(navigation_slots), span_of(navigation_neighbours)},
                  s, s.find_extent(nodes));
            });
          },
          nb::rv_policy::take_ownership, nb::arg("storage"), nb::arg("nodes"), nb::kw_only(), nb::arg("shape"),
          nb::arg("codes"), nb::arg("codebook"), nb::arg("navigation_slots"), nb::arg("navigation_neighbours"))
      .def_static(
          "in_memory",
          [](buffer_owner records, std::string const& place, std::string const& device, index_shape const& shape,
             bytes_in const& codes, floats_in const& codebook, words_in const& navigation_slots,
             words_in const& navigation_neighbours) {
            python_buffer const all(records, false);
            return new shared_vectors([&] {
              return vector_index(
                  shape, {span_of(codes), span_of(codebook), span_of(navigation_slots), span_of(navigation_neighbours)},
                  bytes_of(all), memory_of(place, device));
            });
          },
          nb::rv_policy::take_ownership, nb::arg("records"), nb::arg("place"), nb::kw_only(), nb::arg("device"),
          nb::arg("shape"), nb::arg("codes"), nb::arg("codebook"), nb::arg("navigation_slots"),
          nb::arg("navigation_neighbours"))
      .def(
          "search",
          [](shared_vectors& self, std::uint32_t count, words_in const& words, floats_in const& norms,
             floats_in const& components, floats_in const& offsets_and_scales, words_in const& filter_bits,
             std::uint32_t k, std::uint32_t list_size, std::uint32_t width, std::uint32_t refill,
             std::uint32_t navigation_size, std::uint32_t batch, std::uint32_t concurrency, double timeout_s) {
            query_set const queries{count,
                                    span_of(words),
                                    span_of(norms),
                                    span_of(components),
                                    span_of(offsets_and_scales),
                                    span_of(filter_bits)};
            search_options const options{k, list_size, width, refill, navigation_size, batch, concurrency, timeout_s};
            return dict_of(self.with([&](vector_index& i) { return i.search(queries, options); }));
          },
          nb::arg("count"), nb::kw_only(), nb::arg("words"), nb::arg("norms"), nb::arg("components"),
          nb::arg("offsets_and_scales"), nb::arg("filter_bits"), nb::arg("k"), nb::arg("list_size"), nb::arg("width"),
          nb::arg("refill"), nb::arg("navigation_size"), nb::arg("batch"), nb::arg("concurrency"),
          nb::arg("timeout_s"));

  nb::class_<exact_shape>(m, "ExactShape")
      .def(
          "__init__",
          [](exact_shape* self, std::string const& dtype, std::string const& how, std::uint32_t slots,
             std::uint32_t list_words, std::uint32_t vector_words, std::uint32_t degree_max) {
            new (self) exact_shape{.elements = element_of(dtype),
                                   .how = metric_of(how),
                                   .slots = slots,
                                   .layout = {list_words, vector_words, degree_max}};
          },
          nb::kw_only(), nb::arg("dtype"), nb::arg("metric"), nb::arg("slots"), nb::arg("list_words"),
          nb::arg("vector_words"), nb::arg("degree_max"));
  nb::class_<shared_exact>(m, "ExactIndex")
      .def_static(
          "on_drives",
          [](storage_object storage, std::string const& lists, std::string const& vectors, exact_shape const& shape,
             words_in const& entry_slots, words_in const& entry_checksums) {
            return new shared_exact(nb::object(std::move(storage)), [&](forebay::storage& s) {
              return exact_index(shape, {span_of(entry_slots), span_of(entry_checksums)}, s, s.find_extent(lists),
                                 s.find_extent(vectors));
            });
          },
          nb::rv_policy::take_ownership, nb::arg("storage"), nb::arg("lists"), nb::arg("vectors"), nb::kw_only(),
          nb::arg("shape"), nb::arg("entry_slots"), nb::arg("entry_checksums"))
      .def_static(
          "in_memory",
          [](buffer_owner lists, buffer_owner vectors, std::string const& place, std::string const& device,
             exact_shape const& shape, words_in const& entry_slots, words_in const& entry_checksums) {
            python_buffer const all_lists(lists, false), all_vectors(vectors, false);
            return new shared_exact([&] {
              return exact_index(shape, {span_of(entry_slots), span_of(entry_checksums)}, bytes_of(all_lists),
                                 bytes_of(all_vectors), memory_of(place, device));
            });
          },
          nb::rv_policy::take_ownership, nb::arg("lists"), nb::arg("vectors"), nb::arg("place"), nb::kw_only(),
          nb::arg("device"), nb::arg("shape"), nb::arg("entry_slots"), nb::arg("entry_checksums"))
      .def(
          "search",
          [](shared_exact& self, std::uint32_t count, words_in const& words, floats_in const& norms,
             words_in const& filter_bits, std::uint32_t k, std::uint32_t list_size, std::uint32_t width,
             std::uint32_t entries, std::uint32_t iterations, std::uint32_t batch, std::uint32_t concurrency,
             double timeout_s) {
            query_set const queries{
                .count = count, .words = span_of(words), .norms = span_of(norms), .filter = span_of(filter_bits)};
            exact_options const options{k, list_size, width, entries, iterations, batch, concurrency, timeout_s};
            return dict_of(self.with([&](exact_index& i) { return i.search(queries, options); }));
          },
          nb::arg("count"), nb::kw_only(), nb::arg("words"), nb::arg("norms"), nb::arg("filter_bits"), nb::arg("k"),
          nb::arg("list_size"), nb::arg("width"), nb::arg("entries"), nb::arg("iterations"), nb::arg("batch"),
          nb::arg("concurrency"), nb::arg("timeout_s"));
  m.def(
      "status_text", [](std::uint32_t bits) { return forebay::to_string(forebay::status::from_bits(bits)); },
      nb::arg("bits"));
}
