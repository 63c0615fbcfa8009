// SPDX-License-Identifier: Apache-2.0
//! \file
//! A build without CUDA knows memory of the host alone.
#include "storage/gpu_access.hpp"

namespace forebay::detail {

gpu_access* cuda_access() {
  return nullptr;
}

}  // namespace forebay::detail
