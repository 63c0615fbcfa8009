// SPDX-License-Identifier: Apache-2.0
//! \file
//! A deadlock of GPU threads is reported while their kernel runs.
#include <string>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "storage/deadlock_suite.hpp"

namespace forebay::storage_test {
namespace {

struct on_gpu {
  using machine = simt::cuda;
  static std::string device() { return "cuda:0"; }
  static std::string drive_keys() { return ""; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>(shape, kernel, stream.get());
    stream.synchronize();
  }
};
struct with_drives_in_hbm : on_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=4"; }
};

TEST(DeadlockOnGpu, OfTwoThreadsIsReportedWithItsChain) {
  expect_a_deadlock_to_be_reported<on_gpu>();
}
TEST(DeadlockOnGpu, BesideAResidentDriveIsReportedWithItsChain) {
  expect_a_deadlock_to_be_reported<with_drives_in_hbm>();
}

}  // namespace
}  // namespace forebay::storage_test
