// SPDX-License-Identifier: Apache-2.0
//! \file
//! The mean of a vector in the GPU's memory, beside the best rate at which the memory can be read: the cost of
//! streaming without a cache.
#include "library/mean_bench.hpp"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/repeated.hpp"
#include "harness/row_drives.hpp"

namespace {

using forebay::bench::command_line;
using nlohmann::json;
namespace bench = forebay::bench;

template <class Run>
json timed(Run&& once, std::uint64_t bytes) {
  json found = bench::timed(once);
  found["bw_bytes"] = static_cast<double>(bytes) / found["median_s"].get<double>();
  // It has no drives.
  bench::row_drives().describe(found);
  return found;
}

int run(command_line const& given) {
  auto const elements = given.number("--elements", std::uint64_t{1} << (given.has("--quick") ? 26 : 30));
  if (elements == 0 || elements % 4 != 0) {
    throw forebay::refused_input("--elements", std::to_string(elements), "is a multiple of 4");
  }
  bench::mean_in_memory vector(elements);
  json const mean = timed([&] { return vector.seconds(); }, elements * sizeof(float));
  json const read = timed([&] { return vector.seconds_to_read(); }, elements * sizeof(float));
  double const share = mean["bw_bytes"].get<double>() / read["bw_bytes"].get<double>();
  // Within a page 32 floats a lane are added up in single precision.
  bool const good = std::fabs(vector.value() - vector.exact()) <= 1e-6;
  fmt::print("mean of {} floats: {:.0f} GB/s, {:.1f} % of {:.0f} GB/s that can be read; {:.9f}, exactly {:.9f}\n",
             elements, mean["bw_bytes"].get<double>() / 1e9, share * 100, read["bw_bytes"].get<double>() / 1e9,
             vector.value(), vector.exact());
  json document = forebay::bench::document_of("library_mean", given.as_typed());
  document.update({{"vector_in", "memory of the GPU"},
                   {"elements", elements},
                   {"mean", mean},
                   {"read", read},
                   {"mean_over_read", share},
                   {"value", vector.value()},
                   {"exact", vector.exact()}});
  return forebay::bench::finish(given, std::move(document), good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = {{"--elements", "floats of the vector; default: 2 to the power of 30"}},
    .switches = {{"--quick", "2 to the power of 26 floats"}},
    .environment = {},
    .run = run};
