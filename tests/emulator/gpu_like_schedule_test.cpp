// SPDX-License-Identifier: Apache-2.0
//! \file
//! Resident units on fibers that answer as a GPU does: the lanes of a dispatcher share their looks, and look while they
//! work. Proof that these schedules find the errors that they are for: machines whose dispatchers break a rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <type_traits>

#include "emulator/resident_rig.hpp"
#include "forebay/detail/emulator/dispatcher_rules.hpp"
#include "support/gpu_like.hpp"

namespace forebay::emulator {

namespace testing {
using machine = test::gpu_like<>;
struct deaf_to_mail : machine {};
struct alone_with_its_look : machine {};
struct blind_while_it_waits : machine {};
}  // namespace testing

template <>
struct dispatcher_rules_of<testing::deaf_to_mail> : dispatcher_rules {
  static constexpr bool looks_for_mail = false;
};
template <>
struct dispatcher_rules_of<testing::alone_with_its_look> : dispatcher_rules {
  static constexpr bool all_hear_of_a_look = false;
};
template <>
struct dispatcher_rules_of<testing::blind_while_it_waits> : dispatcher_rules {
  static constexpr bool looks_while_it_waits = false;
};

namespace testing {
namespace {

/// A thread that cannot get a lock tries again at once, so the schedules are fair. Each schedule takes the next memory
/// model in turn, since there are few of them.
void explore_traffic(resident_shape const& shape) {
  explore(
      [&](std::uint64_t seed, simt::memory_model, simt::scheduler& schedule) {
        resident_rig<machine>(shape, seed).run(memory_models[seed % std::size(memory_models)], schedule);
      },
      12, true);
}

TEST(gpu_like_schedule, queues_on_two_units_of_two_warps) {
  explore_traffic({.units = 2, .warps = 2, .queues = 5, .commands = 6});
}

TEST(gpu_like_schedule, dispatchers_share_a_completion_queue) {
  explore_traffic({.units = 2, .warps = 2, .queues = 5, .cq_entries = 4, .shared_cq = true, .commands = 6});
}

TEST(gpu_like_schedule, queues_come_and_go) {
  resident_shape shape{.units = 2, .warps = 2, .queues = 3, .commands = 10, .aborts = true, .detaches = true};
  shape.options.faults = {.delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

TEST(gpu_like_schedule, flushes_wait_for_the_host) {
  explore_traffic({.units = 2, .queues = 2, .commands = 10, .syncs = true});
}

TEST(gpu_like_schedule, a_second_launch_goes_on) {
  resident_shape shape{.units = 2, .warps = 2, .queues = 5, .commands = 6, .stop_after = 12};
  shape.options.timing = two_channels();
  shape.options.faults = {.delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

/// Completions are made ready long before they are due, so that a dispatcher waits for the time again and again. A
/// queue has one command in flight. A second one would be dated with the first, which was seen and is still to be
/// fetched.
resident_shape patient_shape() {
  resident_shape shape{.queues = 2, .sq_entries = 2, .commands = 12, .all_kinds = false};
  shape.options.timing = two_channels();
  shape.options.post_ahead_ns = 10'000;
  return shape;
}
/// There is a pause between two looks.
constexpr std::uint64_t early_max_ns = machine::longest_pause_ns;
/// How early a dispatcher of `Machine` dates a command, at most. Memory is sequential: under other models a dispatcher
/// may see late that a doorbell was rung.
template <class Machine>
std::uint64_t dated_early_ns() {
  std::uint64_t most_ns = 0;
  explore(
      [&](std::uint64_t seed, simt::memory_model, simt::scheduler& schedule) {
        resident_rig<Machine> rig(patient_shape(), seed);
        rig.run(simt::memory_model::sequential, schedule);
        if constexpr (std::is_same_v<Machine, machine>) {
          EXPECT_LE(rig.dated_early_ns(), early_max_ns);
        }
        most_ns = std::max(most_ns, rig.dated_early_ns());
      },
      6, true);
  return most_ns;
}

TEST(gpu_like_schedule, doorbells_are_looked_at_while_completions_wait_for_their_time) {
  (void)dated_early_ns<machine>();
}

template <class Mutant>
std::string failure_of(resident_shape const& shape, std::uint64_t seed) {
  std::string what;
  with_schedule(
      seed,
      [&](simt::memory_model memory, simt::scheduler& schedule) {
        what = resident_rig<Mutant>(shape, seed).failure_of(memory, schedule);
      },
      true);
  return what;
}

/// A few schedules find the mutant; none of them fails for the right machine.
template <class Mutant>
void expect_caught(resident_shape const& shape, char const* how) {
  constexpr std::uint64_t schedules = 12;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    std::string const what = failure_of<Mutant>(shape, seed);
    if (what.empty()) continue;
    std::printf("  caught after %llu schedules: %.200s\n", static_cast<unsigned long long>(seed + 1), what.c_str());
    EXPECT_NE(what.find(how), std::string::npos) << what;
    EXPECT_EQ(failure_of<machine>(shape, seed), "");
    return;
  }
  ADD_FAILURE() << "not caught within " << schedules << " schedules";
}

TEST(gpu_like_mutants, a_dispatcher_that_is_deaf_to_mail_is_caught) {
  expect_caught<deaf_to_mail>({.queues = 1, .commands = 4}, "step limit");
}

TEST(gpu_like_mutants, a_lane_that_keeps_what_it_sees_to_itself_is_caught) {
  expect_caught<alone_with_its_look>({.queues = 2, .commands = 4}, "waits for this lane");
}

TEST(gpu_like_mutants, a_dispatcher_that_is_blind_while_it_waits_is_caught) {
  std::uint64_t const most_ns = dated_early_ns<blind_while_it_waits>();
  std::printf("  a command was dated %llu ns too early\n", static_cast<unsigned long long>(most_ns));
  EXPECT_GT(most_ns, early_max_ns);
}

}  // namespace
}  // namespace testing
}  // namespace forebay::emulator
