// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a benchmark on a GPU describes where it ran.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "forebay/cuda_stream.hpp"

namespace forebay::bench {

inline nlohmann::json machine(int ordinal = 0) {
  cudaDeviceProp properties;
  memory::check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  char const* const commit = std::getenv("FOREBAY_COMMIT");
  return {{"device", properties.name},
          {"multiprocessors", properties.multiProcessorCount},
          {"driver", version.empty() ? "unknown" : version},
          {"commit", commit != nullptr ? commit : "unknown"}};
}

}  // namespace forebay::bench
