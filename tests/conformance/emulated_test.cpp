// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on the emulated controller, on CPU threads.
#include <gtest/gtest.h>

#include "conformance/suite.hpp"
#include "forebay/emulator/backing_store.hpp"
#include "forebay/emulator/controller.hpp"

namespace forebay::conformance {

namespace {

class emulated_target final : public target {
 public:
  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  std::string serial() const override { return controller_.options().serial; }
  std::uint64_t drive_bytes() const override { return bytes; }
  std::uint32_t block_bytes() const override { return block; }

 private:
  static constexpr std::uint64_t bytes = 64 << 20;
  static constexpr std::uint32_t block = 512;
  static emulator::controller_options options() {
    emulator::controller_options o;
    o.units = 2;
    o.max_queues = 16;
    o.mdts = 7;
    return o;
  }

  emulator::controller controller_{options(), emulator::memory_backing(bytes, block)};
};

}  // namespace

using emulated = suite<emulated_target>;

TEST_P(emulated, conforms) {
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, emulated, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
