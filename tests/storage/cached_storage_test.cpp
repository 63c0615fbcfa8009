// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on CPU fibers.
#include "forebay/simt/launch.hpp"
#include "storage/cached_storage_suite.hpp"

namespace forebay::storage_test {

struct cached_on_fibers {
  using machine = simt::fiber;
  static std::string device() { return "cpu"; }
  static std::string drive_keys() { return ""; }
  static std::string file_uri(std::string const& path) { return "file:" + path; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    simt::launch<simt::fiber>(shape, kernel);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Fibers, CachedStorageSuite, cached_on_fibers);

}  // namespace forebay::storage_test
