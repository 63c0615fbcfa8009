// SPDX-License-Identifier: Apache-2.0
//! \file
//! The loop of `pipeline` over requests whose times and outcomes the test chooses.
#include "forebay/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/status_text.hpp"
#include "forebay/token_group.hpp"

namespace forebay {
namespace {

using simt::fiber;

/// Lanes that enter a pipeline do so together, whatever the scheduler does, like a warp without divergence.
struct whole_warps : fiber {
  static fiber::warp converged() { return fiber::this_warp(); }
};

constexpr std::uint32_t slots_max = 8;
constexpr std::uint64_t never = ~std::uint64_t{0};

/// One lane's part of the drive: the requests that it has issued, and the results that it has been told.
struct lane_log {
  struct request {
    std::uint64_t index;
    std::uint32_t slot;
    std::uint64_t done_at_ns;
    status outcome;
    bool waited = false;
    bool detached = false;
  };
  struct computation {
    std::uint64_t index;
    std::uint32_t slot;
    std::uint64_t data;
    status told;
  };
  std::vector<request> requests;
  std::vector<computation> computed;
  std::uint64_t slot_data[slots_max] = {};
  bool slot_taken[slots_max] = {};
  std::uint32_t in_flight = 0, most_in_flight = 0;
  status result;
  bool returned = false;
};

/// Whether the time has come before the deadline.
bool sleep_until(std::uint64_t time_ns, std::uint64_t deadline_ns = never) {
  return fiber::wait_until([&] { return fiber::clock_ns() >= time_ns; }, std::min(time_ns, deadline_ns));
}

constexpr std::uint64_t data_of(std::uint64_t index) {
  return index * 0x9e3779b97f4a7c15u + 1;
}

class model_token {
 public:
  model_token() = default;
  model_token(lane_log& log, std::size_t number, std::uint64_t timeout_ns)
      : log_(&log), number_(number), timeout_ns_(timeout_ns) {}

  std::uint64_t default_deadline_ns() const { return log_ == nullptr ? 0 : fiber::clock_ns() + timeout_ns_; }
  status wait() { return wait(default_deadline_ns()); }
  status wait(std::uint64_t deadline_ns) {
    if (log_ == nullptr) return {};
    auto const& r = log_->requests[number_];
    if (!sleep_until(r.done_at_ns, deadline_ns)) return fault::timed_out;
    fiber::check(!r.waited && !r.detached, "a request is waited for once");
    log_->requests[number_].waited = true;
    // The data is there when the request has ended, and not before.
    if (r.outcome.ok()) fiber::st(&log_->slot_data[r.slot], data_of(r.index));
    --log_->in_flight;
    status const ended = r.outcome;
    log_ = nullptr;
    return ended;
  }
  void detach() {
    if (log_ != nullptr) log_->requests[number_].detached = true;
    log_ = nullptr;
  }

 private:
  lane_log* log_ = nullptr;
  std::size_t number_ = 0;
  std::uint64_t timeout_ns_ = 0;
};

/// The test's choices for the requests and the computations of all lanes.
struct plan {
  std::uint64_t latency_max_ns = 3000;
  std::uint64_t seed = 1;
  std::uint64_t timeout_ns = 1'000'000'000;
  std::vector<std::pair<std::uint64_t, status>> failures;  ///< of indices
  std::vector<std::uint64_t> hang;                         ///< indices whose requests never end

  std::uint64_t draw(std::uint64_t index) const {
    std::uint64_t x = (index + seed * 1000003) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    return x * 0x94d049bb133111ebu >> 20;
  }
  status outcome(std::uint64_t index) const {
    for (auto const& [i, s] : failures) {
      if (i == index) return s;
    }
    return {};
  }
};

/// `issue` and `compute` of one lane, which check what `pipeline` promises them.
struct lane {
  plan const& p;
  lane_log& log;

  model_token issue(std::uint64_t i, std::uint32_t slot) const {
    fiber::check(slot < slots_max && !log.slot_taken[slot], "an index is issued into a slot that is free");
    log.slot_taken[slot] = true;
    fiber::st(&log.slot_data[slot], std::uint64_t{0});
    bool const hangs = std::find(p.hang.begin(), p.hang.end(), i) != p.hang.end();
    log.requests.push_back(
        {i, slot, hangs ? never : fiber::clock_ns() + p.draw(i) % (p.latency_max_ns + 1), p.outcome(i)});
    log.most_in_flight = std::max(log.most_in_flight, ++log.in_flight);
    return {log, log.requests.size() - 1, p.timeout_ns};
  }
  void compute(std::uint64_t i, std::uint32_t slot, status told = {}) const {
    log.computed.push_back({i, slot, fiber::ld(&log.slot_data[slot]), told});
    log.slot_taken[slot] = false;
  }
};

std::vector<std::uint64_t> indices_of(std::vector<lane_log::computation> const& computed) {
  std::vector<std::uint64_t> all;
  for (auto const& c : computed) all.push_back(c.index);
  return all;
}

/// Calls `check` with 1 to 8 as a constant.
template <class Check>
void for_each_depth(Check&& check) {
  [&]<std::uint32_t... D>(std::integer_sequence<std::uint32_t, D...>) {
    (check(std::integral_constant<std::uint32_t, D + 1>()), ...);
  }(std::make_integer_sequence<std::uint32_t, 8>());
}

/// `lanes` lanes of one warp, each with a range of its own.
template <class Kernel>
simt::run_result run_lanes(std::uint32_t lanes, std::uint64_t seed, Kernel&& kernel) {
  return simt::run({}, simt::random(seed), {1, lanes, 0}, kernel);
}

/// The same of one lane, which returns a status.
template <class Kernel>
status run_one(Kernel&& kernel) {
  status outcome;
  auto const ran = simt::run({}, simt::round_robin(), {1, 1, 0}, [&] { outcome = kernel(); });
  EXPECT_TRUE(ran) << ran.what;
  return outcome;
}

TEST(Pipeline, ComputesEveryIndexOnceAndInOrderWithDepthInFlight) {
  for_each_depth([](auto depth) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE("depth " + std::to_string(depth()) + ", seed " + std::to_string(seed));
      constexpr std::uint32_t lanes = 5;
      plan const p{.seed = seed};
      std::vector<lane_log> logs(lanes);
      std::vector<std::uint64_t> lengths;
      // Empty ranges, ranges shorter than the depth, and longer ones, side by side.
      for (std::uint32_t l = 0; l < lanes; ++l) lengths.push_back(p.draw(l) % (l % 2 == 0 ? 4 : 30));
      auto const ran = run_lanes(lanes, seed, [&] {
        std::uint32_t const me = fiber::thread_rank();
        lane const mine{p, logs[me]};
        logs[me].result = pipeline<depth()>(
            strided_range<fiber, false>(me, me + lengths[me] * lanes, lanes),
            [&](std::uint64_t i, std::uint32_t slot) { return mine.issue(i, slot); },
            [&](std::uint64_t i, std::uint32_t slot) { mine.compute(i, slot); });
        logs[me].returned = true;
      });
      ASSERT_TRUE(ran) << ran.what;
      EXPECT_EQ(ran.timeouts, 0u);
      for (std::uint32_t l = 0; l < lanes; ++l) {
        lane_log const& log = logs[l];
        ASSERT_TRUE(log.returned);
        EXPECT_TRUE(log.result.ok());
        ASSERT_EQ(log.computed.size(), lengths[l]);
        for (std::uint64_t k = 0; k < lengths[l]; ++k) {
          EXPECT_EQ(log.computed[k].index, l + k * lanes);
          EXPECT_EQ(log.computed[k].slot, k % depth());
          EXPECT_EQ(log.computed[k].data, data_of(l + k * lanes));
        }
        EXPECT_EQ(log.in_flight, 0u);
        EXPECT_EQ(log.most_in_flight, std::min<std::uint64_t>(depth(), lengths[l]));
      }
    }
  });
}

TEST(Pipeline, DepthOneIsThePlainLoop) {
  std::string order;
  status const outcome = pipeline<1>(
      strided_range<fiber, false>(0, 3, 1),
      [&](std::uint64_t i, std::uint32_t slot) { order += "i" + std::to_string(i) + std::to_string(slot); },
      [&](std::uint64_t i, std::uint32_t slot) { order += "c" + std::to_string(i) + std::to_string(slot); });
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(order, "i00c00i10c10i20c20");
}

TEST(Pipeline, WithoutTokensItIssuesDepthIndicesAhead) {
  std::string order;
  status const outcome = pipeline<3>(
      strided_range<fiber, false>(0, 5, 1),
      [&](std::uint64_t i, std::uint32_t) {
        order += "i" + std::to_string(i);
        return false;  // a prefetch that found no room
      },
      [&](std::uint64_t i, std::uint32_t) { order += "c" + std::to_string(i); });
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(order, "i0i1i2c0i3c1i4c2c3c4");
}

TEST(Pipeline, EveryLaneHasIssuedBeforeAnyWaits) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    constexpr std::uint32_t lanes = 7, depth = 3;
    plan const p{.seed = seed};
    std::vector<std::uint64_t> lengths;
    for (std::uint32_t l = 0; l < lanes; ++l) lengths.push_back(p.draw(l + 50) % 9);
    std::vector<lane_log> logs(lanes);
    std::vector<std::uint32_t> issued(lanes), computed(lanes);
    // Relaxed, all: counts, which lanes read only after a vote has brought them together.
    auto const add_one = [](std::uint32_t& n) { simt::atomic<fiber>(n).fetch_add(1, simt::order::relaxed); };
    auto const value = [](std::uint32_t& n) { return simt::atomic<fiber>(n).load(simt::order::relaxed); };
    auto const ran = run_lanes(lanes, seed, [&] {
      std::uint32_t const me = fiber::thread_rank();
      lane const mine{p, logs[me]};
      (void)pipeline<depth>(
          strided_range<whole_warps, false>(0, lengths[me], 1),
          [&](std::uint64_t i, std::uint32_t slot) {
            // Where lanes come apart: some wait for room.
            if (p.draw(i * lanes + me) % 3 == 0) {
              fiber::check(sleep_until(fiber::clock_ns() + 500), "time passes");
            }
            add_one(issued[me]);
            return mine.issue(i, slot);
          },
          [&](std::uint64_t i, std::uint32_t slot) {
            for (std::uint32_t l = 0; l < lanes; ++l) {
              fiber::check(value(issued[l]) >= std::min(lengths[l], i + depth), "all lanes have issued");
            }
            mine.compute(i, slot);
            add_one(computed[me]);
          });
      for (std::uint32_t l = 0; l < lanes; ++l) {
        fiber::check(value(computed[l]) == lengths[l], "lanes return together");
      }
    });
    ASSERT_TRUE(ran) << ran.what;
  }
}

status const unrecovered = status::from_nvme(nvme::status_field(nvme::media_status::unrecovered_read_error));
status const lba_range = status::from_nvme(nvme::status_field(nvme::generic_status::lba_out_of_range));

TEST(Pipeline, AFailureEndsItAndWhatIsInFlightIsWaitedFor) {
  for_each_depth([](auto depth) {
    plan const p{.failures = {{6, unrecovered}, {7, lba_range}}};
    lane_log log;
    lane const mine{p, log};
    status const outcome = run_one([&] {
      return pipeline<depth()>(
          strided_range<fiber, false>(0, 20, 1), [&](auto i, auto slot) { return mine.issue(i, slot); },
          [&](auto i, auto slot) { mine.compute(i, slot); });
    });
    EXPECT_EQ(to_string(outcome), to_string(unrecovered));
    EXPECT_EQ(indices_of(log.computed), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(log.requests.size(), 6 + depth());
    EXPECT_EQ(log.in_flight, 0u);
    for (auto const& r : log.requests) EXPECT_TRUE(r.waited && !r.detached);
  });
}

TEST(Pipeline, AComputationThatTakesStatusesGetsEachAndGoesOn) {
  for_each_depth([](auto depth) {
    plan const p{.failures = {{0, lba_range}, {6, unrecovered}, {19, lba_range}}};
    lane_log log;
    lane const mine{p, log};
    status const outcome = run_one([&] {
      return pipeline<depth()>(
          strided_range<fiber, false>(0, 20, 1), [&](auto i, auto slot) { return mine.issue(i, slot); },
          [&](auto i, auto slot, status told) { mine.compute(i, slot, told); });
    });
    EXPECT_TRUE(outcome.ok());
    ASSERT_EQ(log.computed.size(), 20u);
    for (auto const& c : log.computed) EXPECT_EQ(to_string(c.told), to_string(p.outcome(c.index)));
  });
}

TEST(Pipeline, AComputationStopsIt) {
  for_each_depth([](auto depth) {
    for (bool fails : {false, true}) {
      plan const p;
      lane_log log;
      lane const mine{p, log};
      auto const issue = [&](auto i, auto slot) { return mine.issue(i, slot); };
      status outcome;
      if (fails) {
        outcome = run_one([&] {
          return pipeline<depth()>(strided_range<fiber, false>(0, 20, 1), issue, [&](auto i, auto slot) -> status {
            mine.compute(i, slot);
            return i == 4 ? lba_range : status();
          });
        });
      } else {
        outcome = run_one([&] {
          return pipeline<depth()>(strided_range<fiber, false>(0, 20, 1), issue, [&](auto i, auto slot) {
            mine.compute(i, slot);
            return i != 4;
          });
        });
      }
      EXPECT_EQ(to_string(outcome), to_string(fails ? lba_range : status()));
      EXPECT_EQ(log.computed.size(), 5u);
      EXPECT_EQ(log.requests.size(), 4 + depth());
      EXPECT_EQ(log.in_flight, 0u);
    }
  });
}

TEST(Pipeline, WhatFailsAfterItWasStoppedIsReturned) {
  plan const p{.failures = {{6, unrecovered}}};
  lane_log log;
  lane const mine{p, log};
  status const outcome = run_one([&] {
    return pipeline<4>(
        strided_range<fiber, false>(0, 20, 1), [&](auto i, auto slot) { return mine.issue(i, slot); },
        [&](auto i, auto slot, status told) {
          mine.compute(i, slot, told);
          return i != 4;
        });
  });
  EXPECT_EQ(to_string(outcome), to_string(unrecovered));
  EXPECT_EQ(log.computed.size(), 5u);
}

TEST(Pipeline, ARequestThatStaysAwayIsGivenUpAndSaid) {
  for_each_depth([](auto depth) {
    // The failure before it does not hide it: its buffer still belongs to the drive.
    plan const p{.latency_max_ns = 0, .failures = {{3, unrecovered}}, .hang = {4, 5}};
    for (bool told : {false, true}) {
      SCOPED_TRACE("depth " + std::to_string(depth()) + (told ? ", told" : ""));
      std::vector<lane_log> logs(1);
      std::uint64_t took_ns = 0;
      auto const ran = run_lanes(1, 1, [&] {
        lane_log& log = logs[0];
        lane const mine{p, log};
        std::uint64_t const began_ns = fiber::clock_ns();
        auto const issue = [&](auto i, auto slot) { return mine.issue(i, slot); };
        strided_range<fiber, false> const range(0, 20, 1);
        if (told) {
          log.result = pipeline<depth()>(range, issue, [&](auto i, auto slot, status s) { mine.compute(i, slot, s); });
        } else {
          log.result = pipeline<depth()>(range, issue, [&](auto i, auto slot) { mine.compute(i, slot); });
        }
        took_ns = fiber::clock_ns() - began_ns;
      });
      ASSERT_TRUE(ran) << ran.what;
      bool const reached = told || depth() > 1;
      EXPECT_EQ(to_string(logs[0].result), to_string(reached ? status(fault::timed_out) : unrecovered));
      for (auto const& r : logs[0].requests) {
        bool const hangs = r.index == 4 || r.index == 5;
        EXPECT_EQ(r.detached, hangs);
        EXPECT_EQ(r.waited, !hangs);
      }
      if (told) {
        ASSERT_EQ(logs[0].computed.size(), 5u);
        EXPECT_EQ(to_string(logs[0].computed[3].told), to_string(unrecovered));
        EXPECT_EQ(to_string(logs[0].computed[4].told), to_string(fault::timed_out));
      }
      // One default time for all requests that stay away, not one for each.
      if (reached) {
        EXPECT_GE(took_ns, p.timeout_ns);
        EXPECT_LT(took_ns, p.timeout_ns + p.timeout_ns / 2);
      }
    }
  });
}

struct claimed {
  using machine = fiber;
  using index_type = std::uint32_t;
  static constexpr bool whole_warp = false;
  std::uint32_t* counter;
  std::uint32_t end;
  bool next(std::uint32_t& i) const {
    i = simt::atomic<fiber>(*counter).fetch_add(1, simt::order::relaxed);  // a number, no more
    return i < end;
  }
};

TEST(Pipeline, ARangeMayComeFromACounterThatLanesShare) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    constexpr std::uint32_t lanes = 6, count = 100;
    plan const p{.seed = seed};
    std::vector<lane_log> logs(lanes);
    std::uint32_t counter = 0;
    auto const ran = run_lanes(lanes, seed, [&] {
      lane const mine{p, logs[fiber::thread_rank()]};
      mine.log.result = pipeline<4>(
          claimed{&counter, count}, [&](auto i, auto slot) { return mine.issue(i, slot); },
          [&](auto i, auto slot) { mine.compute(i, slot); });
    });
    ASSERT_TRUE(ran) << ran.what;
    std::vector<std::uint64_t> all;
    for (lane_log const& log : logs) {
      auto const some = indices_of(log.computed);
      EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
      all.insert(all.end(), some.begin(), some.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), count);
    for (std::uint32_t i = 0; i < count; ++i) EXPECT_EQ(all[i], i);
    // Each lane stops asking once.
    EXPECT_EQ(counter, count + lanes);
  }
}

TEST(Pipeline, LanesOfAWholeWarpSeeWhatEachHasReadAndEndTogether) {
  constexpr std::uint32_t lanes = 8, depth = 3;
  enum class ending { of_lane_2, failure_of_lane_2, failed_read_of_lane_5 };
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    for (ending const how : {ending::of_lane_2, ending::failure_of_lane_2, ending::failed_read_of_lane_5}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ending " + std::to_string(static_cast<int>(how)));
      plan const p{.seed = seed};
      plan unlucky{.seed = seed + 1};
      if (how == ending::failed_read_of_lane_5) unlucky.failures = {{5, unrecovered}};
      std::vector<lane_log> logs(lanes);
      // Other lanes read what one lane's request brings: the pipeline must order it, both ways.
      simt::run_options const options{.memory = simt::memory_model::race_detector};
      auto const ran = simt::run(options, simt::random(seed), {1, lanes, 0}, [&] {
        std::uint32_t const me = fiber::thread_rank();
        lane const mine{me == 5 ? unlucky : p, logs[me]};
        mine.log.result = pipeline<depth>(
            strided_range<fiber, true>(0, 12, 1), [&](auto i, auto slot) { return mine.issue(i, slot); },
            [&](auto i, auto slot) -> status {
              for (lane_log const& log : logs) {
                fiber::check(fiber::ld(&log.slot_data[slot]) == data_of(i), "the data of all lanes is there");
              }
              mine.compute(i, slot);
              return how == ending::failure_of_lane_2 && me == 2 && i == 9 ? lba_range : status();
            });
        if (how != ending::of_lane_2) return;
        mine.log = {};
        mine.log.result = pipeline<depth>(
            strided_range<fiber, true>(0, 12, 1), [&](auto i, auto slot) { return mine.issue(i, slot); },
            [&](auto i, auto slot) {
              mine.compute(i, slot);
              return me != 2 || i != 9;
            });
      });
      ASSERT_TRUE(ran) << ran.what;
      status const result[] = {status(), lba_range, unrecovered};
      for (lane_log const& log : logs) {
        EXPECT_EQ(log.computed.size(), how == ending::failed_read_of_lane_5 ? 5u : 10u);
        EXPECT_EQ(to_string(log.result), to_string(result[static_cast<int>(how)]));
        EXPECT_EQ(log.in_flight, 0u);
      }
    }
  }
}

TEST(StridedRange, EndsWhereItsEndIsAndNeverWraps) {
  auto const all = [](std::uint64_t first, std::uint64_t end, std::uint64_t step) {
    strided_range<fiber, false> range(first, end, step);
    std::vector<std::uint64_t> seen;
    for (std::uint64_t i = 0; range.next(i);) seen.push_back(i);
    EXPECT_FALSE([&] {
      std::uint64_t i = 0;
      return range.next(i);
    }());
    return seen;
  };
  EXPECT_EQ(all(2, 9, 3), (std::vector<std::uint64_t>{2, 5, 8}));
  EXPECT_EQ(all(2, 8, 3), (std::vector<std::uint64_t>{2, 5}));
  EXPECT_EQ(all(5, 5, 1), std::vector<std::uint64_t>{});
  EXPECT_EQ(all(7, 5, 1), std::vector<std::uint64_t>{});
  EXPECT_EQ(all(never - 3, never, 2), (std::vector<std::uint64_t>{never - 3, never - 1}));
  std::vector<std::uint32_t> threads(150), warps(150);
  auto const ran = simt::run({}, simt::round_robin(), {2, 64, 0}, [&] {
    auto mine = grid_stride<fiber>(150);
    for (std::uint64_t i = 0; mine.next(i);) ++threads[i];
    auto ours = warp_stride<fiber>(150);
    for (std::uint64_t i = 0; ours.next(i);) {
      fiber::check(i % 4 == fiber::thread_rank() / 32, "a warp has every fourth index");
      simt::atomic<fiber>(warps[i]).fetch_add(1, simt::order::relaxed);  // a count
    }
  });
  ASSERT_TRUE(ran) << ran.what;
  EXPECT_EQ(threads, std::vector<std::uint32_t>(150, 1));
  EXPECT_EQ(warps, std::vector<std::uint32_t>(150, 32));
}

TEST(TokenGroup, WaitsForAllAndTellsTheFirstFailureOrThatOneStaysAway) {
  plan const p{.latency_max_ns = 900, .timeout_ns = 1000, .failures = {{1, unrecovered}, {2, lba_range}}, .hang = {9}};
  auto const ran = run_lanes(1, 1, [&] {
    lane_log log;
    lane const mine{p, log};
    token_array<model_token, 4> several;
    fiber::check(several.wait().ok(), "nothing to wait for");
    several[0] = mine.issue(0, 0);
    several[1] = mine.issue(1, 1);
    several[3] = mine.issue(2, 2);
    fiber::check(several.wait() == unrecovered && log.in_flight == 0, "the first failure");
    auto joined = join(mine.issue(3, 3), mine.issue(9, 4), mine.issue(2, 5));
    fiber::check(joined.wait(fiber::clock_ns() + 5000) == status(fault::timed_out), "one stays away");
    joined.detach();
    fiber::check(log.requests[4].detached && log.in_flight == 1, "which is given up, and no other");
  });
  EXPECT_TRUE(ran) << ran.what;
}

}  // namespace
}  // namespace forebay
