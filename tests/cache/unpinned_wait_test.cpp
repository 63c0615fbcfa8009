// SPDX-License-Identifier: Apache-2.0
//! \file
//! A thread that waits for an unpinned frame must see those outside its set, too.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/simt/schedulers.hpp"
#include "forebay/status_text.hpp"
#include "support/gpu_like.hpp"
#include "support/prompt_drive.hpp"
#include "support/traits.hpp"

namespace forebay::test {
namespace {

constexpr std::uint32_t page_bytes = 4096;
constexpr std::uint64_t second_ns = 1'000'000'000;

/// Asks again and again. The waits here take seconds of virtual time.
using polling = gpu_like<simt::fiber, simt::in_step_rules, second_ns / 100>;

struct looks_at_the_set_alone : cache_rules {
  static constexpr bool waits_outside_the_set = false;
};
struct looks_at_the_same_ones : cache_rules {
  static constexpr bool looks_go_on = false;
};

/// One set and some overflow frames, all pinned by a lane. It lets go of overflow frame `which` once another lane,
/// which wants one more page, waits. `dirty`: the page in that frame has to be written back first. Returns the outcome
/// for the other lane.
struct wait_shape {
  std::uint32_t overflow_frames = 1;
  std::uint32_t which = 0;
  bool dirty = false;
};
template <class Rules, class Machine = simt::fiber>
std::string wait_for_an_overflow_frame(std::uint64_t seed, wait_shape const& shape) {
  prompt_drive drive(1);
  storage_layout layout;
  layout.size_bytes = 64 * page_bytes;
  layout.command_bytes_max = page_bytes;
  cache_options options;
  options.size_bytes = cache_ways * page_bytes;
  options.overflow_frames = shape.overflow_frames;
  memory::allocation const frames(memory::host(), options.frame_memory_bytes(), page_bytes);
  cache pages(options, layout, *drive.queues,
              buffer_ref(frames.as<std::byte>(), frames.size_bytes(), reinterpret_cast<std::uint64_t>(frames.data())),
              memory::host(), memory::host());
  auto* const state = static_cast<cache_state*>(pages.core());
  cache_ref<Machine, test::traits<replacement::clock, false, frame_pools<>, queue_rules, Rules>> const ref(
      state, state->words, state->fingerprints, state->frame_memory.data(), state->mapping, state->page_shift);
  std::uint32_t const pinned_pages = cache_ways + shape.overflow_frames;
  std::uint32_t ready = 0;
  std::uint64_t let_go_ns = 0, got_ns = 0;
  status outcome;
  auto const wait_ns = [](std::uint64_t ns) {
    (void)simt::fiber::wait_until([] { return false; }, simt::fiber::clock_ns() + ns);
  };
  auto const lane = [&] {
    if (Machine::thread_rank() == 1) {
      (void)simt::fiber::wait_until([&] { return simt::atomic<Machine>(ready).load(simt::order::acquire) != 0; },
                                    simt::no_deadline);
      page_pin const pinned = ref.pin(pinned_pages, access::read, when_full::wait);
      got_ns = Machine::clock_ns();
      outcome = pinned.outcome;
      if (outcome.ok()) ref.unpin(pinned.frame);
      return;
    }
    std::vector<std::uint32_t> held;
    for (std::uint64_t page = 0; page < pinned_pages; ++page) {
      page_pin const pinned = ref.pin(page, shape.dirty ? access::write : access::read);
      Machine::check(pinned.outcome.ok(), "a frame for each of them");
      held.push_back(pinned.frame);
    }
    // Release pairs with the acquire of the other lane.
    simt::atomic<Machine>(ready).store(1, simt::order::release);
    // Half of the time that it waits.
    wait_ns(5 * second_ns);
    let_go_ns = Machine::clock_ns();
    ref.unpin(held[cache_ways + shape.which]);
    held.erase(held.begin() + cache_ways + shape.which);
    wait_ns(15 * second_ns);
    for (std::uint32_t const frame : held) ref.unpin(frame);
  };
  simt::random scheduler(seed, 4);
  simt::run_options run;
  run.max_steps = 5'000'000;
  run.record = false;
  simt::run_result const result = simt::run(run, scheduler, {2, 1, 0}, lane, drive.agents());
  if (!result.ok) return result.what;
  // It looks at all overflow frames at its deadline, which is seconds away.
  return outcome.ok() && got_ns > let_go_ns + 2 * second_ns ? "late" : to_string(outcome);
}

TEST(UnpinnedWait, SeesAnOverflowFrame) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (bool const dirty : {false, true}) {
      EXPECT_EQ(wait_for_an_overflow_frame<cache_rules>(seed, {.dirty = dirty}), "success")
          << "seed " << seed << " " << dirty;
    }
  }
}
TEST(UnpinnedWait, ThatLooksAtTheSetAloneIsCaught) {
  EXPECT_EQ(wait_for_an_overflow_frame<looks_at_the_set_alone>(1, {}), to_string(status(fault::no_frame)));
}

// A waiter that asks again and again looks at sixteen overflow frames at a time.
TEST(UnpinnedWait, ThatAsksAgainComesToEveryOverflowFrame) {
  for (std::uint32_t which = 0; which < 20; ++which) {
    EXPECT_EQ((wait_for_an_overflow_frame<cache_rules, polling>(which, {.overflow_frames = 20, .which = which})),
              "success")
        << "frame " << which;
  }
}
TEST(UnpinnedWait, ThatLooksAtTheSameOverflowFramesIsCaught) {
  std::uint32_t late = 0;
  for (std::uint32_t which = 0; which < 20; ++which) {
    std::string const got =
        wait_for_an_overflow_frame<looks_at_the_same_ones, polling>(which, {.overflow_frames = 20, .which = which});
    late += got == "late" ? 1 : 0;
  }
  EXPECT_GT(late, 0u) << "16 of 20 are looked at";
}

}  // namespace
}  // namespace forebay::test
