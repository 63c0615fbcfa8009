// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on drives in files: in memory, on the disk of the test's folder, on a block device; by io_uring
//! and mapped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "conformance/conformance.hpp"
#include "conformance/suite.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/error.hpp"
#include "support/loop_device.hpp"

namespace forebay::conformance {
namespace {

using emulator::file_io;

constexpr std::uint64_t drive_bytes_of_file = 64 << 20;
constexpr std::uint32_t block = 512;

/// A file of zeros without a name that others would find.
class file_of_test {
 public:
  explicit file_of_test(std::string const& folder) : path_(folder + "/forebay-conformance-XXXXXX") {
    int const fd = mkstemp(path_.data());
    if (fd < 0 || ftruncate(fd, drive_bytes_of_file) != 0) throw operation_failed("cannot make " + path_);
    close(fd);
  }
  ~file_of_test() { unlink(path_.c_str()); }
  file_of_test(file_of_test const&) = delete;
  file_of_test& operator=(file_of_test const&) = delete;
  std::string const& path() const { return path_; }

 private:
  std::string path_;
};

std::string test_folder() {
  char const* const folder = std::getenv("TMPDIR");
  return folder == nullptr ? "/tmp" : folder;
}

class file_target : public target {
 public:
  file_target(std::string const& folder, bool on_block_device, file_io io) : file_(folder) {
    if (on_block_device) {
      device_ = std::make_unique<test::loop_device>(file_.path());
      if (device_->path().empty()) return;
    }
    emulator::subsystem_options o;
    o.units = 2;
    o.max_queues = 16;
    o.mdts = 7;
    std::string const path = device_ ? device_->path() : file_.path();
    auto store = emulator::file_backing(path, 0, block, false, {}, io);
    if (store->access()->io != io) throw operation_failed("the file is not accessed as it should be");
    controller_ = std::make_unique<emulator::controller>(o, std::move(store), memory::host());
  }

  std::string why_not() const { return controller_ ? "" : device_->why_not(); }
  driver::register_space& registers() override { return controller_->registers(); }
  driver::dma_space& dma() override { return controller_->dma(); }
  std::string serial() const override { return controller_->shared().options().serial; }
  std::uint64_t drive_bytes() const override { return drive_bytes_of_file; }
  std::uint32_t block_bytes() const override { return block; }

 private:
  file_of_test file_;
  std::unique_ptr<test::loop_device> device_;
  std::unique_ptr<emulator::controller> controller_;
};

template <file_io Io>
struct in_memory : file_target {
  in_memory() : file_target("/dev/shm", false, Io) {}
};
template <file_io Io>
struct on_disk : file_target {
  on_disk() : file_target(test_folder(), false, Io) {}
};
template <file_io Io>
struct on_block_device : file_target {
  on_block_device() : file_target(test_folder(), true, Io) {}
};

template <class Target>
class file_suite : public suite<Target> {
 protected:
  void conforms() {
    auto& target = static_cast<file_target&>(this->on());
    if (std::string const why = target.why_not(); !why.empty()) GTEST_SKIP() << why;
    run(target, this->GetParam());
  }
};

}  // namespace

using file_in_memory_uring = file_suite<in_memory<file_io::uring>>;
using file_in_memory_mmap = file_suite<in_memory<file_io::mmap>>;
using file_on_disk_uring = file_suite<on_disk<file_io::uring>>;
using file_on_disk_mmap = file_suite<on_disk<file_io::mmap>>;
using file_on_block_device_uring = file_suite<on_block_device<file_io::uring>>;
using file_on_block_device_mmap = file_suite<on_block_device<file_io::mmap>>;

TEST_P(file_in_memory_uring, conforms) {
  conforms();
}
INSTANTIATE_TEST_SUITE_P(conformance, file_in_memory_uring, testing::ValuesIn(checks()), name_of);
TEST_P(file_in_memory_mmap, conforms) {
  conforms();
}
INSTANTIATE_TEST_SUITE_P(conformance, file_in_memory_mmap, testing::ValuesIn(checks()), name_of);
TEST_P(file_on_disk_uring, conforms) {
  conforms();
}
INSTANTIATE_TEST_SUITE_P(conformance, file_on_disk_uring, testing::ValuesIn(checks()), name_of);
TEST_P(file_on_disk_mmap, conforms) {
  conforms();
}
INSTANTIATE_TEST_SUITE_P(conformance, file_on_disk_mmap, testing::ValuesIn(checks()), name_of);
TEST_P(file_on_block_device_uring, conforms) {
  conforms();
}
INSTANTIATE_TEST_SUITE_P(conformance, file_on_block_device_uring, testing::ValuesIn(checks()), name_of);
TEST_P(file_on_block_device_mmap, conforms) {
  conforms();
}
INSTANTIATE_TEST_SUITE_P(conformance, file_on_block_device_mmap, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
