// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on QEMU's NVMe controller, with small blocks, large blocks, and a second namespace.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "conformance/qemu_leniencies.hpp"
#include "conformance/suite.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::conformance {

namespace {

class qemu_target : public target {
 public:
  explicit qemu_target(test::qemu_options const& options = {}) : qemu_(options) {}
  driver::register_space& registers() override { return qemu_.registers(); }
  driver::dma_space& dma() override { return qemu_.dma(); }
  std::string serial() const override { return qemu_.options().serial; }
  std::uint64_t drive_bytes() const override { return qemu_.options().drive_bytes; }
  std::uint32_t block_bytes() const override { return qemu_.options().block_bytes; }
  std::uint32_t nsid() const override { return qemu_.options().nsid; }
  std::vector<std::uint64_t> stray_pages() override { return qemu_.dma().stray_pages(); }
  std::span<leniency const> leniencies() const override { return qemu_leniencies; }

 private:
  test::qemu_nvme qemu_;
};

struct large_blocks : qemu_target {
  large_blocks() : qemu_target({.block_bytes = 4096}) {}
};
struct second_namespace : qemu_target {
  second_namespace() : qemu_target({.nsid = 2}) {}
};

}  // namespace

using qemu = suite<qemu_target>;
using qemu_blocks_of_4096 = suite<large_blocks>;
using qemu_second_namespace = suite<second_namespace>;

TEST_P(qemu, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu, testing::ValuesIn(checks()), name_of);

TEST_P(qemu_blocks_of_4096, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu_blocks_of_4096, testing::ValuesIn(checks()), name_of);

TEST_P(qemu_second_namespace, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu_second_namespace, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
