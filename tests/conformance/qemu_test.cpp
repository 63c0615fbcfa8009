// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on QEMU's NVMe controller.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "conformance/qemu_leniencies.hpp"
#include "conformance/suite.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::conformance {

namespace {

class qemu_target final : public target {
 public:
  driver::register_space& registers() override { return qemu_.registers(); }
  driver::dma_space& dma() override { return qemu_.dma(); }
  std::string serial() const override { return qemu_.options().serial; }
  std::uint64_t drive_bytes() const override { return qemu_.options().drive_bytes; }
  std::uint32_t block_bytes() const override { return qemu_.options().block_bytes; }
  std::vector<std::uint64_t> stray_pages() override { return qemu_.dma().stray_pages(); }
  std::span<leniency const> leniencies() const override { return qemu_leniencies; }

 private:
  test::qemu_nvme qemu_;
};

}  // namespace

using qemu = suite<qemu_target>;

TEST_P(qemu, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
