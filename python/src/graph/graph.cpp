// SPDX-License-Identifier: Apache-2.0
//! \file
//! forebay._graph: the graph algorithms as python/forebay/graph uses them. Figures cross as JSON text. The stub
//! python/forebay/_graph.pyi declares the same names and signatures. The library is that of forebay._core, which is
//! loaded first: both modules share its drives.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../arguments.hpp"
#include "../arrays.hpp"
#include "../latency_json.hpp"
#include "../python_buffer.hpp"
#include "../python_lock.hpp"
#include "../shared_storage.hpp"
#include "../used_in_turn.hpp"
#include "apps/graph_lists/generate.hpp"
#include "apps/graph_lists/lists.hpp"
#include "forebay/error.hpp"
#include "forebay/external_memory.hpp"

namespace nb = nanobind;
using nlohmann::json;

namespace forebay::graph {
namespace {

using python::array_of;
using python::buffer_owner;
using python::gpu_of;
using python::named;
using python::python_buffer;
using python::shared_storage;
using python::span_of;
using python::vector_in;
using python::vector_out;
using python::without_lock;

template <class T>
json or_null(std::optional<T> const& value) {
  return value ? json(*value) : json();
}

json to_json(run_figures const& figures) {
  return {{"seconds", figures.seconds},
          {"bytes_needed", figures.useful_bytes},
          {"reads", or_null(figures.requests)},
          {"bytes_read", or_null(figures.read_bytes)},
          {"loads", or_null(figures.loads)},
          {"late", or_null(figures.late)},
          {"clat_ns", figures.latency ? python::to_json(*figures.latency) : json()}};
}

entry_kind entry_of(std::string_view name) {
  return named<entry_kind>(
      "entry", name, {{"id", entry_kind::id}, {"wide_id", entry_kind::wide_id}, {"weighted", entry_kind::weighted}});
}

using shared_lists = python::used_in_turn<lists>;

void make_in_memory(shared_lists* self, vector_in<std::uint64_t> const& row_begin, buffer_owner entries,
                    std::optional<buffer_owner> values, std::string const& entry, std::string const& kind,
                    std::string const& device, int node, std::string const& external) {
  lists_in_memory where{.place = named<memory_place>("kind", kind,
                                                     {{"hbm", memory_place::hbm},
                                                      {"host", memory_place::host},
                                                      {"uvm", memory_place::uvm},
                                                      {"external", memory_place::external}}),
                        .gpu = gpu_of(device),
                        .node = node};
  if (where.place == memory_place::external) where.external = memory::external_memory_options::parse(external);
  python_buffer const list(entries, false);
  std::optional<python_buffer> numbers;
  if (values) numbers.emplace(*values, false);
  csr_lists const graph{
      .row_begin = span_of(row_begin),
      .entry = entry_of(entry),
      .entries = {static_cast<std::byte const*>(list.data()), list.size_bytes()},
      .values = numbers ? std::span(static_cast<float const*>(numbers->data()), numbers->size_bytes() / sizeof(float))
                        : std::span<float const>()};
  new (self) shared_lists([&] { return lists(graph, where); });
}

shared_lists* on_drives(nb::typed<nb::object, shared_storage> storage, vector_in<std::uint64_t> const& row_begin,
                        std::string const& entry, std::string const& entries, std::optional<std::string> const& values,
                        std::uint32_t iodepth, std::uint64_t request_bytes) {
  csr_lists const graph{.row_begin = span_of(row_begin), .entry = entry_of(entry)};
  return new shared_lists(nb::object(std::move(storage)), [&](forebay::storage& s) {
    lists_on_drives where{.entries = s.find_extent(entries), .iodepth = iodepth, .request_bytes = request_bytes};
    if (values) where.values = s.find_extent(*values);
    return lists(graph, s, where);
  });
}

using level_tell = std::optional<nb::typed<nb::callable, void(std::uint32_t, std::uint64_t)>>;
template <class... Parts>
using parts = nb::typed<nb::tuple, Parts...>;
template <class T>
using array = vector_out<T>;

using bfs_result = parts<array<std::uint32_t>, array<std::uint32_t>, nb::str>;

bfs_result bfs_parts(found_bfs found) {
  json figures = to_json(found.figures);
  figures["frontier"] = json::array();
  figures["levels"] = json::array();
  for (found_level const& level : found.levels) {
    figures["frontier"].push_back(level.vertices);
    figures["levels"].push_back({{"vertices", level.vertices},
                                 {"entries", level.entries},
                                 {"from_below", level.from_below},
                                 {"seconds", level.seconds}});
  }
  return nb::make_tuple(array_of(std::move(found.distances)), array_of(std::move(found.predecessors)), figures.dump());
}

parts<array<std::uint32_t>, array<std::uint32_t>, nb::str> search(shared_lists& self, std::uint32_t source,
                                                                  std::string const& direction,
                                                                  level_tell const& tell) {
  auto const how = named<bfs_direction>("direction", direction,
                                        {{"auto", bfs_direction::whichever_is_less},
                                         {"above", bfs_direction::from_above},
                                         {"below", bfs_direction::from_below}});
  level_listener listener;
  if (tell) {
    listener = [&](std::uint32_t level, std::uint64_t vertices) {
      python::with_lock([&] { (*tell)(level, vertices); });
    };
  }
  return bfs_parts(self.with([&](lists& l) { return l.bfs(source, how, listener); }));
}

parts<array<std::uint64_t>, array<std::uint32_t>, nb::str> find_paths(shared_lists& self, std::uint32_t source,
                                                                      std::uint32_t delta) {
  found_sssp found = self.with([&](lists& l) { return l.sssp(source, delta); });
  json figures = to_json(found.figures);
  figures["buckets"] = found.buckets;
  figures["phases"] = found.phases;
  return nb::make_tuple(array_of(std::move(found.distances)), array_of(std::move(found.predecessors)), figures.dump());
}

pagerank_options options_of(double damping, double tolerance, std::uint32_t iterations, bool share_dangling) {
  return {.damping = static_cast<float>(damping),
          .tolerance = tolerance,
          .iterations_max = iterations,
          .dangling = share_dangling ? pagerank_dangling::shared : pagerank_dangling::lost};
}

parts<array<float>, nb::str> rank(shared_lists& self, std::optional<vector_in<std::uint32_t>> const& outgoing,
                                  double damping, double tolerance, std::uint32_t iterations, bool share_dangling) {
  pagerank_options const options = options_of(damping, tolerance, iterations, share_dangling);
  found_pagerank found = self.with([&](lists& l) { return l.pagerank(span_of(outgoing), options); });
  json figures = to_json(found.figures);
  figures["iterations"] = found.iterations;
  figures["change"] = found.change;
  return nb::make_tuple(array_of(std::move(found.scores)), figures.dump());
}

parts<array<std::uint32_t>, nb::str> join(shared_lists& self) {
  found_components found = self.with([](lists& l) { return l.components(); });
  json figures = to_json(found.figures);
  figures["components"] = found.components;
  return nb::make_tuple(array_of(std::move(found.labels)), figures.dump());
}

parts<nb::int_, nb::str> count(shared_lists& self) {
  found_triangles const found = self.with([](lists& l) { return l.triangles(); });
  return nb::make_tuple(found.triangles, to_json(found.figures).dump());
}

parts<array<float>, nb::str> multiply(shared_lists& self, vector_in<float> const& x) {
  found_product found = self.with([&](lists& l) { return l.multiply(span_of(x)); });
  return nb::make_tuple(array_of(std::move(found.y)), to_json(found.figures).dump());
}

std::string external_options(std::string const& text) {
  auto const options = memory::external_memory_options::parse(text);
  return json{{"latency_us", options.latency_us},
              {"alignment_bytes", options.alignment_bytes},
              {"request_max_bytes", options.request_max_bytes},
              {"iops", options.iops},
              {"devices", options.devices},
              {"outstanding", options.outstanding},
              {"link_bytes_per_second", options.link_bytes_per_second}}
      .dump();
}

parts<array<std::uint64_t>, array<std::uint8_t>> generated(std::string const& kind, std::uint32_t scale,
                                                           std::uint32_t degree, std::string const& generator,
                                                           std::uint64_t seed, std::string const& entry,
                                                           std::string const& device, std::uint64_t memory_max_bytes) {
  bool const gap = named<bool>("generator", generator, {{"gap", true}, {"own", false}});
  bool const kronecker = named<bool>("kind", kind, {{"kronecker", true}, {"uniform", false}});
  graph_options const options{.kind = gap ? (kronecker ? graph_kind::gap_kronecker : graph_kind::gap_uniform)
                                          : (kronecker ? graph_kind::kronecker : graph_kind::uniform),
                              .scale = scale,
                              .edge_factor = degree,
                              .seed = seed,
                              .memory_max_bytes = memory_max_bytes};
  generated_lists made = [&] {
    entry_kind const wanted = entry_of(entry);
    int const gpu = gpu_of(device);
    without_lock const unlocked;
    return generate(options, wanted, gpu);
  }();
  auto kept = std::make_unique<std::vector<std::byte>>(std::move(made.entries));
  auto* const bytes = reinterpret_cast<std::uint8_t*>(kept->data());
  std::size_t const size = kept->size();
  nb::capsule const owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  return nb::make_tuple(array_of(std::move(made.row_begin)), array<std::uint8_t>(bytes, {size}, owner));
}

}  // namespace
}  // namespace forebay::graph

NB_MODULE(_graph, m) {
  using namespace forebay::graph;
  nb::class_<shared_lists>(m, "Lists")
      .def("__init__", &make_in_memory, nb::arg("row_begin"), nb::arg("entries"), nb::arg("values").none(),
           nb::kw_only(), nb::arg("entry"), nb::arg("kind"), nb::arg("device"), nb::arg("node"), nb::arg("external"))
      .def_static("on_drives", &on_drives, nb::rv_policy::take_ownership, nb::arg("storage"), nb::arg("row_begin"),
                  nb::kw_only(), nb::arg("entry"), nb::arg("entries"), nb::arg("values").none(), nb::arg("iodepth"),
                  nb::arg("request_bytes"))
      .def("make_cold", [](shared_lists& self) { self.with([](lists& l) { l.make_cold(); }); })
      .def("bfs", &search, nb::arg("source"), nb::kw_only(), nb::arg("direction"), nb::arg("tell").none())
      .def(
          "plain_bfs",
          [](shared_lists& self, std::uint32_t source) {
            return bfs_parts(self.with([&](lists& l) { return l.plain_bfs(source); }));
          },
          nb::arg("source"))
      .def("sssp", &find_paths, nb::arg("source"), nb::kw_only(), nb::arg("delta"))
      .def("pagerank", &rank, nb::arg("outgoing").none(), nb::kw_only(), nb::arg("damping"), nb::arg("tolerance"),
           nb::arg("iterations"), nb::arg("share_dangling"))
      .def("components", &join)
      .def("triangles", &count)
      .def("spmv", &multiply, nb::arg("x"))
      .def(
          "check_bfs",
          [](shared_lists& self, std::uint32_t source, vector_in<std::uint32_t> const& distances,
             vector_in<std::uint32_t> const& predecessors) {
            return self.with(
                [&](lists& l) { return l.wrong_in_bfs(source, span_of(distances), span_of(predecessors)); });
          },
          nb::arg("source"), nb::arg("distances"), nb::arg("predecessors"))
      .def(
          "check_sssp",
          [](shared_lists& self, std::uint32_t source, vector_in<std::uint64_t> const& distances,
             vector_in<std::uint32_t> const& predecessors) {
            return self.with(
                [&](lists& l) { return l.wrong_in_sssp(source, span_of(distances), span_of(predecessors)); });
          },
          nb::arg("source"), nb::arg("distances"), nb::arg("predecessors"))
      .def(
          "check_components",
          [](shared_lists& self, vector_in<std::uint32_t> const& labels) {
            return self.with([&](lists& l) { return l.wrong_in_components(span_of(labels)); });
          },
          nb::arg("labels"))
      .def(
          "check_pagerank",
          [](shared_lists& self, std::optional<vector_in<std::uint32_t>> const& outgoing,
             vector_in<float> const& scores, double damping, bool share_dangling) {
            return self.with([&](lists& l) {
              return l.residual_of_pagerank(span_of(outgoing), span_of(scores),
                                            options_of(damping, 0, 1, share_dangling));
            });
          },
          nb::arg("outgoing").none(), nb::arg("scores"), nb::kw_only(), nb::arg("damping"), nb::arg("share_dangling"));
  m.def("external_options", &external_options, nb::arg("text"));
  m.def("generate", &generated, nb::arg("kind"), nb::arg("scale"), nb::arg("degree"), nb::kw_only(),
        nb::arg("generator"), nb::arg("seed"), nb::arg("entry"), nb::arg("device"), nb::arg("memory_max_bytes"));
}
