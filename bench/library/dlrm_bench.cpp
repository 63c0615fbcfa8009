// SPDX-License-Identifier: Apache-2.0
//! \file
//! Inference of a recommender on a GPU: AGILE's three configurations, batches of 1 to 2,048. First with its tables in
//! the GPU's memory, with clicks checked against products without cuBLAS. Then with its tables on an emulated drive
//! behind a cache, where each batch is gathered and inferred in turn (sync) or the next one's rows are prefetched
//! meanwhile (async), for several batches, numbers of drives, queue pairs and cache sizes
//! (`--sweeps batch,drives,queues,cache`). The possible gain depends on how long the drives take beside the networks.
//! The tables are larger than the largest cache, and every row of the results says how many pages a batch reads. Runs
//! of sync and async take turns, each over batches that the trace has not had lately; every float of the last gather is
//! checked.
//!
//! Traces are synthetic (`zipf`) unless one is given that apps/recommender/obp.py has made of ZOZO's logs.
#include "library/dlrm_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/recommender/dlrm.hpp"
#include "apps/recommender/trace.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/repeated.hpp"
#include "harness/row_drives.hpp"
#include "library/dlrm_storage.hpp"

namespace {

using forebay::bench::command_line;
using forebay::bench::dlrm_in_memory;
using forebay::bench::dlrm_seconds;
using forebay::bench::runs_per_case;
using forebay::recommender::cublas_math;
using forebay::recommender::dlrm_config;
using forebay::recommender::dlrm_trace;
using nlohmann::json;
namespace bench = forebay::bench;
namespace recommender = forebay::recommender;

json timed(std::vector<dlrm_seconds> const& runs, double dlrm_seconds::* part, std::uint64_t batches) {
  std::vector<double> seconds;
  for (dlrm_seconds const& r : runs) seconds.push_back(r.*part);
  json found = bench::with_median(std::move(seconds));
  found["us_per_batch"] = found["median_s"].get<double>() * 1e6 / static_cast<double>(batches);
  return found;
}

json measure(dlrm_in_memory& model, std::uint32_t samples, std::uint64_t batches_max) {
  std::uint64_t const batches = model.cut(samples, batches_max);
  if (batches == 0) throw forebay::refused_input("--batches", std::to_string(samples), "is more than the trace has");
  model.measure();
  std::vector<dlrm_seconds> runs;
  for (int i = 0; i < runs_per_case; ++i) runs.push_back(model.measure());
  json found = {{"batch", samples},
                {"batches", batches},
                {"in_turn", timed(runs, &dlrm_seconds::in_turn, batches)},
                {"ahead", timed(runs, &dlrm_seconds::ahead, batches)},
                {"gather", timed(runs, &dlrm_seconds::gather, batches)},
                {"infer", timed(runs, &dlrm_seconds::infer, batches)}};
  // It has no drives.
  bench::row_drives().describe(found);
  auto const us = [&](char const* part) { return found[part]["us_per_batch"].get<double>(); };
  fmt::print("  batch {:4}: {:8.1f} us in turn, {:8.1f} us ahead; gather {:7.1f} us, networks {:8.1f} us\n", samples,
             us("in_turn"), us("ahead"), us("gather"), us("infer"));
  return found;
}

struct drive_shape {
  double iops;  ///< of each
  std::uint32_t latency_us;
  std::uint32_t page_bytes;
};

/// One way to run a recommender on a drive.
struct storage_case {
  char const* sweep;  ///< what is varied
  std::uint32_t config;
  std::uint32_t batch;
  std::uint64_t cache_mb = 2048;
  std::uint32_t queues = 128;
  std::uint32_t queue_depth = 256;
  std::uint32_t drives = 2;

  bool same_storage(storage_case const& other) const {
    return config == other.config && cache_mb == other.cache_mb && queues == other.queues &&
           queue_depth == other.queue_depth && drives == other.drives;
  }
};

std::vector<storage_case> storage_cases(std::string const& sweeps, std::vector<std::uint32_t> const& configs,
                                        std::vector<std::uint32_t> const& batches, std::uint32_t drives, bool quick) {
  std::vector<storage_case> cases;
  auto const asked = [&](char const* sweep) { return sweeps.empty() || sweeps.find(sweep) != std::string::npos; };
  for (std::uint32_t const c : asked("batch") ? configs : std::vector<std::uint32_t>()) {
    for (std::uint32_t const b : batches) cases.push_back({.sweep = "batch", .config = c, .batch = b});
  }
  for (std::uint32_t const c : asked("drives") ? configs : std::vector<std::uint32_t>()) {
    for (std::uint32_t const n : {1u, 2u, 4u}) {
      cases.push_back({.sweep = "drives", .config = c, .batch = batches.back(), .drives = n});
    }
  }
  std::uint32_t const c = configs[0], b = batches.back();
  auto const queue_counts = quick ? std::vector<std::uint32_t>{4} : std::vector<std::uint32_t>{1, 2, 4, 8, 16};
  auto const megabytes = quick ? std::vector<std::uint64_t>{4}
                               : std::vector<std::uint64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  for (std::uint32_t const queues : asked("queues") ? queue_counts : std::vector<std::uint32_t>()) {
    cases.push_back({.sweep = "queues", .config = c, .batch = b, .queues = queues, .queue_depth = 64});
  }
  for (std::uint64_t const mb : asked("cache") ? megabytes : std::vector<std::uint64_t>()) {
    cases.push_back({.sweep = "cache", .config = c, .batch = b, .cache_mb = mb});
  }
  for (storage_case& s : cases) {
    if (std::string_view(s.sweep) != "drives") s.drives = drives;
  }
  return cases;
}

std::uint32_t most_drives(std::vector<storage_case> const& cases) {
  std::uint32_t most = 0;
  for (storage_case const& c : cases) most = std::max(most, c.drives);
  return most;
}

/// Sync and async in turns.
json measure(bench::dlrm_on_storage& model, storage_case const& c, std::uint64_t batches_max, bool& good) {
  std::vector<double> in_turn, ahead, infer, gather;
  std::uint64_t batches = 0, wrong = 0;
  json reports;
  bench::row_drives drives;
  auto const note = [&](char const* way, double seconds) {
    reports[way] = json::parse(model.report());
    drives.add(reports[way], seconds);
    return seconds / static_cast<double>(batches);
  };
  auto const reads_of = [](json const& report) {
    std::uint64_t reads = 0;
    for (json const& d : report["drives"]) reads += d["statistics"]["read_commands"].get<std::uint64_t>();
    return reads;
  };
  auto const fresh = [&] {
    batches = model.take(c.batch, batches_max);
    if (batches == 0) throw forebay::refused_input("--batches", std::to_string(c.batch), "is more than the trace has");
  };
  fresh();
  model.seconds_in_turn();
  // A prefetch that outlives the networks delays the next gather.
  double const networks_s = model.seconds_to_infer() / static_cast<double>(batches);
  auto const patience_ns = static_cast<std::uint64_t>(networks_s * 1e9);
  for (int i = 0; i < runs_per_case; ++i) {
    fresh();
    model.report();
    in_turn.push_back(note("sync", model.seconds_in_turn()));
    wrong += model.wrong_floats();
    fresh();
    model.report();
    ahead.push_back(note("async", model.seconds_ahead(patience_ns)));
    wrong += model.wrong_floats();
    infer.push_back(model.seconds_to_infer() / static_cast<double>(batches));
    fresh();
    gather.push_back(model.seconds_to_gather() / static_cast<double>(batches));
  }
  for (std::vector<double>* const runs : {&in_turn, &ahead, &infer, &gather}) std::sort(runs->begin(), runs->end());
  auto const median = [](std::vector<double> const& runs) { return runs[runs.size() / 2]; };
  good = good && wrong == 0 && !model.failed();
  double const ratio = median(in_turn) / median(ahead);
  auto const reads_per_batch = [&](char const* way) {
    return static_cast<double>(reads_of(reports[way])) / static_cast<double>(batches);
  };
  fmt::print(
      "  config {} batch {:4} drives {} cache {:4} MB queues {:3} x {:3}: sync {:8.1f} us, async {:8.1f} us, ratio "
      "{:.3f}; "
      "gather {:8.1f} us, networks {:8.1f} us; {:.0f} and {:.0f} reads a batch\n",
      c.config, c.batch, c.drives, c.cache_mb, c.queues, c.queue_depth, median(in_turn) * 1e6, median(ahead) * 1e6,
      ratio, median(gather) * 1e6, median(infer) * 1e6, reads_per_batch("sync"), reads_per_batch("async"));
  std::fflush(stdout);
  json row = {{"sweep", c.sweep},
              {"config", c.config},
              {"batch", c.batch},
              {"batches", batches},
              {"drives", c.drives},
              {"cache_mb", c.cache_mb},
              {"queues", c.queues},
              {"queue_depth", c.queue_depth},
              {"sync_s_per_batch", in_turn},
              {"async_s_per_batch", ahead},
              {"infer_s_per_batch", infer},
              {"gather_s_per_batch", gather},
              {"patience_ns", patience_ns},
              {"prefetch_distance_max", model.prefetch_distance_max()},
              {"sync_over_async", ratio},
              {"sync_reads_per_batch", reads_per_batch("sync")},
              {"async_reads_per_batch", reads_per_batch("async")},
              {"wrong_floats", wrong},
              {"failed", model.failed()},
              {"reports", reports}};
  drives.describe(row);
  return row;
}

json measure_storage(dlrm_trace const& trace, std::vector<storage_case> const& cases, std::uint32_t floats,
                     cublas_math math, std::uint64_t batches_max, drive_shape const& drive,
                     bench::drive_options const& where, bool& good) {
  constexpr std::uint64_t mebibyte = 1 << 20;
  json results = json::array();
  std::unique_ptr<bench::drive_daemon> daemon;
  std::unique_ptr<bench::dlrm_on_storage> model;
  std::uint32_t largest = 1;
  for (storage_case const& c : cases) largest = std::max(largest, c.batch);
  auto const uris = [&](std::uint32_t drives) {
    return where.uris(
        fmt::format("emulated:size={}M,iops={:.0f},latency_us={}",
                    trace.rows_of_all_tables() * floats * 4 / mebibyte / drives + 1, drive.iops, drive.latency_us),
        drives);
  };
  fmt::print("on one or more of {}\n", uris(1)[0]);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    storage_case const& c = cases[i];
    if (i == 0 || !c.same_storage(cases[i - 1])) {
      model.reset();
      forebay::storage_options s;
      daemon.reset();
      s.drives = uris(c.drives);
      daemon = where.serve(s.drives);
      s.device = "cuda:0";
      s.queues.per_drive = c.queues;
      s.queues.depth = c.queue_depth;
      s.cache.page_bytes = drive.page_bytes;
      s.cache.size_bytes = c.cache_mb * mebibyte;
      dlrm_config config = recommender::dlrm_config_number(c.config);
      config.dense = trace.dense;
      config.tables = trace.tables();
      config.floats = floats;
      model = std::make_unique<bench::dlrm_on_storage>(config, trace, largest, math, s);
    }
    // Small batches end soon, so more of them are run.
    results.push_back(measure(*model, c, std::clamp<std::uint64_t>(40960 / c.batch, 1, batches_max), good));
    results.back()["gather_registers"] = model->gather_registers();
    results.back()["prefetch_registers"] = model->prefetch_registers();
  }
  json best = json::object(), worst = json::object();
  for (json const& r : results) {
    std::string const sweep = r["sweep"].get<std::string>() + ", config " + std::to_string(r["config"].get<int>());
    double const ratio = r["sync_over_async"].get<double>();
    best[sweep] = std::max(ratio, best.value(sweep, ratio));
    worst[sweep] = std::min(ratio, worst.value(sweep, ratio));
  }
  for (auto const& [sweep, ratio] : best.items()) {
    fmt::print("  {}: sync over async {:.3f} at best, {:.3f} at worst\n", sweep, ratio.get<double>(),
               worst[sweep].get<double>());
  }
  return {{"drive", uris(1)[0]},
          {"page_bytes", drive.page_bytes},
          {"table_bytes", trace.rows_of_all_tables() * floats * 4},
          {"best_sync_over_async", best},
          {"worst_sync_over_async", worst},
          {"runs", results}};
}

dlrm_trace trace_of(command_line const& given, bool quick) {
  std::string const path = given.text("--trace", "");
  if (!path.empty()) return recommender::read_trace(path);
  recommender::zipf_options zipf;
  zipf.samples = given.number("--samples", std::uint64_t{quick ? 65536u : 819200u});
  zipf.rows_max = given.number("--rows-max", quick ? 100'000u : 4'000'000u);
  zipf.exponent = given.number("--exponent", zipf.exponent);
  zipf.seed = given.number("--seed", zipf.seed);
  return recommender::make_zipf_trace(zipf);
}

int run(command_line const& given) {
  bool const quick = given.has("--quick");
  std::string const math = given.text("--math", "fp32");
  if (math != "fp32" && math != "tf32") throw forebay::refused_input("--math", math, "is fp32 or tf32");
  auto const batch_sizes =
      given.numbers("--batches", quick ? std::vector<std::uint32_t>{16, 2048}
                                       : std::vector<std::uint32_t>{1, 4, 16, 64, 256, 1024, 2048});
  for (std::uint32_t const b : batch_sizes) {
    if (b == 0) throw forebay::refused_input("--batches", "0", "is at least 1");
  }
  std::uint64_t const batches_max = given.number("--batches-max", std::uint64_t{quick ? 4u : 100u});
  auto const configs = given.numbers("--configs", std::vector<std::uint32_t>{1, 2, 3});
  auto const floats = given.number("--floats", dlrm_config().floats);
  std::uint32_t const drives = given.number("--drives", 2u);
  if (drives == 0 || drives > 8) throw forebay::refused_input("--drives", std::to_string(drives), "is 1 to 8");
  drive_shape const drive{given.number("--drive-iops", 2.47e6), given.number("--drive-latency-us", 50u),
                          given.number("--page-bytes", 4096u)};
  bench::drive_options const where(given, drives);
  std::vector<storage_case> cases;
  if (!given.has("--no-storage")) {
    cases = storage_cases(given.text("--sweeps", ""), configs, batch_sizes, drives, quick);
    if (auto const status = where.run_as_client(given, most_drives(cases))) return *status;
  }
  dlrm_trace const trace = trace_of(given, quick);
  json document = forebay::bench::document_of("library_dlrm", given.as_typed());
  document["math"] = math;
  document["trace"] = {{"source", trace.source},     {"synthetic", trace.source == "zipf"},
                       {"samples", trace.samples()}, {"tables", trace.tables()},
                       {"dense", trace.dense},       {"rows", trace.rows_of_all_tables()}};
  bool good = true;
  for (std::uint32_t const number : given.has("--no-memory") ? std::vector<std::uint32_t>() : configs) {
    dlrm_config config = recommender::dlrm_config_number(number);
    config.dense = trace.dense;
    config.tables = trace.tables();
    config.floats = floats;
    std::uint32_t const largest = *std::max_element(batch_sizes.begin(), batch_sizes.end());
    dlrm_in_memory model(config, trace, largest, math == "tf32" ? cublas_math::tf32 : cublas_math::fp32);
    document["cublas_version"] = model.cublas_version();
    fmt::print("config {}: {} and {} layers, embeddings of {} bytes\n", number, config.bottom_layers, config.top_layers,
               config.floats * 4);
    json result = {{"config", number},
                   {"bottom_layers", config.bottom_layers},
                   {"bottom_width", config.bottom_width},
                   {"top_layers", config.top_layers},
                   {"top_width", config.top_width},
                   {"embedding_bytes", config.floats * 4},
                   {"table_bytes", trace.rows_of_all_tables() * config.floats * 4}};
    for (std::uint32_t const samples : batch_sizes) result["batches"].push_back(measure(model, samples, batches_max));
    double const error = model.largest_error(std::min(batch_sizes.back(), 256u));
    // Sums of 1,024 products in another order; tf32 has 10 bits of mantissa.
    double const allowed = math == "tf32" ? 2e-2 : 1e-4;
    result["largest_error"] = error;
    good = good && error <= allowed;
    fmt::print("  largest error of a click: {:.2e}\n", error);
    result["tables_in"] = "memory of the GPU";
    document["results"].push_back(std::move(result));
  }
  if (!given.has("--no-storage")) {
    document["storage"] = measure_storage(trace, cases, floats, math == "tf32" ? cublas_math::tf32 : cublas_math::fp32,
                                          quick ? batches_max : 400, drive, where, good);
  }
  return forebay::bench::finish(given, std::move(document), good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = drive_options::with_value(
        {{"--trace", "file that apps/recommender/obp.py has made; default: a synthetic trace"},
         {"--samples", "of the synthetic trace; default: 819200"},
         {"--rows-max", "rows of its largest table; default: 4000000"},
         {"--exponent", "of its Zipf distribution; default: 1.05"},
         {"--seed", "of it; default: 1"},
         {"--configs", "AGILE's configurations, with commas; default: 1,2,3"},
         {"--batches", "samples of a batch, with commas; default: 1,4,16,64,256,1024,2048"},
         {"--batches-max", "most batches of a run with tables in memory; default: 100"},
         {"--floats", "of an embedding; default: 128"},
         {"--math", "of the networks: fp32 (default) or tf32"},
         {"--sweeps", "what to vary: batch, drives, queues, cache, with commas; default: all four"},
         {"--drives", "how many, where they are not varied; default: 2"},
         {"--drive-iops", "commands a second of each drive; default: 2470000"},
         {"--drive-latency-us", "least latency of each drive; default: 50"},
         {"--page-bytes", "of the cache; default: 4096"}}),
    .switches = drive_options::switches({{"--quick", "a small trace, and few cases"},
                                         {"--no-memory", "leave out tables in the GPU's memory"},
                                         {"--no-storage", "leave out tables on drives"}}),
    // Of the eight queues that streams share otherwise, one may hold prefetches behind networks.
    .environment = {load_all_code, {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}},
    .run = run};
