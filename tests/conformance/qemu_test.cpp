// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on QEMU's NVMe controller, with small blocks, large blocks, and a second namespace; and with
//! queues and data in memory that stands in for a GPU's, which the controller finds by what kernel modules tell.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "conformance/qemu_leniencies.hpp"
#include "conformance/suite.hpp"
#include "support/played_gpu_modules.hpp"
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

 protected:
  test::qemu_nvme qemu_;
};

/// All that is allocated lies on the GPU.
class on_gpu_space final : public driver::dma_space {
 public:
  explicit on_gpu_space(test::shared_memory& ram)
      : memory_(ram, modules_),
        space_(ram,
               std::make_unique<drive::pci::untranslated_addresses>(
                   std::vector<drive::pci::bus_stretch>{{0, test::qemu_options().memory_bytes}}, modules_.device(),
                   modules_.call()),
               memory_.as_gpu_memory()) {}
  void* allocate(std::size_t bytes) override { return space_.allocate_for_gpu(bytes); }
  void deallocate(void* address) noexcept override { space_.deallocate(address); }
  void clear(void* address, std::size_t bytes) override { space_.clear(address, bytes); }
  void map(void* address, std::size_t bytes) override { space_.map(address, bytes); }
  void unmap(void* address, std::size_t bytes) override { space_.unmap(address, bytes); }
  std::uint64_t bus_address(void const* address) const override { return space_.bus_address(address); }
  std::size_t page_bytes() const override { return space_.page_bytes(); }

 private:
  test::played_gpu_modules modules_;
  test::played_gpu_memory memory_;
  drive::pci::gpu_dma_space space_;
};

class gpu_memory_target final : public qemu_target {
 public:
  driver::dma_space& dma() override { return space_; }

 private:
  on_gpu_space space_{qemu_.dma()};
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
using qemu_gpu_memory = suite<gpu_memory_target>;
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

TEST_P(qemu_gpu_memory, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu_gpu_memory, testing::ValuesIn(checks()), name_of);

TEST_P(qemu_second_namespace, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu_second_namespace, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
