// SPDX-License-Identifier: Apache-2.0
//! \file
//! A GPU's reads in each placement. In placement 1, emulator threads on the CPU are the drive, or its engine is on the
//! GPU. In the others the engine is on the GPU.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/block_io/block_io.hpp"
#include "forebay/storage.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"

namespace {

using nlohmann::json;

struct measurement {
  std::string name;
  std::string uri;
  std::uint32_t queues;
  std::uint32_t queue_depth;
  forebay::block_io::options options;
};

std::vector<measurement> measurements() {
  auto const random_reads = [](std::uint32_t iodepth, std::uint32_t threads) {
    forebay::block_io::options o;
    o.block_bytes = 512;
    o.iodepth = iodepth;
    o.gpu_threads = threads;
    o.runtime_s = 2;
    o.ramp_time_s = 0.3;
    o.verify = true;
    return o;
  };
  forebay::block_io::options stream = random_reads(32, 1);
  stream.block_bytes = 256 << 10;
  stream.verify = false;  // one thread that checked every byte would measure itself
  std::vector<measurement> all = {
      {"unthrottled, 8 threads", "emulated:size=512M,threads=8", 64, 256, random_reads(8192, 8192)},
      {"unthrottled, 14 threads", "emulated:size=512M,threads=14", 112, 256, random_reads(14336, 14336)},
      {"one thread, 3.35 GB/s, 256 KiB", "emulated:size=512M,bandwidth=3.35G,latency_us=80,threads=4", 8, 64, stream},
      {"2.47 MIOPS, 50 us, saturated", "emulated:size=512M,iops=2470000,latency_us=50,threads=8", 64, 256,
       random_reads(2048, 2048)},
      {"2.47 MIOPS, 50 us, 64 threads", "emulated:size=512M,iops=2470000,latency_us=50,threads=8", 64, 64,
       random_reads(64, 64)},
  };
  for (int placement = 1; placement <= 3; ++placement) {
    std::string const where = fmt::format(",backing=hbm,sms=16,placement={}", placement);
    auto const add = [&](char const* what, char const* keys, std::uint32_t queues, std::uint32_t threads) {
      all.push_back({fmt::format("placement {}, {}", placement, what), "emulated:size=512M" + (keys + where), queues,
                     256, random_reads(threads, threads)});
    };
    add("unthrottled", "", 256, 32768);
    add("2.47 MIOPS, 50 us, saturated", ",iops=2470000,latency_us=50", 64, 2048);
    add("2.47 MIOPS, 50 us, 64 threads", ",iops=2470000,latency_us=50", 64, 64);
    add("2.47 MIOPS, 50 us, 1 thread", ",iops=2470000,latency_us=50", 64, 1);
  }
  return all;
}

constexpr int runs_per_measurement = 3;

json run_once(measurement const& m) {
  forebay::storage_options options;
  options.drives = {m.uri};
  options.device = "cuda:0";
  options.queues.per_drive = m.queues;
  options.queues.depth = m.queue_depth;
  forebay::storage drives(options);
  forebay::block_io::result const r = forebay::block_io::run(drives, m.options);
  auto const& reads = r.read.completion;
  double const iops = static_cast<double>(reads.summary.count) / r.seconds;
  json percentiles;
  for (double const p : {1.0, 50.0, 90.0, 99.0, 99.9}) percentiles[fmt::format("{:.6f}", p)] = reads.percentile_ns(p);
  return {{"seconds", r.seconds},
          {"gpu_threads", r.threads},
          {"iops", iops},
          {"bw_bytes", iops * static_cast<double>(m.options.block_bytes)},
          {"slat_ns", {{"mean", r.read.submission.mean_ns}}},
          {"clat_ns", {{"mean", reads.summary.mean_ns}, {"percentile", percentiles}}},
          {"lat_ns", {{"mean", r.read.total.mean_ns}}},
          {"verified_blocks", r.verified_blocks},
          {"mismatches", r.mismatches},
          {"errors", r.errors},
          {"storage", json::parse(drives.report())}};
}

/// Every run, and which of them is the median by IOPS: a benchmark seldom has the machine to itself.
json run(measurement const& m) {
  json runs = json::array();
  for (int i = 0; i < runs_per_measurement; ++i) runs.push_back(run_once(m));
  std::sort(runs.begin(), runs.end(), [](json const& a, json const& b) { return a["iops"] < b["iops"]; });
  json const& median = runs[runs_per_measurement / 2];
  auto const us = [](json const& ns) { return ns.get<double>() / 1e3; };
  fmt::print(
      "{:32} {:7.3f} MIOPS (runs {:.3f} to {:.3f})  {:6.3f} GB/s  clat p50 {:7.2f} us  slat {:6.2f} us  lat {:7.2f} "
      "us\n",
      m.name, median["iops"].get<double>() / 1e6, runs.front()["iops"].get<double>() / 1e6,
      runs.back()["iops"].get<double>() / 1e6, median["bw_bytes"].get<double>() / 1e9,
      us(median["clat_ns"]["percentile"]["50.000000"]), us(median["slat_ns"]["mean"]), us(median["lat_ns"]["mean"]));
  return {{"name", m.name},
          {"drive", m.uri},
          {"queues", m.queues},
          {"queue_depth", m.queue_depth},
          {"block_bytes", m.options.block_bytes},
          {"iodepth", m.options.iodepth},
          {"median", runs_per_measurement / 2},
          {"runs", runs}};
}

int run_all(forebay::bench::command_line const& given) {
  std::string const only = given.text("--only", "");
  json document = forebay::bench::document_of("placements", given.as_typed());
  document["results"] = json::array();
  bool good = true;
  for (measurement const& m : measurements()) {
    if (m.name.find(only) == std::string::npos) continue;
    document["results"].push_back(run(m));
    for (json const& run : document["results"].back()["runs"]) {
      good = good && run["errors"] == 0 && run["mismatches"] == 0;
    }
  }
  given.write(document.dump(2));
  return good ? 0 : 1;
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = {{"--only", "measure what has this in its name"}}, .switches = {}, .environment = {}, .run = run_all};
