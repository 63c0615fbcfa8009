// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the queue layer must do over any controller, whichever machine's threads drive it.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "forebay/detail/queue/recovery.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/status_text.hpp"
#include "support/controller_rig.hpp"

namespace forebay::queue_test {

/// Lanes that are threads of the operating system.
struct on_threads {
  using machine = simt::native;
  static constexpr std::uint32_t lanes = 4;

  template <class Kernel>
  static void run(std::uint32_t count, Kernel const& kernel) {
    std::vector<std::jthread> threads;
    for (std::uint32_t lane = 0; lane < count; ++lane) threads.emplace_back([&kernel, lane] { kernel(lane); });
  }
};

/// Lanes that are fibers on two simulated multiprocessors. `lanes_meet`: those of a warp submit and consume together.
template <std::uint32_t lane_count, bool lanes_meet>
struct fibers {
  using machine = simt::fiber;
  static constexpr std::uint32_t lanes = lane_count;

  template <class Kernel>
  static void run(std::uint32_t count, Kernel const& kernel) {
    std::uint32_t const blocks = count % 2 == 0 ? 2 : 1;
    simt::launch<machine>({.blocks = blocks, .threads_per_block = count / blocks, .shared_bytes = 0},
                          [&kernel] { kernel(machine::thread_rank()); }, {.os_threads = 2, .lanes_meet = lanes_meet});
  }
};
using on_fibers = fibers<32, false>;
using on_fibers_that_meet = fibers<8, true>;  // each meeting is a pass over all of them

/// `Where` has `lanes_on`, one of the above, `static std::unique_ptr<target> open(target_options const&)`, and
/// `static void require()`, which skips the test where there is no such controller.
template <class Where>
class ControllerSuite : public testing::Test {
 protected:
  using lanes_on = typename Where::lanes_on;
  using machine = typename lanes_on::machine;
  static constexpr std::uint32_t lanes = lanes_on::lanes;

  void SetUp() override { Where::require(); }

  static client<machine> client_of(rig& r, tally& seen) { return {r.ref<machine>(), r.all(), &r.drive(), &seen}; }

  /// Runs `work` on every lane, with pages of its own.
  static void run_traffic(target& on, traffic<machine> work) {
    scattered_pages const data(on.dma(), lanes * work.pages_per_lane(), work.seed);
    work.data = data.list();
    lanes_on::run(lanes, work);
  }
  /// The same, and all must succeed.
  static void expect_traffic(target& on, rig& r, traffic<machine> work) {
    tally seen;
    work.with = client_of(r, seen);
    run_traffic(on, work);
    expect_good(seen);
  }

  static void run_sizes(target& on, rig& r, std::uint32_t count, std::uint32_t first_blocks,
                        std::uint32_t last_blocks) {
    tally seen;
    std::uint64_t const bytes = std::uint64_t{last_blocks} * r.drive().block_bytes;
    scattered_pages const data(on.dma(), count * 2 * every_size<machine>::pages_per_area(bytes), 5);
    lanes_on::run(count, every_size<machine>{client_of(r, seen), data.list(), count, first_blocks, last_blocks});
    expect_good(seen);
  }

  static std::uint32_t start(rig& r, tally& seen, io_command const& command) {
    std::uint32_t record = slot_pool::none;
    lanes_on::run(1, start_one<machine>{client_of(r, seen), command, &record});
    return record;
  }
  static status wait(rig& r, tally& seen, std::uint32_t record, std::uint64_t for_ns) {
    status result;
    lanes_on::run(1, wait_for_one<machine>{client_of(r, seen), record, for_ns, &result});
    return result;
  }
  /// The action of a waiter whose command does not complete, and the action of recovery. The waits are short because
  /// they must time out.
  static status wait_and_recover(rig& r, tally& seen, std::uint32_t record, recovery& rescue) {
    status result = fault::timed_out;
    for (int again = 0; result.kind() == fault::timed_out && again < 8; ++again) {
      // Long enough that a drive on a busy machine has fetched the command: it cannot abort one that it has not
      // fetched.
      result = wait(r, seen, record, 50'000'000);
      while (rescue.step()) {
      }
    }
    return result;
  }
  static recovery rescue_of(rig& r) {
    recovery::group g{&r.queues(), {}};
    for (std::uint32_t i = 0; i < r.queues().pair_count(); ++i) g.members.push_back({&r.controller(), &r.ring(i)});
    return recovery({g});
  }

  /// Traffic during which the host runs `action`, once the lanes are well under way.
  template <class Action>
  static tally disturb(target& on, rig& r, traffic<machine> work, Action action) {
    tally seen;
    std::uint32_t stop = 0;
    work.with = client_of(r, seen);
    work.may_be_cancelled = true;
    work.stop = &stop;
    std::jthread host([&] {
      EXPECT_TRUE(simt::native::wait_until(
          [&] {
            // Relaxed: nothing follows from it but that it is time.
            return simt::atomic<simt::native>(seen.requests).load(simt::order::relaxed) >= 50 * lanes;
          },
          simt::native::clock_ns() + patience_ns));
      try {
        action();
      } catch (std::exception const& e) {
        ADD_FAILURE() << e.what();
      }
      // Release pairs with the acquire in traffic: the lanes' last round comes after the action.
      simt::atomic<simt::native>(stop).store(1, simt::order::release);
    });
    run_traffic(on, work);
    host.join();
    expect_good(seen);
    return seen;
  }
};

TYPED_TEST_SUITE_P(ControllerSuite);

TYPED_TEST_P(ControllerSuite, MovesEverySizeBetweenScatteredPages) {
  auto const on = TypeParam::open({});
  rig r(*on, {.pairs = {{32, 32}, {4, 4}}});
  auto const largest = static_cast<std::uint32_t>(r.drive().max_transfer_bytes / r.drive().block_bytes);
  ASSERT_EQ(largest, 1024u);
  this->run_sizes(*on, r, this->lanes, 1, largest);
}

TYPED_TEST_P(ControllerSuite, FillsAListPageToTheLastEntry) {
  auto const on = TypeParam::open({.mdts = 9});
  rig r(*on, {.pairs = {{8, 8}}, .prp_pages = 2});
  auto const largest = static_cast<std::uint32_t>(r.drive().max_transfer_bytes / r.drive().block_bytes);
  ASSERT_EQ(largest, r.queues().state()->prp_pages.bytes_named_by_one_page() / r.drive().block_bytes);
  this->run_sizes(*on, r, 2, largest - 11, largest);
}

TYPED_TEST_P(ControllerSuite, WrapsRingsOfEveryDepth) {
  auto const on = TypeParam::open({});
  for (std::uint32_t const depth : {2u, 3u, 4u, 32u}) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    rig r(*on, {.pairs = {{depth, depth}, {depth, depth}}});
    this->expect_traffic(*on, r, {.seed = depth, .rounds = 1600 / this->lanes, .max_blocks = 16});
  }
}

TYPED_TEST_P(ControllerSuite, UsesRingsOfManyPages) {
  auto const on = TypeParam::open({});
  rig r(*on, {.pairs = {{256, 512}, {1024, 1024}}});
  this->expect_traffic(*on, r, {.rounds = 2400 / this->lanes / 16 * 2, .in_flight = 16, .max_blocks = 4});
}

TYPED_TEST_P(ControllerSuite, HelpsWhereMoreIsAskedThanFits) {
  auto const on = TypeParam::open({});
  for (std::uint32_t const depth : {2u, 3u, 4u}) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    // Fewer list pages than slots, too.
    rig r(*on, {.pairs = {{depth, depth}}, .prp_pages = 1});
    this->expect_traffic(*on, r, {.seed = depth, .rounds = 96 / this->lanes, .in_flight = 16, .max_blocks = 24});
  }
}

TYPED_TEST_P(ControllerSuite, NeverOverrunsTheShorterRing) {
  auto const on = TypeParam::open({});
  for (pair_shape const shape : {pair_shape{32, 2}, {2, 32}, {32, 5}, {5, 32}, {3, 2}, {2, 3}, {64, 3}}) {
    SCOPED_TRACE(std::to_string(shape.sq_entries) + " and " + std::to_string(shape.cq_entries));
    rig r(*on, {.pairs = {shape, {shape.cq_entries, shape.sq_entries}}});
    this->expect_traffic(*on, r, {.rounds = 64 / this->lanes, .in_flight = 12, .max_blocks = 4});
  }
}

TYPED_TEST_P(ControllerSuite, CountsOnPastTwoToThe33) {
  auto const on = TypeParam::open({});
  for (std::uint32_t const depth : {2u, 3u, 32u}) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    std::uint64_t const laps = (std::uint64_t{1} << 33) / (2 * depth) - 3;
    rig r(*on, {.pairs = {{depth, depth}}, .first_ticket = laps * 2 * depth});
    std::uint32_t const first_lap = ring_position::from_word(r.queues().state()->pairs[0].sq_tail).lap;
    this->expect_traffic(*on, r, {.rounds = 256 / this->lanes, .max_blocks = 4});
    EXPECT_GT(ring_position::from_word(r.queues().state()->pairs[0].sq_tail).lap - first_lap, 6u);
  }
}

TYPED_TEST_P(ControllerSuite, BringsEachRequestItsOwnStatus) {
  auto const on = TypeParam::open({});
  for (std::uint32_t const depth : {2u, 32u}) {
    rig r(*on, {.pairs = {{depth, depth}, {depth, depth}}});
    this->expect_traffic(*on, r, {.rounds = 128 / this->lanes, .in_flight = 3, .max_blocks = 16, .errors = true});
  }
}

TYPED_TEST_P(ControllerSuite, Q8OneSlowCommandHoldsUpNobody) {
  for (std::uint32_t const depth : {3u, 4u, 32u}) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    auto const on = TypeParam::open({.holds_first_read = true});
    scattered_pages const slow_data(on->dma(), 4, 9);
    {
      rig r(*on, {.pairs = {{depth, depth}, {depth, depth}}});
      tally seen;
      auto const with = this->client_of(r, seen);
      on->hold_next_read();
      std::uint32_t const slow =
          this->start(r, seen, with.command(nvme::io_opcode::read, r.drive().blocks - 24, 24, slow_data.list(), 4));
      // The doorbell is behind this admin command on the way to the controller, so the answer comes after the
      // controller took the command.
      (void)r.controller().get_feature(nvme::feature_id::number_of_queues);
      slow_data.fill(std::byte{0x5a});
      this->expect_traffic(*on, r, {.rounds = 256 / this->lanes, .in_flight = 4, .max_blocks = 16});
      auto const queues = r.template ref<simt::native>();
      EXPECT_FALSE(queues.records().done(slow));
      EXPECT_TRUE(slow_data.holds(std::byte{0x5a}));
      std::uint32_t const id = queues.pair(0).find_command(slow, 0);
      EXPECT_NE(id, slot_pool::none);
      status const wanted = on->let_go(r.controller(), r.ring(0).id(), static_cast<std::uint16_t>(id));
      status const got = this->wait(r, seen, slow, patience_ns);
      EXPECT_EQ(to_string(got), to_string(wanted));
      // Nobody wrote these blocks.
      std::uint64_t const moved = wanted.ok() ? 24 * r.drive().block_bytes : 0;
      with.expect_paint(slow_data.list(), 0, 4, 0x5a5a5a5a);
      with.expect_paint(slow_data.list(), 4, 4 + moved, 0);
      with.expect_paint(slow_data.list(), 4 + moved, 4 * page_bytes, 0x5a5a5a5a);
      EXPECT_EQ(seen.wrong_words, 0u);
    }
  }
}

TYPED_TEST_P(ControllerSuite, Q7CommandThatTheControllerNeverHeardOfIsCancelled) {
  auto const on = TypeParam::open({});
  scattered_pages const data(on->dma(), 4, 9);
  rig r(*on, {.pairs = {{4, 4, true}, {4, 4}}, .prp_pages = 1, .timeout_ns = 1'000'000});
  tally seen;
  auto with = this->client_of(r, seen);
  with.pairs.count = 1;
  recovery rescue = this->rescue_of(r);
  io_command const read = with.command(nvme::io_opcode::read, 0, 24, data.list(), 4);
  std::uint32_t const record = this->start(r, seen, read);
  EXPECT_EQ(this->wait(r, seen, record, 1'000'000).kind(), fault::timed_out);
  EXPECT_EQ(this->wait_and_recover(r, seen, record, rescue).kind(), fault::cancelled);
  EXPECT_EQ(rescue.count().aborts, 0u);
  EXPECT_EQ(rescue.count().queues_deleted, 1u);
  EXPECT_EQ(rescue.count().controller_resets, 0u);
  EXPECT_FALSE(r.ring(0).live());
  r.expect_nothing_held();
  data.fill(std::byte{0x5a});

  // The other pair goes on, and takes over what the dead one needed, list page included.
  this->expect_traffic(*on, r, {.rounds = 4, .in_flight = 4, .max_blocks = 24});
  std::uint32_t home = 0;
  EXPECT_EQ(r.template ref<simt::native>().submit({0, 1}, home, read, 0, patience_ns).kind(), fault::cancelled);
  r.recreate();
  this->expect_traffic(*on, r, {.rounds = 4, .in_flight = 4, .max_blocks = 24});
  EXPECT_TRUE(data.holds(std::byte{0x5a}));
}

TYPED_TEST_P(ControllerSuite, Q7QueueDeletedUnderLoadCancelsOnlyItsOwn) {
  auto const on = TypeParam::open({});
  rig r(*on, {.pairs = {{8, 8}, {8, 8}}, .prp_pages = 4});
  traffic<typename TestFixture::machine> const work{.in_flight = 8, .max_blocks = 24};
  for (int life = 0; life < 4; ++life) {
    this->disturb(*on, r, work, [&] {
      r.controller().delete_io_queue_pair(r.ring(0));
      r.queues().declare_dead(0);
    });
    EXPECT_TRUE(r.ring(1).live());
    r.recreate();
  }
  this->expect_traffic(*on, r, {.rounds = 8, .in_flight = 8, .max_blocks = 24});
}

TYPED_TEST_P(ControllerSuite, Q7ResetUnderLoadFreesAllMemory) {
  auto const on = TypeParam::open({});
  rig r(*on, {.pairs = {{8, 8}, {256, 256}}, .prp_pages = 4});
  traffic<typename TestFixture::machine> const work{.in_flight = 8, .max_blocks = 24};
  for (int life = 0; life < 4; ++life) {
    tally const seen = this->disturb(*on, r, work, [&] {
      r.controller().reset();
      for (std::uint32_t i = 0; i < 2; ++i) {
        EXPECT_FALSE(r.ring(i).live());
        r.queues().declare_dead(i);
      }
    });
    EXPECT_GE(seen.cancelled, this->lanes) << "the last round came after the reset";
    r.recreate();
  }
  this->expect_traffic(*on, r, {.rounds = 8, .in_flight = 8, .max_blocks = 24});
}

REGISTER_TYPED_TEST_SUITE_P(ControllerSuite, MovesEverySizeBetweenScatteredPages, FillsAListPageToTheLastEntry,
                            WrapsRingsOfEveryDepth, UsesRingsOfManyPages, HelpsWhereMoreIsAskedThanFits,
                            NeverOverrunsTheShorterRing, CountsOnPastTwoToThe33, BringsEachRequestItsOwnStatus,
                            Q8OneSlowCommandHoldsUpNobody, Q7CommandThatTheControllerNeverHeardOfIsCancelled,
                            Q7QueueDeletedUnderLoadCancelsOnlyItsOwn, Q7ResetUnderLoadFreesAllMemory);

}  // namespace forebay::queue_test
