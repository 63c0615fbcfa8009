// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on CPU fibers.
#include "forebay/simt/launch.hpp"
#include "storage/cached_storage_suite.hpp"

#if defined(__SANITIZE_THREAD__)
/// A page may be written while the drive reads it for a write-back: it stays dirty then, and is written back again.
extern "C" char const* __tsan_default_suppressions() {
  return "race:forebay::emulator::dispatcher";
}
#endif

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
