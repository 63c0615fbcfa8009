// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fairness of the service that consumes completions for other threads: one pair is always busy, one is quiet.
#include "forebay/service.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "forebay/detail/simt/schedulers.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/token.hpp"
#include "support/prompt_drive.hpp"

namespace forebay::test {
namespace {

using machine = simt::fiber;

constexpr std::uint32_t busy_pair = 0;
constexpr std::uint32_t quiet_pair = 1;

/// A drive of two pairs, and how many commands of the busy one have ended.
struct two_pairs {
  prompt_drive drive{2};
  std::uint32_t done = 0;
  std::uint32_t done_when_quiet_was_posted = 0;

  two_pairs() {
    drive.about_to_complete = [this](std::uint32_t pair) {
      if (pair == quiet_pair) done_when_quiet_was_posted = busy_done();
    };
  }
  std::uint32_t busy_done() { return simt::atomic<machine>(done).load(simt::order::relaxed); }

  /// A Flush on `pair`, waited for.
  template <class Rules>
  void flush(std::uint32_t pair) {
    auto const ref = drive.queues->ref<machine, Rules>();
    pair_range const range{pair, 1, 1};
    std::uint32_t const record = ref.records().try_open(1);
    machine::check(record != slot_pool::none, "a record");
    std::uint32_t home = 0;
    machine::check(ref.submit(range, home, {}, record, simt::no_deadline).ok(), "submit");
    machine::check(token<machine, io_queues_ref<machine, Rules>>(ref, record, range).wait(simt::no_deadline).ok(),
                   "wait");
    // Relaxed: a count.
    if (pair == busy_pair) simt::atomic<machine>(done).fetch_add(1, simt::order::relaxed);
  }
};

/// The most completions of the busy pair that are delivered between a completion of the quiet pair and its delivery.
template <class Rules>
std::uint32_t delivered_first(std::uint32_t clients, std::uint32_t rounds) {
  std::uint32_t most = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    two_pairs of;
    std::uint32_t stop = 0, finished = 0, delivered = 0;
    auto const lane = [&] {
      std::uint32_t const me = machine::this_block().rank;
      if (me == clients + 1) {
        // One warp for two pairs.
        service_kernel<machine, io_queues_ref<machine, Rules>>{of.drive.queues->ref<machine, Rules>(), &stop,
                                                               clients + 1}();
        return;
      }
      if (me == 0) {
        machine::check(machine::wait_until([&] { return of.busy_done() >= clients * 10; }, simt::no_deadline), "warm");
        of.flush<service_rules>(quiet_pair);
        delivered = of.busy_done() - of.done_when_quiet_was_posted;
      } else {
        for (std::uint32_t n = 0; n < rounds; ++n) of.flush<service_rules>(busy_pair);
      }
      // Acquire and release: the last to finish acquires all that the others did.
      if (simt::atomic<machine>(finished).fetch_add(1, simt::order::acq_rel) == clients) {
        // Release pairs with the acquire of the service.
        simt::atomic<machine, simt::scope::system>(stop).store(1, simt::order::release);
      }
    };
    simt::random scheduler(seed, 2);
    simt::run_options options;
    options.max_steps = 20'000'000;
    options.record = false;
    simt::run_result const result = simt::run(options, scheduler, {clients + 2, 1, 0}, lane, of.drive.agents());
    EXPECT_TRUE(result.ok) << result.what << "\n  seed " << seed;
    most = std::max(most, delivered);
  }
  return most;
}

/// As many as a round of both pairs can deliver, and some more until the quiet client looks.
constexpr std::uint32_t bound = 8 * prompt_drive::entries;

TEST(Service, AQuietPairDoesNotWaitForABusyOne) {
  EXPECT_LE(delivered_first<queue_rules>(8, 400), bound) << "of " << 8 * 400;
}

struct stays_at_a_pair : queue_rules {
  static constexpr bool goes_round = false;
};
TEST(Service, ThatStaysAtABusyPairIsCaught) {
  EXPECT_GT(delivered_first<stays_at_a_pair>(8, 400), bound);
}

}  // namespace
}  // namespace forebay::test
