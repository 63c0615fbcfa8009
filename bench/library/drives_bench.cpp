// SPDX-License-Identifier: Apache-2.0
//! \file
//! How random reads and writes of 4 KiB grow with the number of drives: 1, 2, 3 and 4 of 2.47 MIOPS each, without a
//! cache and through one that is much smaller than they are. The counts are of the commands that the drives served,
//! including those that the cache makes of its own. Afterwards every block on the drives is checked.
#include "library/drives_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/row_drives.hpp"

namespace {

using forebay::bench::command_line;
using nlohmann::json;
namespace bench = forebay::bench;

struct options {
  std::vector<std::uint32_t> counts{1, 2, 3, 4};
  double iops = 2.47e6;
  std::uint32_t latency_us = 50;
  std::uint64_t run_ms = 200;
  int runs = 5;
};

constexpr std::uint32_t block_bytes = 4096;

struct commands {
  std::uint64_t reads = 0, writes = 0;
  std::vector<std::uint64_t> each;
};
commands served(json const& report) {
  commands all;
  for (json const& d : report["drives"]) {
    auto const reads = d["statistics"]["read_commands"].get<std::uint64_t>();
    auto const writes = d["statistics"]["write_commands"].get<std::uint64_t>();
    all.reads += reads;
    all.writes += writes;
    all.each.push_back(reads + writes);
  }
  return all;
}

json measure(std::uint32_t count, bool cache, bool writes, bench::drives_on_gpu& on, options const& o, bool& good) {
  double const target = o.iops * count;
  std::vector<json> runs;
  bench::row_drives drives;
  std::uint64_t failed = 0, wrong = 0;
  for (int r = 0; r <= o.runs; ++r) {
    on.drives().reset_statistics();
    auto const t = on.run(writes, o.run_ms * 1'000'000, static_cast<std::uint64_t>(100 * count + r));
    json const report = json::parse(on.drives().report());
    failed += t.seen.failed;
    wrong += t.seen.wrong;
    if (r == 0) continue;  // warms up
    drives.add(report, t.seconds);
    commands const c = served(report);
    runs.push_back({{"seconds", t.seconds},
                    {"transfers", t.seen.transfers},
                    {"read_commands", c.reads},
                    {"write_commands", c.writes},
                    {"commands_of_each_drive", c.each},
                    {"iops", static_cast<double>(c.reads + c.writes) / t.seconds},
                    {"fidelity", report["fidelity"]}});
  }
  std::sort(runs.begin(), runs.end(), [](json const& a, json const& b) { return a["iops"] < b["iops"]; });
  double const iops = runs[runs.size() / 2]["iops"].get<double>();
  good = good && failed == 0 && wrong == 0;
  fmt::print("  {} drives, {}, {}: {:6.3f} MIOPS, {:.2f} % of {} x {:.2f}{}\n", count,
             cache ? "through the cache" : "past no cache", writes ? "writes" : "reads", iops / 1e6,
             100 * iops / target, count, o.iops / 1e6, failed + wrong == 0 ? "" : "  WRONG");
  std::fflush(stdout);
  json row = {{"drives", count},
              {"cache", cache},
              {"operation", writes ? "write" : "read"},
              {"threads", on.threads()},
              {"iops", iops},
              {"target_iops", target},
              {"of_linear", iops / target},
              {"failed", failed},
              {"wrong_blocks", wrong},
              {"runs", runs}};
  drives.describe(row);
  return row;
}

int run(command_line const& given) {
  options o;
  if (given.has("--quick")) {
    o.counts = {1, 4};
    o.runs = 1;
  }
  o.counts = given.numbers("--counts", o.counts);
  o.iops = given.number("--drive-iops", o.iops);
  o.latency_us = given.number("--drive-latency-us", o.latency_us);
  o.run_ms = given.number("--run-ms", o.run_ms);
  if (o.run_ms == 0) throw forebay::refused_input("--run-ms", "0", "give at least 1");
  for (std::uint32_t const count : o.counts) {
    if (count == 0) throw forebay::refused_input("--counts", "0", "is at least 1");
  }
  std::uint32_t const most = *std::max_element(o.counts.begin(), o.counts.end());
  bench::drive_options const where(given, most);
  if (auto const status = where.run_as_client(given, most)) return *status;
  json document = forebay::bench::document_of("library_drives", given.as_typed());
  document["block_bytes"] = block_bytes;
  bool good = true;
  for (std::uint32_t const count : o.counts) {
    for (bool const cache : {false, true}) {
      forebay::storage_options s;
      s.drives = where.uris(fmt::format("emulated:size=512M,iops={:.0f},latency_us={}", o.iops, o.latency_us), count);
      s.device = "cuda:0";
      s.queues.per_drive = 64;
      s.stripe_bytes = block_bytes;
      // A thirty-second of the bytes of the drives.
      if (cache) s.cache.size_bytes = (std::uint64_t{count} << 29) / 32;
      if (cache) s.cache.page_bytes = block_bytes;
      auto const daemon = where.serve(s.drives);
      bench::drives_on_gpu on(s, std::min(where.client_sms(count), 64u), block_bytes);
      for (bool const writes : {false, true}) {
        document["results"].push_back(measure(count, cache, writes, on, o, good));
      }
      std::uint64_t const wrong = on.wrong_blocks();
      document["results"].back()["wrong_blocks_afterwards"] = wrong;
      good = good && wrong == 0;
    }
  }
  return forebay::bench::finish(given, std::move(document), good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = drive_options::with_value({{"--counts", "numbers of drives, with commas; default: 1,2,3,4"},
                                             {"--drive-iops", "commands a second of each drive; default: 2470000"},
                                             {"--drive-latency-us", "least latency of each drive; default: 50"},
                                             {"--run-ms", "milliseconds of each run; default: 200"}}),
    .switches = drive_options::switches({{"--quick", "1 and 4 drives, and one run of each case instead of five"}}),
    .environment = {load_all_code},
    .run = run};
