// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on the emulated controller with its engine on a GPU: always there, and there only while it is
//! needed; with the bytes in the GPU's memory and in the host's.
#include <gtest/gtest.h>

#include "conformance/emulated.hpp"
#include "conformance/suite.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay::conformance {
namespace {

class resident_target final : public emulated_target {
 public:
  resident_target()
      : emulated_target(emulator::gpu_residency{.ordinal = 0, .stays = true}, memory::device(0), memory::pinned()) {}
};
class visiting_target final : public emulated_target {
 public:
  visiting_target()
      : emulated_target(emulator::gpu_residency{.ordinal = 0, .stays = false}, memory::pinned(), memory::pinned()) {}
};

}  // namespace

using resident = suite<resident_target>;
using visiting = suite<visiting_target>;

TEST_P(resident, conforms) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  run(on(), GetParam());
}
TEST_P(visiting, conforms) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(on_gpu, resident, testing::ValuesIn(checks()), name_of);
INSTANTIATE_TEST_SUITE_P(on_gpu, visiting, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
