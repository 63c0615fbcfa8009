// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "client.hpp"

namespace forebay::residency {

std::unique_ptr<wave_runner> on_gpu(storage const&, watchdog&) {
  throw std::logic_error("without CUDA no storage is on a GPU");
}

}  // namespace forebay::residency
