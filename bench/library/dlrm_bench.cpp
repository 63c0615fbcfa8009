// SPDX-License-Identifier: Apache-2.0
//! \file
//! Inference of a recommender on a GPU whose memory holds its tables: what it costs without a cache. AGILE's three
//! configurations, batches of 1 to 2,048; clicks checked against products without cuBLAS.
//!
//! Traces are synthetic (`zipf`) unless one is given that dlrm_obp.py has made of ZOZO's logs.
#include "library/dlrm_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/command_line.hpp"
#include "forebay/error.hpp"
#include "library/dlrm.hpp"
#include "library/dlrm_trace.hpp"
#include "machine.hpp"

namespace {

using forebay::bench::cublas_math;
using forebay::bench::dlrm_config;
using forebay::bench::dlrm_in_memory;
using forebay::bench::dlrm_seconds;
using forebay::bench::dlrm_trace;
using nlohmann::json;
namespace bench = forebay::bench;

constexpr int runs_per_case = 5;

json timed(std::vector<dlrm_seconds> const& runs, double dlrm_seconds::* part, std::uint64_t batches) {
  std::vector<double> seconds;
  for (dlrm_seconds const& r : runs) seconds.push_back(r.*part);
  std::sort(seconds.begin(), seconds.end());
  double const median_s = seconds[seconds.size() / 2];
  return {
      {"seconds", seconds}, {"median_s", median_s}, {"us_per_batch", median_s * 1e6 / static_cast<double>(batches)}};
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
  auto const us = [&](char const* part) { return found[part]["us_per_batch"].get<double>(); };
  fmt::print("  batch {:4}: {:8.1f} us in turn, {:8.1f} us ahead; gather {:7.1f} us, networks {:8.1f} us\n", samples,
             us("in_turn"), us("ahead"), us("gather"), us("infer"));
  return found;
}

dlrm_trace trace_of(forebay::apps::command_line const& given, bool quick) {
  std::string const path = given.text("--trace", "");
  if (!path.empty()) return bench::read_trace(path);
  bench::zipf_options zipf;
  zipf.samples = given.number("--samples", std::uint64_t{quick ? 8192u : 204800u});
  zipf.rows_max = given.number("--rows-max", quick ? 100'000u : 4'000'000u);
  zipf.exponent = given.number("--exponent", zipf.exponent);
  zipf.seed = given.number("--seed", zipf.seed);
  return make_zipf_trace(zipf);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    forebay::apps::command_line const given(argc, argv,
                                            {"--trace", "--samples", "--rows-max", "--exponent", "--seed", "--configs",
                                             "--batches", "--batches-max", "--floats", "--math"},
                                            {"--quick"});
    bool const quick = given.has("--quick");
    std::string const math = given.text("--math", "fp32");
    if (math != "fp32" && math != "tf32") throw forebay::refused_input("--math", math, "is fp32 or tf32");
    dlrm_trace const trace = trace_of(given, quick);
    auto const batch_sizes =
        given.numbers("--batches", quick ? std::vector<std::uint32_t>{16, 2048}
                                         : std::vector<std::uint32_t>{1, 4, 16, 64, 256, 1024, 2048});
    for (std::uint32_t const b : batch_sizes) {
      if (b == 0) throw forebay::refused_input("--batches", "0", "is at least 1");
    }
    std::uint64_t const batches_max = given.number("--batches-max", std::uint64_t{quick ? 4u : 100u});
    json document = {{"schema_version", 1},
                     {"benchmark", "library_dlrm"},
                     {"machine", bench::machine()},
                     {"command", given.as_typed()},
                     {"tables_in", "memory of the GPU"},
                     {"math", math},
                     {"trace",
                      {{"source", trace.source},
                       {"synthetic", trace.source == "zipf"},
                       {"samples", trace.samples()},
                       {"tables", trace.tables()},
                       {"dense", trace.dense},
                       {"rows", trace.rows_of_all_tables()}}}};
    bool good = true;
    for (std::uint32_t const number : given.numbers("--configs", std::vector<std::uint32_t>{1, 2, 3})) {
      dlrm_config config = bench::dlrm_config_number(number);
      config.dense = trace.dense;
      config.tables = trace.tables();
      config.floats = given.number("--floats", config.floats);
      std::uint32_t const largest = *std::max_element(batch_sizes.begin(), batch_sizes.end());
      dlrm_in_memory model(config, trace, largest, math == "tf32" ? cublas_math::tf32 : cublas_math::fp32);
      document["cublas_version"] = model.cublas_version();
      fmt::print("config {}: {} and {} layers, embeddings of {} bytes\n", number, config.bottom_layers,
                 config.top_layers, config.floats * 4);
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
      document["results"].push_back(std::move(result));
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
