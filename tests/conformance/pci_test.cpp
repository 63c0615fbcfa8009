// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on a controller of this machine, through each way to reach one. It runs in a guest, on QEMU's
//! controller: tests/guest/test_real_drive.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "conformance/qemu_leniencies.hpp"
#include "conformance/suite.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::conformance {

namespace {

/// The URI of the drive, without `access`. The drive is as `qemu_options` has it.
char const* drive_uri() {
  return std::getenv("FOREBAY_PCI_DRIVE");
}

class pci_target : public target {
 public:
  explicit pci_target(std::string const& access) : drive_(drive::open(drive_uri() + (",access=" + access))) {}
  driver::register_space& registers() override { return drive_->registers(); }
  driver::dma_space& dma() override { return drive_->dma(); }
  std::string serial() const override { return test::qemu_options().serial; }
  std::uint64_t drive_bytes() const override { return test::qemu_options().drive_bytes; }
  std::uint32_t block_bytes() const override { return test::qemu_options().block_bytes; }
  std::span<leniency const> leniencies() const override { return qemu_leniencies; }

 private:
  std::unique_ptr<drive::device> drive_;
};
struct sysfs_target final : pci_target {
  sysfs_target() : pci_target("sysfs") {}
};
struct vfio_target final : pci_target {
  vfio_target() : pci_target("vfio") {}
};

}  // namespace

using pci_sysfs = suite<sysfs_target>;
using pci_vfio = suite<vfio_target>;

TEST_P(pci_sysfs, conforms) {
  if (drive_uri() == nullptr) GTEST_SKIP() << "FOREBAY_PCI_DRIVE names no drive";
  run(on(), GetParam());
}
TEST_P(pci_vfio, conforms) {
  if (drive_uri() == nullptr) GTEST_SKIP() << "FOREBAY_PCI_DRIVE names no drive";
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, pci_sysfs, testing::ValuesIn(checks()), name_of);
INSTANTIATE_TEST_SUITE_P(conformance, pci_vfio, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
