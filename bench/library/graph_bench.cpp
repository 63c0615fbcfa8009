// SPDX-License-Identifier: Apache-2.0
//! \file
//! SpMV and BFS on a GPU whose memory holds the graph: what an application costs without a cache. SpMV beside
//! cuSPARSE's, every result checked on the GPU.
#include "library/graph_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/command_line.hpp"
#include "forebay/error.hpp"
#include "library/graph_build.hpp"
#include "library/spmv_cusparse.hpp"
#include "machine.hpp"

namespace {

using forebay::bench::graph_kind;
using forebay::bench::graph_on_gpu;
using forebay::bench::spmv_division;
using nlohmann::json;
namespace bench = forebay::bench;

constexpr int runs_per_case = 5;

struct options {
  std::uint32_t scale = 22;
  std::uint32_t edge_factor = 16;
  std::uint64_t seed = 1;
  std::uint32_t sources = 4;
  bool cusparse = true;
  bool quick = false;
};

/// One run that is not counted, then the median of five.
json timed(std::function<double()> const& run_once) {
  run_once();
  std::vector<double> seconds;
  for (int i = 0; i < runs_per_case; ++i) seconds.push_back(run_once());
  std::sort(seconds.begin(), seconds.end());
  return {{"seconds", seconds}, {"median_s", seconds[seconds.size() / 2]}};
}

json measure_spmv(graph_on_gpu& graph, options const& o, bool& good) {
  std::vector<spmv_division> divisions;
  for (std::uint32_t const tile : {256, 512, 1024}) {
    for (std::uint32_t const row_lanes : {1, 4, 8}) {
      for (std::uint64_t const entries : {2048, 4096, 8192}) divisions.push_back({tile, row_lanes, entries});
    }
  }
  if (o.quick) divisions = {{512, 4, 4096}};
  json result = {{"native", json::array()}};
  double best = 1e9;
  for (spmv_division const& how : divisions) {
    json found = timed([&] { return graph.spmv_seconds(how); });
    found["tile"] = how.tile;
    found["row_lanes"] = how.row_lanes;
    found["entries_per_warp"] = how.entries_per_warp;
    found["wrong_rows"] = graph.spmv_wrong_rows();
    good = good && found["wrong_rows"] == 0;
    double const median_s = found["median_s"].get<double>();
    best = std::min(best, median_s);
    fmt::print("  spmv native, tile {:4}, {} lanes a row, {:4} entries a warp: {:8.1f} us, {:6.1f} G entries/s\n",
               how.tile, how.row_lanes, how.entries_per_warp, median_s * 1e6,
               static_cast<double>(graph.entries()) / median_s / 1e9);
    result["native"].push_back(std::move(found));
  }
  if (!o.cusparse) return result;
  double best_cusparse = 1e9;
  for (int const algorithm : {1, 2}) {
    json found = timed([&] { return graph.cusparse_seconds(algorithm); });
    found["algorithm"] = fmt::format("CSR_ALG{}", algorithm);
    found["wrong_rows"] = graph.spmv_wrong_rows();
    double const median_s = found["median_s"].get<double>();
    best_cusparse = std::min(best_cusparse, median_s);
    fmt::print("  spmv cuSPARSE CSR_ALG{}: {:8.1f} us\n", algorithm, median_s * 1e6);
    result["cusparse"].push_back(std::move(found));
  }
  result["native_over_cusparse"] = best / best_cusparse;
  fmt::print("  spmv native / cuSPARSE: {:.3f}\n", best / best_cusparse);
  return result;
}

json measure_bfs(graph_on_gpu& graph, options const& o, bool& good) {
  json results = json::array();
  for (std::uint32_t n = 0; n < o.sources; ++n) {
    std::uint32_t const source = graph.source(n);
    bench::bfs_timing last;
    json found = timed([&] {
      last = graph.search(source);
      return last.seconds;
    });
    double const median_s = found["median_s"].get<double>();
    double const per_second = static_cast<double>(last.entries) / median_s;
    found["source"] = source;
    found["levels"] = last.levels;
    found["entries_visited"] = last.entries;
    found["entries_per_second"] = per_second;
    found["wrong_vertices"] = graph.bfs_wrong_vertices();
    good = good && found["wrong_vertices"] == 0;
    fmt::print("  bfs from {:8}: {:8.1f} us, {} levels, {:6.2f} G entries/s\n", source, median_s * 1e6,
               last.levels.size(), per_second / 1e9);
    results.push_back(std::move(found));
  }
  return results;
}

json measure(graph_kind kind, options const& o, bool& good) {
  graph_on_gpu graph({kind, o.scale, o.edge_factor, o.seed});
  char const* const name = kind == graph_kind::kronecker ? "kronecker" : "uniform";
  fmt::print("{} scale {}: {} entries, largest degree {}, built in {:.2f} s\n", name, o.scale, graph.entries(),
             graph.degree_max(), graph.seconds_to_build());
  json result = {{"graph", name},
                 {"scale", o.scale},
                 {"edge_factor", o.edge_factor},
                 {"seed", o.seed},
                 {"vertices", graph.vertices()},
                 {"vertices_alone", graph.vertices_alone()},
                 {"entries", graph.entries()},
                 {"degree_max", graph.degree_max()},
                 {"build_s", graph.seconds_to_build()}};
  result["spmv"] = measure_spmv(graph, o, good);
  result["bfs"] = measure_bfs(graph, o, good);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    options o;
    forebay::apps::command_line const given(argc, argv, {"--scale", "--edge-factor", "--seed", "--sources"},
                                            {"--quick", "--no-cusparse"});
    o.quick = given.has("--quick");
    o.cusparse = !given.has("--no-cusparse");
    o.scale = given.number("--scale", o.quick ? 16u : o.scale);
    o.edge_factor = given.number("--edge-factor", o.edge_factor);
    o.seed = given.number("--seed", o.seed);
    o.sources = given.number("--sources", o.quick ? 1u : o.sources);
    json document = {{"schema_version", 1}, {"benchmark", "library_graph"}, {"machine", bench::machine()}};
    document["command"] = given.as_typed();
    if (o.cusparse) document["cusparse_version"] = bench::cusparse_spmv::version();
    bool good = true;
    for (graph_kind const kind : {graph_kind::kronecker, graph_kind::uniform}) {
      document["results"].push_back(measure(kind, o, good));
    }
    document["verified"] = good;
    given.write(document.dump(2));
    return good ? 0 : 1;
  } catch (forebay::refused_input const& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  } catch (std::exception const& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
