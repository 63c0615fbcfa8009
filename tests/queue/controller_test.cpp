// SPDX-License-Identifier: Apache-2.0
//! \file
//! The queue layer on the emulated controller, driven by threads and by fibers.
#include "forebay/detail/emulator/controller.hpp"

#include <gtest/gtest.h>

#include "forebay/detail/emulator/backing_store.hpp"
#include "queue/controller_suite.hpp"

namespace forebay::queue_test {
namespace {

/// A plan that withholds the first command of the first queue, and none of the others that a test sends.
emulator::fault_plan withhold_first_command() {
  constexpr std::uint64_t first = std::uint64_t{1} << 48;  // as the engine numbers commands
  emulator::fault_plan plan;
  plan.withhold_ppm = 1;
  auto const spares_others = [&] {
    for (std::uint64_t queue = 1; queue <= 2; ++queue) {
      for (std::uint64_t k = queue == 1 ? 1 : 0; k < 20'000; ++k) {
        if (plan.at((queue << 48) + k).withheld) return false;
      }
    }
    return true;
  };
  while (!plan.at(first).withheld || !spares_others()) ++plan.seed;
  return plan;
}

class emulated_target final : public target {
 public:
  explicit emulated_target(target_options const& o)
      : controller_(options_of(o), emulator::memory_backing(64 << 20, 512)) {}

  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  void* allocate_contiguous(std::size_t bytes) override { return controller_.dma().allocate(bytes); }
  void hold_next_read() override {}  // it withholds the first command anyway
  status let_go(driver::controller& by, std::uint16_t queue_id, std::uint16_t command_id) override {
    EXPECT_TRUE(by.abort(queue_id, command_id));
    return status::from_nvme(nvme::status_field(nvme::generic_status::command_abort_requested));
  }

 private:
  static emulator::subsystem_options options_of(target_options const& o) {
    emulator::subsystem_options e;
    e.units = 2;
    e.max_queues = 16;
    e.mdts = static_cast<std::uint8_t>(o.mdts);
    if (o.holds_first_read) e.faults = withhold_first_command();
    return e;
  }

  emulator::controller controller_;
};

template <class Lanes>
struct emulated {
  using lanes_on = Lanes;
  static void require() {}
  static std::unique_ptr<target> open(target_options const& o) { return std::make_unique<emulated_target>(o); }
};

struct names {
  template <class Where>
  static std::string GetName(int) {
    return std::is_same_v<typename Where::lanes_on, on_fibers> ? "fibers" : "threads";
  }
};
using both = testing::Types<emulated<on_threads>, emulated<on_fibers>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, ControllerSuite, both, names);

class EmulatedMeetings : public ControllerSuite<emulated<on_fibers_that_meet>> {};

TEST_F(EmulatedMeetings, LanesSubmitAndConsumeTogether) {
  auto const on = emulated<on_fibers_that_meet>::open({});
  for (std::uint32_t const depth : {3u, 32u}) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    rig r(*on, {.pairs = {{depth, depth}, {depth, depth}}});
    expect_traffic(*on, r, {.seed = depth, .rounds = 20, .in_flight = 4, .max_blocks = 16});
  }
}

template <class Where>
class EmulatedRecovery : public ControllerSuite<Where> {};
TYPED_TEST_SUITE(EmulatedRecovery, both, names);

TYPED_TEST(EmulatedRecovery, Q7WithheldCommandIsAborted) {
  auto const on = TypeParam::open({.holds_first_read = true});
  scattered_pages const data(on->dma(), 4, 9);
  rig r(*on, {.pairs = {{4, 4}, {4, 4}}, .prp_pages = 1, .timeout_ns = 50'000'000});
  tally seen;
  auto const with = this->client_of(r, seen);
  recovery rescue = this->rescue_of(r);
  std::uint32_t const record = this->start(r, seen, with.command(nvme::io_opcode::read, 0, 24, data.list(), 4));
  status const wanted = status::from_nvme(nvme::status_field(nvme::generic_status::command_abort_requested));
  EXPECT_EQ(to_string(this->wait_and_recover(r, seen, record, rescue)), to_string(wanted));
  EXPECT_EQ(rescue.count().aborts, 1u);
  EXPECT_EQ(rescue.count().queues_deleted, 0u);
  EXPECT_TRUE(r.ring(0).live());
  r.expect_nothing_held();
  data.fill(std::byte{0x5a});
  this->expect_traffic(*on, r, {.rounds = 4, .in_flight = 4, .max_blocks = 24});
  EXPECT_TRUE(data.holds(std::byte{0x5a}));
}

}  // namespace
}  // namespace forebay::queue_test
