// SPDX-License-Identifier: Apache-2.0
//! \file
//! Teams of several lanes, and the schedules and memory models under which a randomised test runs them.
//! FOREBAY_SCHEDULES says how many schedules (default 60); FOREBAY_SEED replays one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "forebay/detail/simt/run.hpp"
#include "support/seed.hpp"

namespace forebay::emulator::testing {

#if defined(__SANITIZE_THREAD__)
// The other models act out the atomics themselves, so ThreadSanitizer does not see what these order.
inline constexpr simt::memory_model memory_models[] = {simt::memory_model::sequential};
#else
inline constexpr simt::memory_model memory_models[] = {
    simt::memory_model::sequential, simt::memory_model::store_buffers, simt::memory_model::race_detector,
    simt::memory_model::stale_reads};
#endif

/// Makes the choices of run `seed`: two thirds of the seeds at random, a third by priorities. `fair`: at random only,
/// for code that polls without a wait, which would let no lane of lower priority run.
template <class Run>
void with_schedule(std::uint64_t seed, Run&& run, bool fair = false) {
  simt::memory_model const memory = memory_models[seed / 3 % std::size(memory_models)];
  if (seed % 3 == 2 && !fair) {
    simt::pct schedule(seed, 5, 2000);
    run(memory, static_cast<simt::scheduler&>(schedule));
  } else {
    simt::random schedule(seed);
    run(memory, static_cast<simt::scheduler&>(schedule));
  }
}

/// Calls `run(seed, memory, schedule)` for each schedule; of a test whose schedules are long, for one in `divisor`.
template <class Run>
void explore(Run&& run, std::uint64_t divisor = 1, bool fair = false) {
  char const* const given = std::getenv("FOREBAY_SCHEDULES");
  std::uint64_t const wanted = given == nullptr ? 60 : std::strtoull(given, nullptr, 10);
  bool const one = std::getenv("FOREBAY_SEED") != nullptr;
  std::uint64_t const first = one ? test_seed() : 0;
  std::uint64_t const count = one ? 1 : (wanted + divisor - 1) / divisor;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(replay(seed));
    with_schedule(
        seed, [&](simt::memory_model memory, simt::scheduler& schedule) { run(seed, memory, schedule); }, fair);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// Runs `body` on each lane of one team of `lanes` lanes under schedule `seed`.
template <class Body>
void on_team(std::uint32_t lanes, std::uint64_t seed, Body&& body) {
  with_schedule(seed, [&](simt::memory_model memory, simt::scheduler& schedule) {
    simt::run_options options;
    options.memory = memory;
    options.max_steps = 100'000'000;
    options.record = false;
    auto const result = simt::run(options, schedule, {.blocks = 1, .threads_per_block = lanes}, [&] { body(); });
    ASSERT_TRUE(result.ok) << lanes << " lanes: " << result.what;
  });
}

}  // namespace forebay::emulator::testing
