// SPDX-License-Identifier: Apache-2.0
#include "machine_conformance.hpp"

#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/run.hpp"

namespace forebay::simt::testing {
namespace {

template <memory_model Memory>
struct scheduled {
  using machine = fiber;
  static constexpr char const* unavailable() { return nullptr; }
  template <class Kernel, class T>
  static void run(grid const& shape, Kernel const& kernel, std::vector<T>& data) {
    auto const initial = data;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      data = initial;
      auto const result = simt::run({.memory = Memory}, simt::random(seed), shape, kernel.with(data.data()));
      ASSERT_TRUE(result) << result.what;
    }
    data = initial;
    auto const result = simt::run({.memory = Memory}, pct(1, 3, 10'000), shape, kernel.with(data.data()));
    ASSERT_TRUE(result) << result.what;
  }
};

struct threaded {
  using machine = fiber;
  static constexpr char const* unavailable() { return nullptr; }
  template <class Kernel, class T>
  static void run(grid const& shape, Kernel const& kernel, std::vector<T>& data) {
    launch<fiber>(shape, kernel.with(data.data()), {.os_threads = 2});
  }
};

using runners =
    ::testing::Types<scheduled<memory_model::sequential>, scheduled<memory_model::store_buffers>,
                     scheduled<memory_model::race_detector>, scheduled<memory_model::stale_reads>, threaded>;
struct runner_names {
  template <class Runner>
  static std::string GetName(int i) {
    static constexpr char const* names[] = {"Sequential", "StoreBuffers", "RaceDetector", "StaleReads", "Threaded"};
    return names[i];
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Fiber, MachineConformance, runners, runner_names);

}  // namespace
}  // namespace forebay::simt::testing
