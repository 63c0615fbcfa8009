// SPDX-License-Identifier: Apache-2.0
//! \file
//! A deadlock of CPU fibers is reported.
#include "forebay/simt/launch.hpp"
#include "storage/deadlock_suite.hpp"

namespace forebay::storage_test {
namespace {

struct on_fibers {
  using machine = simt::fiber;
  static std::string device() { return "cpu"; }
  static std::string drive_keys() { return ""; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    simt::launch<simt::fiber>(shape, kernel);
  }
};

TEST(Deadlock, OfTwoLanesIsReportedWithItsChain) {
  expect_a_deadlock_to_be_reported<on_fibers>();
}

}  // namespace
}  // namespace forebay::storage_test
