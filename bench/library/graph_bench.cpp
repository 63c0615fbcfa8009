// SPDX-License-Identifier: Apache-2.0
//! \file
//! SpMV and BFS on a GPU. First its memory holds the graph (native), SpMV beside cuSPARSE's; then columns and values
//! lie on an emulated drive behind a cache: with everything in the cache (all hits), and with nothing (cold). Every
//! result is checked on the GPU.
//!
//! The drive's engine takes multiprocessors of the same GPU, so native runs are timed beside it too.
#include "library/graph_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "apps/graph/build.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/repeated.hpp"
#include "harness/row_drives.hpp"
#include "library/graph_storage.hpp"
#include "library/spmv_cusparse.hpp"

namespace {

using forebay::bench::command_line;
using forebay::bench::graph_on_gpu;
using forebay::bench::runs_per_case;
using forebay::bench::spmv_division;
using forebay::bench::timed;
using nlohmann::json;
namespace bench = forebay::bench;
namespace graph = forebay::graph;

struct options {
  std::uint32_t scale = 22;
  std::uint32_t edge_factor = 16;
  std::uint64_t seed = 1;
  std::uint32_t sources = 4;
  bool cusparse = true;
  bool storage = true;
  bool quick = false;
  double drive_iops = 40e6;
  std::uint32_t drive_latency_us = 50;
  std::uint32_t queues = 256;
  std::uint32_t page_bytes = 4096;
};

/// A row of which no drive has a part.
json without_drives(json row) {
  bench::row_drives().describe(row);
  return row;
}

json measure_spmv(graph_on_gpu& graph, options const& o, spmv_division& fastest, bool& good) {
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
    json found = without_drives(timed([&] { return graph.spmv_seconds(how); }));
    found["tile"] = how.tile;
    found["row_lanes"] = how.row_lanes;
    found["entries_per_warp"] = how.entries_per_warp;
    found["wrong_rows"] = graph.spmv_wrong_rows();
    good = good && found["wrong_rows"] == 0;
    double const median_s = found["median_s"].get<double>();
    if (median_s < best) {
      best = median_s;
      fastest = how;
    }
    fmt::print("  spmv native, tile {:4}, {} lanes a row, {:4} entries a warp: {:8.1f} us, {:6.1f} G entries/s\n",
               how.tile, how.row_lanes, how.entries_per_warp, median_s * 1e6,
               static_cast<double>(graph.entries()) / median_s / 1e9);
    result["native"].push_back(std::move(found));
  }
  if (!o.cusparse) return result;
  double best_cusparse = 1e9;
  for (int const algorithm : {1, 2}) {
    json found = without_drives(timed([&] { return graph.cusparse_seconds(algorithm); }));
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

json measure_bfs(graph_on_gpu& graph, options const& o, std::uint32_t& fastest, bool& good) {
  json results = json::array();
  double best = 1e9;
  for (std::uint32_t const share_pages : {1u, 2u, 4u, 8u, 16u}) {
    double const median_s =
        timed([&] { return graph.search(graph.source(0), share_pages).seconds; })["median_s"].get<double>();
    if (median_s < best) {
      best = median_s;
      fastest = share_pages;
    }
    fmt::print("  bfs native, {:2} pages a warp: {:8.1f} us\n", share_pages, median_s * 1e6);
  }
  for (std::uint32_t n = 0; n < o.sources; ++n) {
    std::uint32_t const source = graph.source(n);
    bench::bfs_timing last;
    json found = without_drives(timed([&] {
      last = graph.search(source, fastest);
      return last.seconds;
    }));
    double const median_s = found["median_s"].get<double>();
    double const per_second = static_cast<double>(last.entries) / median_s;
    found["source"] = source;
    found["share_pages"] = fastest;
    found["levels"] = last.levels;
    found["entries_reached"] = last.entries;
    found["entries_per_second"] = per_second;
    found["wrong_vertices"] = graph.bfs_wrong_vertices();
    good = good && found["wrong_vertices"] == 0;
    fmt::print("  bfs from {:8}: {:8.1f} us, {} levels, {:6.2f} G entries/s\n", source, median_s * 1e6,
               last.levels.size(), per_second / 1e9);
    results.push_back(std::move(found));
  }
  return results;
}

/// One way in which an application asks for its pages.
struct variant {
  json how;
  std::function<double()> seconds;  ///< of a run over whatever is cached
};

/// One application over a drive: `native` beside the drive's engine, and ways to ask for its pages.
class drive_runs {
 public:
  drive_runs(bench::graph_on_storage& drive, options const& o, bench::drive_options const& where, std::uint64_t bytes)
      : drive_(drive), o_(o), where_(where), bytes_(bytes) {}

  template <class Native, class Wrong>
  json measure(char const* name, std::vector<variant> const& variants, Native&& native, Wrong&& wrong, bool& good) {
    json result = {{"native_beside_drive", without_drives(timed(native))}};
    double const native_s = result["native_beside_drive"]["median_s"].get<double>();
    for (variant const& v : variants) {
      json one = v.how;
      one["cold"] = cold(v.seconds);
      one["wrong_after_cold"] = wrong();
      one["all_hits"] = all_hits(v.seconds);
      one["wrong_after_all_hits"] = wrong();
      good = good && one["wrong_after_cold"] == 0 && one["wrong_after_all_hits"] == 0;
      double const hits_s = one["all_hits"]["median_s"].get<double>(), cold_s = one["cold"]["median_s"].get<double>();
      // The time that the drive and its link need for the pages that were read, and the time of the application if it
      // finds them all.
      double const reads = one["cold"]["reads"].get<double>();
      double const drive_s = std::max(reads / o_.drive_iops, where_.link_seconds(reads * o_.page_bytes));
      double const bound_s = std::max(drive_s, hits_s);
      one["all_hits_over_native"] = hits_s / native_s;
      one["drive_s"] = drive_s;
      one["cold_over_bound"] = cold_s / bound_s;
      fmt::print(
          "  {} on a drive, {}: native beside it {:8.1f} us, all hits {:8.1f} us ({:.2f} x), cold {:8.1f} us ({:.2f} x "
          "the larger of that and {:.1f} us for {} reads)\n",
          name, v.how.dump(), native_s * 1e6, hits_s * 1e6, hits_s / native_s, cold_s * 1e6, cold_s / bound_s,
          drive_s * 1e6, one["cold"]["reads"].get<std::uint64_t>());
      std::fflush(stdout);
      result["runs"].push_back(std::move(one));
    }
    return result;
  }

 private:
  json cold(std::function<double()> const& run_once) {
    std::vector<double> seconds;
    std::vector<std::uint64_t> reads;
    json last;
    bench::row_drives drives;
    for (int i = 0; i < runs_per_case; ++i) {
      drive_.make_cold();
      drive_.report();
      seconds.push_back(run_once());
      last = json::parse(drive_.report());
      drives.add(last, seconds.back());
      std::uint64_t count = 0;
      for (json const& d : last["drives"]) count += d["statistics"]["read_commands"].get<std::uint64_t>();
      reads.push_back(count);
    }
    std::sort(reads.begin(), reads.end());
    json found = bench::with_median(std::move(seconds));
    found["reads"] = reads[reads.size() / 2];
    found["pages"] = bytes_ / o_.page_bytes;
    found["report"] = last;
    drives.describe(found);
    return found;
  }
  json all_hits(std::function<double()> const& run_once) {
    // Reads what the last cold run left out.
    run_once();
    drive_.report();
    std::vector<double> seconds;
    for (int i = 0; i < runs_per_case; ++i) seconds.push_back(run_once());
    bench::row_drives drives;
    drives.add(json::parse(drive_.report()), std::accumulate(seconds.begin(), seconds.end(), 0.0));
    json found = bench::with_median(std::move(seconds));
    drives.describe(found);
    return found;
  }

  bench::graph_on_storage& drive_;
  options const& o_;
  bench::drive_options const& where_;
  std::uint64_t bytes_;
};

json measure_storage(graph_on_gpu& graph, options const& o, bench::drive_options const& where,
                     spmv_division const& fastest, std::uint32_t native_pages, bool& good) {
  constexpr std::uint64_t mebibyte = 1 << 20;
  bench::graph_layout const layout = bench::graph_layout::of(graph.entries(), o.page_bytes);
  forebay::storage_options s;
  s.drives = where.uris(fmt::format("emulated:size={}M,iops={:.0f},latency_us={}", layout.size_bytes() / mebibyte + 1,
                                    o.drive_iops, o.drive_latency_us),
                        1);
  s.device = "cuda:0";
  s.queues.per_drive = o.queues;
  s.cache.page_bytes = o.page_bytes;
  // Room for all pages: consecutive pages lie in consecutive sets.
  std::uint64_t const set_bytes = 16ull * o.page_bytes;
  s.cache.size_bytes = (layout.size_bytes() + set_bytes - 1) / set_bytes * set_bytes;
  auto const daemon = where.serve(s.drives);
  bench::graph_on_storage drive(graph, s);
  json result = {{"drive", s.drives[0]},
                 {"queues", s.queues.per_drive},
                 {"page_bytes", s.cache.page_bytes},
                 {"cache_bytes", s.cache.size_bytes},
                 {"spmv_registers", drive.spmv_registers()},
                 {"bfs_from_above_registers", drive.bfs_from_above_registers()},
                 {"bfs_from_below_registers", drive.bfs_from_below_registers()}};
  fmt::print("  on {}: {} registers for spmv, {} and {} for bfs from above and from below\n", s.drives[0],
             drive.spmv_registers(), drive.bfs_from_above_registers(), drive.bfs_from_below_registers());
  drive_runs runs(drive, o, where, layout.size_bytes());
  std::uint64_t const page_entries = o.page_bytes / 4;
  std::vector<variant> products, searches;
  auto const product = [&](std::uint32_t pages, std::uint32_t window, std::uint64_t ahead, std::uint32_t row_lanes,
                           std::uint32_t threads) {
    bench::spmv_on_storage const how{pages * page_entries, window, ahead, row_lanes, threads};
    products.push_back({{{"entries_per_warp", how.entries_per_warp},
                         {"window", window},
                         {"prefetch_shares", ahead},
                         {"row_lanes", row_lanes},
                         {"threads", threads}},
                        [&drive, how] { return drive.spmv_seconds(how); }});
  };
  // First a page at a time, as the reference for the others.
  product(4, 1, 0, 1, 768);
  for (std::uint32_t const pages : {2u, 4u, 8u, 16u}) product(pages, pages, 0, 1, 768);
  for (std::uint32_t const pages : {4u, 8u}) product(pages, pages, drive.warps(), 1, 768);
  product(8, 8, 0, 1, 1024);
  product(8, 8, 0, 4, 768);
  if (o.quick) products.erase(products.begin() + 2, products.end());
  result["spmv"] = runs.measure(
      "spmv", products, [&] { return graph.spmv_seconds(fastest); }, [&] { return graph.spmv_wrong_rows(); }, good);
  std::uint32_t const source = graph.source(0);
  auto const search = [&](std::uint32_t pages, std::uint32_t threads, bool sweep) {
    bench::bfs_on_storage const how{pages, threads, sweep};
    searches.push_back({{{"share_pages", pages}, {"threads", threads}, {"sweep", sweep}},
                        [&drive, source, how] { return drive.search(source, how).seconds; }});
  };
  for (bool const sweep : {false, true}) {
    for (std::uint32_t const pages : {4u, 8u}) search(pages, 768, sweep);
  }
  search(8, 1024, false);
  result["bfs"] = runs.measure(
      "bfs", searches, [&] { return graph.search(source, native_pages).seconds; },
      [&] { return drive.bfs_wrong_vertices(); }, good);
  result["bfs"]["native_share_pages"] = native_pages;
  good = good && !drive.failed();
  result["failed"] = drive.failed();
  return result;
}

json measure(graph::graph_kind kind, options const& o, bench::drive_options const& where, bool& good) {
  graph_on_gpu graph({kind, o.scale, o.edge_factor, o.seed});
  char const* const name = kind == graph::graph_kind::kronecker ? "kronecker" : "uniform";
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
  spmv_division fastest{512, 4, 4096};
  result["spmv"] = measure_spmv(graph, o, fastest, good);
  std::uint32_t native_pages = 8;
  result["bfs"] = measure_bfs(graph, o, native_pages, good);
  if (o.storage) result["storage"] = measure_storage(graph, o, where, fastest, native_pages, good);
  return result;
}

int run(command_line const& given) {
  options o;
  o.quick = given.has("--quick");
  o.cusparse = !given.has("--no-cusparse");
  o.storage = !given.has("--no-storage");
  o.drive_iops = given.number("--drive-iops", o.drive_iops);
  o.drive_latency_us = given.number("--drive-latency-us", o.drive_latency_us);
  o.queues = given.number("--queues", o.queues);
  o.page_bytes = given.number("--page-bytes", o.page_bytes);
  o.scale = given.number("--scale", o.quick ? 16u : o.scale);
  o.edge_factor = given.number("--edge-factor", o.edge_factor);
  o.seed = given.number("--seed", o.seed);
  o.sources = given.number("--sources", o.quick ? 1u : o.sources);
  bench::drive_options const where(given, 1);
  if (auto const status = o.storage ? where.run_as_client(given, 1) : std::nullopt) return *status;
  json document = forebay::bench::document_of("library_graph", given.as_typed());
  if (o.cusparse) document["cusparse_version"] = bench::cusparse_spmv::version();
  bool good = true;
  for (graph::graph_kind const kind : {graph::graph_kind::kronecker, graph::graph_kind::uniform}) {
    document["results"].push_back(measure(kind, o, where, good));
  }
  return forebay::bench::finish(given, std::move(document), good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = drive_options::with_value({{"--scale", "graphs have two to this power of vertices; default: 22"},
                                             {"--edge-factor", "edges for each vertex; default: 16"},
                                             {"--seed", "of the graphs; default: 1"},
                                             {"--sources", "searches from so many vertices; default: 4"},
                                             {"--drive-iops", "commands a second of the drive; default: 40000000"},
                                             {"--drive-latency-us", "least latency of the drive; default: 50"},
                                             {"--queues", "queue pairs of the drive; default: 256"},
                                             {"--page-bytes", "of the cache; default: 4096"}}),
    .switches = drive_options::switches({{"--quick", "small graphs, and few cases"},
                                         {"--no-cusparse", "leave out cuSPARSE"},
                                         {"--no-storage", "leave out the drive"}}),
    .environment = {load_all_code},
    .run = run};
