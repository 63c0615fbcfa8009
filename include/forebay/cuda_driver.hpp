// SPDX-License-Identifier: Apache-2.0
//! \file
//! Functions of the CUDA driver, for what the runtime API lacks. Only in builds with CUDA.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "forebay/cuda_stream.hpp"

namespace forebay::memory {

/// A function of the driver, looked up at run time: nothing links against the driver's library, because machines
/// without a GPU lack it. `Function` is a pointer: `driver_function<decltype(&cuMemMap)>("cuMemMap")`. Throws
/// `operation_failed` if there is no driver, or one that lacks it. Thread-safe.
template <class Function>
Function driver_function(char const* name) {
  constexpr unsigned version = 12000;  // of CUDA, whose form of the function is wanted
  void* found = nullptr;
  cudaDriverEntryPointQueryResult outcome{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &outcome), name);
  if (found == nullptr) throw operation_failed(std::string(name) + ": the NVIDIA driver is too old and lacks it");
  return reinterpret_cast<Function>(found);
}

/// Throws `operation_failed` that names `what` unless `result` is success.
inline void check_driver(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return;
  throw operation_failed(std::string(what) + ": CUDA driver error " + std::to_string(static_cast<int>(result)));
}

}  // namespace forebay::memory
