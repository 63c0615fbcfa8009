// SPDX-License-Identifier: Apache-2.0
//! \file
//! The mean of a vector in the GPU's memory, beside the best that the memory can be read: what streaming costs without
//! a cache.
#include "library/mean_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/command_line.hpp"
#include "forebay/error.hpp"
#include "machine.hpp"

namespace {

using nlohmann::json;
namespace bench = forebay::bench;

constexpr int runs_per_case = 5;

/// One run that is not counted, then the median of five.
template <class Run>
json timed(Run&& once, std::uint64_t bytes) {
  once();
  std::vector<double> seconds;
  for (int i = 0; i < runs_per_case; ++i) seconds.push_back(once());
  std::sort(seconds.begin(), seconds.end());
  double const median_s = seconds[seconds.size() / 2];
  return {{"seconds", seconds}, {"median_s", median_s}, {"bw_bytes", static_cast<double>(bytes) / median_s}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    forebay::apps::command_line const given(argc, argv, {"--elements"}, {"--quick"});
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
    json const document = {{"schema_version", 1},
                           {"benchmark", "library_mean"},
                           {"machine", bench::machine()},
                           {"command", given.as_typed()},
                           {"vector_in", "memory of the GPU"},
                           {"elements", elements},
                           {"mean", mean},
                           {"read", read},
                           {"mean_over_read", share},
                           {"value", vector.value()},
                           {"exact", vector.exact()},
                           {"verified", good}};
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
