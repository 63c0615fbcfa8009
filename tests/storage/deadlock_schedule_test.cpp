// SPDX-License-Identifier: Apache-2.0
//! \file
//! Schedules of lanes that hold pages and ask for more, and a host that looks at their notes. It must see a circular
//! wait in each schedule that has one, and in no other. Compiled with FOREBAY_DEBUG_WAITS, whatever the build's option
//! is.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/queue/inspection.hpp"
#include "forebay/detail/simt/run.hpp"
#include "storage/wait_chains.hpp"
#include "support/environment.hpp"
#include "support/queue_schedule.hpp"

namespace forebay {
namespace {

using simt::fiber;
static_assert(debug_waits);

struct program {
  std::uint32_t lanes = 4;
  std::uint32_t guards = 1;        ///< pages that a lane holds at most
  std::uint32_t greedy_lanes = 0;  ///< the first of them hold as many as this instead
  std::uint32_t greedy_guards = 1;
  std::uint32_t overflow = 0;  ///< frames
  std::uint32_t rounds = 6;
};

struct outcome {
  std::string what;
  std::uint32_t given_up = 0;  ///< waits for a frame that came to their deadline
  std::uint32_t looks = 0;
  std::uint32_t looks_at_full_sets = 0;  ///< that showed a thread waiting for a frame of a set
  std::uint32_t alarms = 0;
};

/// One set of 16 frames over a drive of 48 pages.
class rig {
 public:
  rig(program const& p, std::uint64_t seed) : program_(p), seed_(seed), memory_(1 << 20) {
    constexpr std::uint32_t entries = 8;
    queue_pair_rings rings;
    rings.sq_entries = rings.cq_entries = entries;
    rings.sq = memory_.make<nvme::submission_entry>(entries, 128);
    rings.cq = memory_.make<nvme::completion_entry>(entries, 128);
    rings.sq_doorbell = memory_.make<std::uint32_t>(32, 128);
    rings.cq_doorbell = memory_.make<std::uint32_t>(32, 128);
    rings.queue_id = 1;
    io_queues_options options;
    options.records = 8;
    options.page_bytes = page_bytes;
    options.timeout_ns = timeout_ns;
    options.traced_threads = 64;
    queues_ = std::make_unique<io_queues>(std::vector{rings}, options, memory_, memory_);

    cache_options of_cache;
    of_cache.page_bytes = page_bytes;
    of_cache.size_bytes = cache_ways * page_bytes;
    of_cache.overflow_frames = p.overflow;
    storage_layout layout;
    layout.size_bytes = pages * page_bytes;
    layout.command_bytes_max = page_bytes;
    auto* const frames = memory_.make<std::byte>(of_cache.frame_memory_bytes(), page_bytes);
    pages_ = std::make_unique<cache>(
        of_cache, layout, *queues_,
        buffer_ref(frames, of_cache.frame_memory_bytes(), reinterpret_cast<std::uint64_t>(frames)), memory_, memory_);

    regions_.add(memory_.data(), memory_.size_bytes());
    media_.resize(layout.size_bytes);
    emulator::engine_options drive;
    drive.units = 1;
    drive.queue_slots = 1;
    drive.page_bytes_min = page_bytes;
    drive.max_transfer_bytes = page_bytes;
    emulator::media media;
    media.data = media_.data();
    media.bytes = media_.size();
    media.block_bytes = page_bytes;
    engine_ = std::make_unique<emulator::engine<fiber, fiber>>(drive, media);
    engine_->attach_completion_queue({0, rings.cq, entries, rings.cq_doorbell});
    engine_->attach_submission_queue({.slot = 0,
                                      .id = 1,
                                      .entries = rings.sq,
                                      .size = entries,
                                      .tail_doorbell = rings.sq_doorbell,
                                      .cq_slot = 0,
                                      .page_bytes = page_bytes,
                                      .regions = regions_.table()});
  }

  outcome run(simt::scheduler& scheduler) {
    simt::run_options options;
    options.record = false;
    std::vector<simt::agent> agents;
    agents.push_back({"drive", [this] { serve(); }, true, 1});
    agents.push_back({"host", [this] { watch(); }, true, 2});
    auto const result = simt::run(options, scheduler, {program_.lanes, 1, 0}, [this] { lane(); }, std::move(agents));
    outcome_.what = result.what;
    if (result.ok && !look_at_waits(*queues_).threads.empty()) outcome_.what = "a note outlives its thread";
    return outcome_;
  }

 private:
  static constexpr std::uint32_t page_bytes = 512;
  static constexpr std::uint32_t pages = 48;
  static constexpr std::uint64_t timeout_ns = 1'000'000'000'000;

  void serve() {
    while (!fiber::stopping()) {
      if (engine_->step(0)) continue;
      (void)fiber::wait_until([&] { return engine_->step(0) || fiber::stopping(); }, engine_->next_due_ns(0));
    }
  }

  /// Virtual time goes on only when no lane can: between two looks each lane has reached the place where it waits.
  void watch() {
    std::vector<traced_thread> before;
    while (!fiber::stopping()) {
      std::vector<traced_thread> const now = look_at_waits(*queues_).threads;
      ++outcome_.looks;
      for (traced_thread const& t : now) {
        if (t.what != static_cast<std::uint32_t>(wait_kind::unpinned_frame)) continue;
        ++outcome_.looks_at_full_sets;
        break;
      }
      if (!detail::find_circular_wait(detail::unchanged(before, now)).threads.empty()) ++outcome_.alarms;
      before = now;
      // Often while the drive is at work, seldom later.
      std::uint64_t const pause_ns = outcome_.looks < 2000 ? 1'000 : timeout_ns / 8;
      (void)fiber::wait_until([] { return fiber::stopping(); }, fiber::clock_ns() + pause_ns);
    }
  }

  void lane() {
    auto const frames = pages_->ref<fiber, cached>();
    std::uint32_t const me = fiber::thread_rank();
    std::uint32_t const guards = me < program_.greedy_lanes ? program_.greedy_guards : program_.guards;
    simt::random_source random(emulator::mix(seed_) + me);
    std::vector<std::uint32_t> held;
    for (std::uint32_t r = 0; r < program_.rounds; ++r) {
      while (held.size() < guards) {
        page_pin const pinned =
            frames.pin(random.below(pages), random.below(4) == 0 ? access::write : access::read, when_full::wait);
        if (!pinned.outcome.ok()) {
          // Only a circular wait ends this way: this lane gives way.
          fiber::check(pinned.outcome.kind() == fault::no_frame, "a pin fails");
          // Relaxed: a count.
          simt::atomic<fiber>(outcome_.given_up).fetch_add(1, simt::order::relaxed);
          break;
        }
        held.push_back(pinned.frame);
        if (random.below(2) == 0) compute(random.below(4'000));
        if (random.below(3) == 0) break;
      }
      while (!held.empty() && (r + 1 == program_.rounds || held.size() >= guards || random.below(2) == 0)) {
        frames.unpin(held.back());
        held.pop_back();
      }
    }
    for (std::uint32_t const frame : held) frames.unpin(frame);
  }

  /// Spends some time while it holds its pages.
  static void compute(std::uint64_t ns) {
    (void)fiber::wait_until([] { return false; }, fiber::clock_ns() + ns);
  }

  program program_;
  std::uint64_t seed_;
  test::detail::arena memory_;
  emulator::dma_regions regions_{memory::host(), 8};
  std::vector<std::byte> media_;
  std::unique_ptr<io_queues> queues_;
  std::unique_ptr<cache> pages_;
  std::unique_ptr<emulator::engine<fiber, fiber>> engine_;
  outcome outcome_;
};

/// Calls `check` with the outcome of each schedule.
template <class Check>
void for_schedules(program const& p, Check const& check) {
  std::uint64_t const only = test::number_from_environment("FOREBAY_SEED", 0);
  std::uint64_t const last = only != 0 ? only : test::number_from_environment("FOREBAY_SCHEDULES", 200);
  for (std::uint64_t seed = only != 0 ? only : 1; seed <= last; ++seed) {
    SCOPED_TRACE("replay with FOREBAY_SEED=" + std::to_string(seed));
    auto const one = std::make_unique<rig>(p, seed);
    outcome result;
    if (seed % 3 == 0) {
      simt::pct scheduler(seed, 3, 20'000);
      result = one->run(scheduler);
    } else {
      simt::random scheduler(seed, seed % 3 == 1 ? 8 : 2);
      result = one->run(scheduler);
    }
    ASSERT_EQ(result.what, "");
    check(result);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DeadlockSchedule, LanesThatHoldOnePageEachAndWaitForFramesRaiseNoAlarm) {
  std::uint64_t full = 0;
  for_schedules({.lanes = 24}, [&](outcome const& o) {
    EXPECT_EQ(o.alarms, 0u);
    EXPECT_EQ(o.given_up, 0u);
    full += o.looks_at_full_sets;
  });
  EXPECT_NE(full, 0u);  // else nobody ever waited for a frame
}

TEST(DeadlockSchedule, LanesThatHoldSeveralPagesWithRoomForAllRaiseNoAlarm) {
  // Twelve lanes that hold one, and two that hold up to seven: while those wait they hold twelve at most.
  for_schedules({.lanes = 14, .guards = 1, .greedy_lanes = 2, .greedy_guards = 7}, [&](outcome const& o) {
    EXPECT_EQ(o.alarms, 0u);
    EXPECT_EQ(o.given_up, 0u);
  });
}

TEST(DeadlockSchedule, ACircularWaitIsSeenWhereThereIsOneAndOnlyThere) {
  std::uint32_t with = 0, without = 0;
  for_schedules({.lanes = 5, .guards = 5, .overflow = 1, .rounds = 4}, [&](outcome const& o) {
    // A lane whose wait reaches its deadline would have waited for ever: drives always answer and locks are always
    // released.
    EXPECT_EQ(o.alarms != 0, o.given_up != 0) << o.alarms << " alarms, " << o.given_up << " given up";
    ++(o.given_up != 0 ? with : without);
  });
  // A few schedules, as under a sanitizer, may all be of one kind.
  if (test::number_from_environment("FOREBAY_SEED", 0) != 0 ||
      test::number_from_environment("FOREBAY_SCHEDULES", 200) < 100)
    return;
  EXPECT_NE(with, 0u);
  EXPECT_NE(without, 0u);
}

}  // namespace
}  // namespace forebay
