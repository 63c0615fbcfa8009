// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on CPU fibers.
#include <thread>

#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/queue_rules.hpp"
#include "storage/cached_storage_suite.hpp"

namespace forebay::storage_test {

struct cached_on_fibers {
  using machine = simt::fiber;
  using completion = queue_rules;
  static std::string device() { return "cpu"; }
  static std::string drive_keys() { return ""; }
  static std::string file_uri(std::string const& path) { return "file:" + path; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    simt::launch<simt::fiber>(shape, kernel);
  }
};

/// Other threads than those that wait consume completions.
struct cached_beside_a_service : cached_on_fibers {
  using completion = service_rules;
  template <class Service, class Kernel>
  static void run_beside(Service const& service, std::uint32_t* stop, simt::grid shape, Kernel const& kernel) {
    std::jthread const serving([&] { simt::launch<simt::fiber>({1, 64}, service); });
    struct stopper {
      std::uint32_t* stop;
      // Release pairs with the service's acquire.
      ~stopper() { simt::atomic<simt::native, simt::scope::system>(*stop).store(1, simt::order::release); }
    } const before_it_is_joined{stop};
    run(shape, kernel);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Fibers, CachedStorageSuite, cached_on_fibers);
INSTANTIATE_TYPED_TEST_SUITE_P(Serviced, CachedStorageSuite, cached_beside_a_service);

}  // namespace forebay::storage_test
