// SPDX-License-Identifier: Apache-2.0
//! \file
//! The GPU's memory kinds in a build without CUDA.
#include <stdexcept>
#include <string>

#include "forebay/host_memory.hpp"
#include "forebay/memory.hpp"

namespace forebay::memory {

resource& pinned() {
  throw std::runtime_error("pinned memory: CUDA is not built in; configure with -DFOREBAY_CUDA=ON");
}

resource& device(int ordinal) {
  throw std::runtime_error("memory of GPU " + std::to_string(ordinal) +
                           ": CUDA is not built in; configure with -DFOREBAY_CUDA=ON");
}

resource& pinned_on(int) {
  return pinned();
}

resource& managed(int) {
  throw std::runtime_error("managed memory: CUDA is not built in; configure with -DFOREBAY_CUDA=ON");
}

std::uint64_t free_bytes(int ordinal) {
  throw std::runtime_error("memory of GPU " + std::to_string(ordinal) +
                           ": CUDA is not built in; configure with -DFOREBAY_CUDA=ON");
}

void connect_gpus(int, int) {
  throw std::runtime_error("peer access: CUDA is not built in; configure with -DFOREBAY_CUDA=ON");
}

int device_count() {
  return 0;
}

bool host_reaches(void const*) {
  return true;
}

}  // namespace forebay::memory
