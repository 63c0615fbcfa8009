// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on a controller of this machine, through each way to reach one. It runs in a guest, on QEMU's
//! controller: tests/guest/test_real_drive.py. There it also runs as a GPU's client would: with that one's memory and
//! doorbells, but with threads of the host.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "conformance/qemu_leniencies.hpp"
#include "conformance/suite.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/memory.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::conformance {

namespace {

/// The URI of the drive, without `access`. The drive is as `qemu_options` has it.
char const* drive_uri() {
  return std::getenv("FOREBAY_PCI_DRIVE");
}
bool as_for_a_gpu() {
  return std::getenv("FOREBAY_PCI_AS_FOR_A_GPU") != nullptr;
}

/// Memory of this process that says that GPUs reach it.
class named_page_locked final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::pinned; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    ++allocations_;
    return memory::host().allocate(bytes, alignment_bytes);
  }
  int allocations() const { return allocations_; }
  void deallocate(void* address) noexcept override { memory::host().deallocate(address); }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override {
    memory::host().copy_in(to, from_host, bytes);
  }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override {
    memory::host().copy_out(to_host, from, bytes);
  }

 private:
  std::atomic<int> allocations_ = 0;
};
named_page_locked& page_locked() {
  static named_page_locked memory;
  return memory;
}
memory::resource& client_memory() {
  if (as_for_a_gpu()) return page_locked();
  return memory::host();
}

/// Registers of which the doorbells are those for threads of a GPU.
class registers_for_a_gpu final : public driver::register_space {
 public:
  explicit registers_for_a_gpu(driver::register_space& of) : of_(of) {}
  std::uint32_t read32(std::uint32_t offset_bytes) override { return of_.read32(offset_bytes); }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override { of_.write32(offset_bytes, value); }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return of_.doorbell_for_gpu(offset_bytes); }

 private:
  driver::register_space& of_;
};

class pci_target : public target {
 public:
  explicit pci_target(std::string const& access)
      : drive_(drive::open(drive_uri() + (",access=" + access), {.client_memory = &client_memory()})) {}
  driver::register_space& registers() override { return as_for_a_gpu() ? for_a_gpu_ : drive_->registers(); }
  driver::dma_space& dma() override { return drive_->dma(); }
  std::string serial() const override { return test::qemu_options().serial; }
  std::uint64_t drive_bytes() const override { return test::qemu_options().drive_bytes; }
  std::uint32_t block_bytes() const override { return test::qemu_options().block_bytes; }
  std::span<leniency const> leniencies() const override { return qemu_leniencies; }

 private:
  std::unique_ptr<drive::device> drive_;
  registers_for_a_gpu for_a_gpu_{drive_->registers()};
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
  if (as_for_a_gpu()) {
    int const before = page_locked().allocations();
    on().dma().deallocate(on().dma().allocate(4096));
    EXPECT_EQ(page_locked().allocations(), before + 1) << "the drive's memory is not what a GPU reaches";
  }
}
INSTANTIATE_TEST_SUITE_P(conformance, pci_sysfs, testing::ValuesIn(checks()), name_of);
INSTANTIATE_TEST_SUITE_P(conformance, pci_vfio, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
