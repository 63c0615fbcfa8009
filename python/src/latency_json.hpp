// SPDX-License-Identifier: Apache-2.0
//! \file
//! Latencies as JSON, in fio's words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/latency_histogram.hpp"

namespace forebay::python {

inline nlohmann::json to_json(apps::latency_summary const& s) {
  return {{"min", s.count == 0 ? 0 : s.min_ns},
          {"max", s.max_ns},
          {"mean", s.mean_ns},
          {"stddev", s.stddev_ns()},
          {"N", s.count}};
}

inline nlohmann::json to_json(apps::latency_distribution const& d) {
  nlohmann::json percentiles = nlohmann::json::object();
  // fio's default list, and its six digits.
  for (double const percent :
       {1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99}) {
    percentiles[std::to_string(percent)] = d.percentile_ns(percent);
  }
  nlohmann::json result = to_json(d.summary);
  result["percentile"] = percentiles;
  return result;
}

}  // namespace forebay::python
