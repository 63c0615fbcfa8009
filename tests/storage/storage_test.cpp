// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage suite on CPU fibers.
#include "forebay/detail/simt/launch.hpp"
#include "storage/late_data_suite.hpp"
#include "storage/storage_suite.hpp"

namespace forebay::storage_test {

struct on_fibers {
  using machine = simt::fiber;
  static std::string device() { return "cpu"; }
  static std::string drive_keys() { return ""; }
  static int placement() { return 1; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    simt::launch<simt::fiber>(shape, kernel);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Fibers, StorageSuite, on_fibers);
INSTANTIATE_TYPED_TEST_SUITE_P(Fibers, LateDataSuite, on_fibers);

}  // namespace forebay::storage_test
