// SPDX-License-Identifier: Apache-2.0
//! \file
//! A thread that waits for a frame which is not pinned: it must see those outside its set, too.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/simt/schedulers.hpp"
#include "forebay/status_text.hpp"
#include "support/prompt_drive.hpp"
#include "support/traits.hpp"

namespace forebay::test {
namespace {

using machine = simt::fiber;

constexpr std::uint32_t page_bytes = 4096;

struct looks_at_the_set_alone : cache_rules {
  static constexpr bool waits_outside_the_set = false;
};

/// One set and one overflow frame, all pinned by a lane. It lets go of the overflow frame once another lane, which
/// wants a page more, waits. `dirty`: its page has to be written back first. What the other lane got.
template <class Rules>
std::string wait_for_the_overflow_frame(std::uint64_t seed, bool dirty) {
  prompt_drive drive(1);
  storage_layout layout;
  layout.size_bytes = 64 * page_bytes;
  layout.command_bytes_max = page_bytes;
  cache_options options;
  options.bytes = cache_ways * page_bytes;
  options.overflow_frames = 1;
  memory::allocation const frames(memory::host(), options.frame_memory_bytes(), page_bytes);
  cache pages(options, layout, *drive.queues,
              buffer_ref(frames.as<std::byte>(), frames.size_bytes(), reinterpret_cast<std::uint64_t>(frames.data())),
              memory::host(), memory::host());
  auto* const state = static_cast<cache_state*>(pages.core());
  cache_ref<machine, test::traits<replacement::clock, false, frame_pools<>, queue_rules, Rules>> const ref(
      state, state->words, state->fingerprints, state->frame_memory.data(), state->mapping, state->page_shift);
  std::uint32_t ready = 0;
  status outcome;
  auto const lane = [&] {
    if (machine::thread_rank() == 1) {
      (void)machine::wait_until([&] { return simt::atomic<machine>(ready).load(simt::order::acquire) != 0; },
                                simt::no_deadline);
      page_pin const pinned = ref.pin(cache_ways + 1, access::read, when_full::wait);
      outcome = pinned.outcome;
      if (outcome.ok()) ref.unpin(pinned.frame);
      return;
    }
    std::vector<std::uint32_t> held;
    for (std::uint64_t page = 0; page <= cache_ways; ++page) {
      page_pin const pinned = ref.pin(page, dirty ? access::write : access::read);
      machine::check(pinned.outcome.ok(), "a frame for each of them");
      held.push_back(pinned.frame);
    }
    // Release pairs with the acquire of the other lane.
    simt::atomic<machine>(ready).store(1, simt::order::release);
    // Half of the time that it waits.
    (void)machine::wait_until([&] { return simt::atomic<machine>(ready).load(simt::order::relaxed) == 0; },
                              machine::clock_ns() + 5'000'000'000);
    ref.unpin(held.back());
    held.pop_back();
    (void)machine::wait_until([&] { return simt::atomic<machine>(ready).load(simt::order::relaxed) == 0; },
                              machine::clock_ns() + 15'000'000'000);
    for (std::uint32_t const frame : held) ref.unpin(frame);
  };
  simt::random scheduler(seed, 4);
  simt::run_options run;
  run.max_steps = 5'000'000;
  run.record = false;
  simt::run_result const result = simt::run(run, scheduler, {2, 1, 0}, lane, drive.agents());
  return result.ok ? to_string(outcome) : result.what;
}

TEST(UnpinnedWait, SeesAnOverflowFrame) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (bool const dirty : {false, true}) {
      EXPECT_EQ(wait_for_the_overflow_frame<cache_rules>(seed, dirty), "success") << "seed " << seed << " " << dirty;
    }
  }
}
TEST(UnpinnedWait, ThatLooksAtTheSetAloneIsCaught) {
  EXPECT_EQ(wait_for_the_overflow_frame<looks_at_the_set_alone>(1, false), to_string(status(fault::no_frame)));
}

}  // namespace
}  // namespace forebay::test
