// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {

void without_resident_engines(std::function<void()> const& act) {
  act();
}

std::uint32_t multiprocessors(int) {
  return 0;
}

std::unique_ptr<engine_runner> run_on_gpu(engine_options, media const&, gpu_residency const& where,
                                          std::stop_token const&) {
  throw refused_input("residency", "GPU " + std::to_string(where.ordinal),
                      "CUDA is not built in; use backing=memory for a drive on CPU threads");
}

}  // namespace forebay::emulator
