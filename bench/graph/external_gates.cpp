// SPDX-License-Identifier: Apache-2.0
//! \file
//! Whether external memory on a GPU is as slow as it says, and as fast: a pointer chase takes its latency, and random
//! reads have the rate of equation 2. And what the machine's own host memory does.
//!
//! Each row runs three times, and its median counts. All words that are read are compared with what lies there.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forebay/error.hpp"
#include "graph/external_gates_bench.hpp"
#include "graph/external_gates_rows.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"

namespace {

using forebay::bench::command_line;
using forebay::bench::gate_choice;
using forebay::bench::gate_row;
using forebay::bench::gate_run;
using forebay::bench::gates_on_gpu;
using json = nlohmann::json;

gate_choice choice_of(command_line const& given) {
  gate_choice choice;
  choice.quick = given.has("--quick");
  auto const ms = given.number<std::uint64_t>("--run-ms", choice.quick ? 10 : 30);
  if (ms < 1 || ms > 1000) throw forebay::refused_input("--run-ms", std::to_string(ms), "give 1 to 1000");
  choice.run_ns = ms * 1'000'000;
  auto const gib = given.number<std::uint64_t>("--largest-gib", choice.quick ? 1 : 8);
  if (gib != 1 && gib != 2 && gib != 4 && gib != 8) {
    throw forebay::refused_input("--largest-gib", std::to_string(gib), "give 1, 2, 4 or 8");
  }
  choice.largest_bytes = gib << 30;
  choice.lead_us = given.number<double>("--lead-ns", 320) * 1e-3;
  if (choice.lead_us > 1) {
    throw forebay::refused_input("--lead-ns", given.text("--lead-ns", ""), "give at most 1000");
  }
  choice.only = given.text("--only", "");
  return choice;
}

int run(command_line const& given) {
  gate_choice const choice = choice_of(given);
  std::vector<gate_row> const rows = gate_rows(choice);
  if (rows.empty()) {
    throw forebay::refused_input("--only", choice.only, "give machine, chase, reads, shards or modes");
  }
  std::uint64_t device_bytes = 1 << 28, pinned_bytes = 1 << 28;
  for (gate_row const& row : rows) {
    std::uint64_t& bytes = row.data_pinned ? pinned_bytes : device_bytes;
    bytes = std::max(bytes, row.region_bytes);
  }
  gates_on_gpu gpu(device_bytes, pinned_bytes);
  json document = forebay::bench::document_of("external_gates", given.as_typed());
  for (auto const& kernel : gates_on_gpu::kernels()) {
    document["kernels"].push_back({{"name", kernel.name},
                                   {"registers", kernel.registers},
                                   {"local_bytes", kernel.local_bytes},
                                   {"threads_per_sm", kernel.threads_per_sm}});
    fmt::print("{:18} {} registers, {} bytes of local memory, {} threads of a multiprocessor\n", kernel.name,
               kernel.registers, kernel.local_bytes, kernel.threads_per_sm);
  }
  bool verified = true;
  json results = json::array();
  for (gate_row const& row : rows) {
    std::vector<gate_run> runs;
    for (std::uint64_t i = 0; i < (choice.quick ? 1 : 3); ++i) runs.push_back(gpu.run(row, 100 + i));
    results.push_back(describe(row, std::move(runs)));
    verified = verified && results.back()["verified"].get<bool>();
    forebay::bench::compare(results);
    fmt::print("{}\n", forebay::bench::line_of(results.back()));
    std::fflush(stdout);
    document["results"] = results;
    // What was measured so far stays if a later row fails.
    given.write(document.dump(2));
  }
  std::uint64_t missed = 0;
  for (json const& row : results) missed += row.contains("within") && !row["within"].get<bool>() ? 1 : 0;
  fmt::print("{} of {} rows missed\n", missed, results.size());
  document["missed"] = missed;
  return finish(given, std::move(document), verified);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = {{"--run-ms", "how long a run reads; 30, or 10 with --quick"},
                   {"--largest-gib", "the largest region, 1, 2, 4 or 8; 8, or 1 with --quick"},
                   {"--lead-ns", "how much before its time a wait of external memory ends; 320"},
                   {"--only",
                    "measure the groups that have this in their names: machine, chase, reads, shards, modes"}},
    .switches = {{"--quick", "measure fewer sizes, once each"}},
    .environment = {},
    .run = run};
