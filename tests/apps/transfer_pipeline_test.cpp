// SPDX-License-Identifier: Apache-2.0
//! \file
//! The order of jobs in each arm of the pipeline, executed by lanes whose steps take random times; and what the jobs
//! share on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/transfer/helper_thread.hpp"
#include "apps/transfer/job_data.hpp"
#include "apps/transfer/pipeline_schedule.hpp"
#include "forebay/error.hpp"
#include "support/seed.hpp"

namespace forebay::transfer {
namespace {

using std::uint32_t;
using std::uint64_t;

struct span_of_time {
  uint64_t begin, end;
};

/// Lanes in virtual time: what a GPU, its streams and two threads of the host do, with given durations.
class virtual_lanes {
 public:
  virtual_lanes(std::vector<step> const& steps, std::vector<uint64_t> const& durations)
      : steps_(steps), durations_(durations), times_(steps.size()) {}

  void perform(uint32_t at) {
    lane const here = steps_[at].at;
    uint64_t& free = free_[static_cast<uint32_t>(here)];
    uint64_t const begin = std::max(free, now_);  // not before the host comes to it
    free = begin + durations_[at];
    times_[at] = {begin, free};
    if (here == lane::host) now_ = free;
  }
  void order(lane later, uint32_t at) {
    uint64_t& free = free_[static_cast<uint32_t>(later)];
    free = std::max(free, times_[at].end);
  }
  void wait(uint32_t at) { now_ = std::max(now_, times_[at].end); }

  std::vector<span_of_time> const& times() const { return times_; }
  uint64_t end() const { return std::max(now_, *std::max_element(free_.begin(), free_.end())); }

 private:
  std::vector<step> const& steps_;
  std::vector<uint64_t> const& durations_;
  std::vector<span_of_time> times_;
  std::array<uint64_t, lane_count> free_{};
  uint64_t now_ = 0;  ///< of the host
};

/// What is wrong with an execution, or "". It looks only at what the steps are and when they were.
class inspection {
 public:
  inspection(pipeline_arm arm, uint32_t jobs, std::vector<step> const& steps, std::vector<span_of_time> const& times)
      : facts_(facts_of(arm)), jobs_(jobs), steps_(steps), times_(times) {}

  std::string result() {
    sort_out();
    for (uint32_t job = 0; job < jobs_; ++job) look_at_job(job);
    look_at_sets();
    return wrong_;
  }

 private:
  struct tenure {  ///< of memory, by a set
    span_of_time allocate, release;
  };

  void note(bool holds, std::string const& text) {
    if (!holds && wrong_.empty()) wrong_ = text;
  }
  void sort_out() {
    for (uint32_t at = 0; at < steps_.size(); ++at) {
      step const& s = steps_[at];
      if (s.what == step_kind::allocate) {
        tenures_[s.set].push_back({times_[at], {}});
      } else if (s.what == step_kind::release) {
        tenures_[s.set].back().release = times_[at];
        released_[s.job] = times_[at];
      } else {
        bool const is_first = of_job_[s.what].emplace(s.job, at).second;
        note(is_first, "a job does a step twice");
      }
    }
  }
  span_of_time when(step_kind what, uint32_t job) {
    auto const found = of_job_[what].find(job);
    note(found != of_job_[what].end(), "a job lacks a step");
    return found == of_job_[what].end() ? span_of_time{} : times_[found->second];
  }
  void look_at_job(uint32_t job) {
    span_of_time const fill = when(step_kind::fill, job), run = when(step_kind::run, job),
                       fetch = when(step_kind::fetch, job), deliver = when(step_kind::deliver, job);
    if (!wrong_.empty()) return;
    note(fill.end <= run.begin, "kernels run before their input is there");
    note(run.end <= fetch.begin, "results are fetched before kernels have ended");
    note(fetch.end <= deliver.begin, "results are used before they are there");
    uint32_t const set = steps_[of_job_[step_kind::fill][job]].set;
    for (step_kind const what : {step_kind::run, step_kind::fetch}) {
      note(steps_[of_job_[what][job]].set == set, "a job changes its buffers");
    }
    auto const has_memory = [&](tenure const& t) {
      return t.allocate.end <= fill.begin && fetch.end <= t.release.begin;
    };
    note(std::count_if(tenures_[set].begin(), tenures_[set].end(), has_memory) == 1,
         "a job uses buffers before they are allocated, or after they are freed");
    for (uint32_t other = 0; other < job; ++other) {
      if (steps_[of_job_[step_kind::fill][other]].set != set) continue;
      note(when(step_kind::fetch, other).end <= fill.begin, "two jobs have one set of buffers");
    }
    if (job >= facts_.outputs) {
      note(when(step_kind::deliver, job - facts_.outputs).end <= fetch.begin, "results replace others that are in use");
    }
    if (facts_.is_pool && released_.contains(job) && facts_.sets == 1) {
      note(released_[job].end <= deliver.begin, "a job has ended, and its memory is not free");
    }
  }
  void look_at_sets() {
    note(tenures_.size() == std::min(facts_.sets, jobs_), "there are other sets than the arm has");
    for (auto const& [set, all] : tenures_) {
      for (std::size_t i = 0; i + 1 < all.size(); ++i) {
        note(all[i].release.end <= all[i + 1].allocate.begin, "a set is allocated twice");
      }
      note(all.back().release.end != 0, "a set is never freed");
    }
  }

  arm_facts facts_;
  uint32_t jobs_;
  std::vector<step> const& steps_;
  std::vector<span_of_time> const& times_;
  std::map<step_kind, std::map<uint32_t, uint32_t>> of_job_;
  std::map<uint32_t, std::vector<tenure>> tenures_;
  std::map<uint32_t, span_of_time> released_;
  std::string wrong_;
};

std::string wrong_with(pipeline_arm arm, uint32_t jobs, std::vector<step> const& steps,
                       std::vector<uint64_t> const& durations) {
  virtual_lanes lanes(steps, durations);
  execute(steps, lanes);
  return inspection(arm, jobs, steps, lanes.times()).result();
}

/// Mostly short, some very long: from 1 to 2^20.
std::vector<uint64_t> random_durations(std::size_t count, std::mt19937_64& random) {
  std::vector<uint64_t> all(count);
  for (uint64_t& one : all) one = uint64_t{1} << random() % 21;
  return all;
}

/// Whether step `at` starts after `earlier` has ended whatever the steps' durations are. Follows what lanes, the host
/// and waits do on their own, without the code under test.
bool is_implied(std::vector<step> const& steps, uint32_t earlier, uint32_t at) {
  std::vector<bool> ended_before(steps.size(), false);  // known to begin after `earlier` has ended
  bool host_is_after = steps[earlier].at == lane::host;
  for (uint32_t i = earlier + 1; i <= at; ++i) {
    bool is_after = steps[i].at == steps[earlier].at || host_is_after;
    for (uint32_t j = earlier + 1; j < i; ++j) {
      if (ended_before[j] && steps[j].at == steps[i].at) is_after = true;
    }
    for (uint32_t const d : steps[i].after) {
      if (d != earlier && !(d > earlier && ended_before[d])) continue;
      is_after = true;
      if (!(is_stream(steps[i].at) && is_stream(steps[d].at))) host_is_after = true;
    }
    if (is_after && steps[i].at == lane::host) host_is_after = true;
    ended_before[i] = is_after;
  }
  return ended_before[at];
}

class TransferPipeline : public ::testing::TestWithParam<pipeline_arm> {
 protected:
  uint64_t const seed_ = emulator::testing::test_seed();
  ::testing::ScopedTrace const how_to_replay_{__FILE__, __LINE__, emulator::testing::replay(seed_)};
};

TEST_P(TransferPipeline, KeepsEachJobWholeWhateverStepsTake) {
  std::mt19937_64 random(seed_);
  for (uint32_t const jobs : {1u, 2u, 3u, 4u, 5u, 16u}) {
    std::vector<step> const steps = schedule_of(GetParam(), jobs);
    for (int run = 0; run < 300; ++run) {
      ASSERT_EQ(wrong_with(GetParam(), jobs, steps, random_durations(steps.size(), random)), "")
          << jobs << " jobs, run " << run;
    }
  }
}

TEST_P(TransferPipeline, NeedsEachWaitThatNothingElseImplies) {
  constexpr uint32_t jobs = 7;
  std::mt19937_64 random(seed_);
  std::vector<step> const steps = schedule_of(GetParam(), jobs);
  uint32_t needed = 0;
  for (uint32_t at = 0; at < steps.size(); ++at) {
    for (std::size_t i = 0; i < steps[at].after.size(); ++i) {
      std::vector<step> mutant = steps;
      uint32_t const earlier = steps[at].after[i];
      mutant[at].after.erase(mutant[at].after.begin() + static_cast<std::ptrdiff_t>(i));
      std::vector<uint64_t> durations = random_durations(steps.size(), random);
      durations[earlier] = uint64_t{1} << 40;
      bool const is_caught = !wrong_with(GetParam(), jobs, mutant, durations).empty();
      EXPECT_EQ(is_caught, !is_implied(mutant, earlier, at)) << "step " << at << " after " << earlier;
      needed += is_caught ? 1 : 0;
    }
  }
  EXPECT_GE(needed, jobs);
}

/// How long all jobs take if the steps of each kind take so long.
uint64_t length_of(pipeline_arm arm, uint32_t jobs, std::map<step_kind, uint64_t> const& taken) {
  std::vector<step> const steps = schedule_of(arm, jobs);
  std::vector<uint64_t> durations;
  for (step const& s : steps) {
    auto const found = taken.find(s.what);
    durations.push_back(found == taken.end() ? 0 : found->second);
  }
  virtual_lanes lanes(steps, durations);
  execute(steps, lanes);
  return lanes.end();
}

TEST(TransferPipelineArms, OverlapWhatTheyPromise) {
  std::map<step_kind, uint64_t> const work{{step_kind::fill, 10}, {step_kind::run, 10}, {step_kind::fetch, 10}};
  for (pipeline_arm const arm : all_arms) {
    SCOPED_TRACE(arm_names[static_cast<int>(arm)]);
    bool const overlaps = arm == pipeline_arm::triple_buffering;
    EXPECT_EQ(length_of(arm, 16, work), overlaps ? 10u * (16 + 2) : 16u * 30);
  }
  std::map<step_kind, uint64_t> slow_memory = work;
  slow_memory[step_kind::allocate] = 20;
  for (pipeline_arm const arm :
       {pipeline_arm::malloc, pipeline_arm::pool_threshold_0, pipeline_arm::pool_threshold_max}) {
    EXPECT_EQ(length_of(arm, 16, slow_memory), 16u * 50);
  }
  // All allocations but the first are hidden.
  EXPECT_EQ(length_of(pipeline_arm::pool_side_stream, 16, slow_memory), 20 + 16u * 30);
  EXPECT_EQ(length_of(pipeline_arm::host_thread, 16, slow_memory), 20 + 16u * 30);
  slow_memory[step_kind::release] = 5;
  EXPECT_EQ(length_of(pipeline_arm::pool_side_stream, 16, slow_memory), 20 + 16u * 30 + 5);
  // The thread that takes memory holds up no release.
  slow_memory[step_kind::allocate] = 40;
  EXPECT_EQ(length_of(pipeline_arm::host_thread, 16, slow_memory), 40 + 15u * 40 + 30 + 5);
}

TEST(TransferPipelineArms, SayWhichStepsAreAwaited) {
  std::vector<step> const steps = schedule_of(pipeline_arm::triple_buffering, 4);
  std::vector<bool> const awaited = awaited_steps(steps);
  for (uint32_t at = 0; at < steps.size(); ++at) {
    if (!is_stream(steps[at].at)) continue;
    bool const is_last = std::none_of(steps.begin(), steps.end(), [&](step const& s) {
      return s.at != steps[at].at && std::find(s.after.begin(), s.after.end(), at) != s.after.end();
    });
    EXPECT_EQ(awaited[at], !is_last) << at;
    EXPECT_TRUE(awaited[at]) << "in this arm each stream hands on to another lane";
  }
}

/// Adds its input to a buffer that it reads and writes.
class sums final : public workload {
 public:
  static constexpr uint64_t count = (uint64_t{3} << 18) + 1;  // of 4 bytes: several parts of a hash, and a bit

  workload_facts const& facts() const override { return facts_; }
  launch_shape shape() const override { return {}; }
  std::vector<buffer> buffers() const override {
    return {{"a", count * 4, buffer_use::in},
            {"b", count * 4, buffer_use::in_out},
            {"partial", 64, buffer_use::scratch},
            {"c", 12, buffer_use::out}};
  }
  workload_costs costs() const override { return {}; }
  void init(uint64_t seed, views host) const override {
    for (uint64_t i = 0; i < count; ++i) host.at<uint32_t>(0)[i] = host.at<uint32_t>(1)[i] = uint32_t(seed + i);
  }
  std::string mismatch(uint64_t seed, views host) const override {
    for (uint64_t i = 0; i < count; ++i) {
      EXPECT_EQ(host.at<uint32_t>(0)[i], uint32_t(seed + i)) << "the input has changed";
      if (host.at<uint32_t>(1)[i] != 2 * uint32_t(seed + i)) return "b[" + std::to_string(i) + "]";
    }
    return host.at<uint32_t>(3)[2] == 5 ? "" : "c[2]";
  }
  void run_on_cpu(stage_kind, views) const override {}
  void start_on_gpu(stage_kind, views, CUstream_st*) const override {}

  /// What a job does, with the memory of `data`.
  static void run(job_data const& data, uint32_t place) {
    auto const* const a = reinterpret_cast<uint32_t const*>(data.input(0));
    auto const* const before = reinterpret_cast<uint32_t const*>(data.input(1));
    auto* const b = reinterpret_cast<uint32_t*>(data.output(place, 1));
    for (uint64_t i = 0; i < count; ++i) b[i] = before[i] + a[i];
    reinterpret_cast<uint32_t*>(data.output(place, 3))[2] = 5;
    std::memset(data.output(place, 2), static_cast<int>(place), 64);  // scratch may differ
  }

 private:
  workload_facts facts_{"sums", workload_group::micro, "", ""};
};

TEST(TransferJobData, ComparesEachResult) {
  sums const work;
  uint32_t made = 0;
  job_data data(work, 3, [&](uint64_t bytes) {
    ++made;
    return std::shared_ptr<std::byte>(new std::byte[bytes]{}, std::default_delete<std::byte[]>());
  });
  data.prepare(2);
  data.prepare(1);
  EXPECT_EQ(made, 2u + 2 * 3) << "two inputs, and twice all that is not only read";
  for (uint32_t const place : {0u, 1u}) {
    data.forget(place);
    EXPECT_EQ(data.mismatch(place, true), "b[0]");
  }
  for (uint32_t job = 0; job < 6; ++job) {
    data.forget(job % 2);
    sums::run(data, job % 2);
    EXPECT_EQ(data.mismatch(job % 2, true), "");
  }
  EXPECT_EQ(data.compared(), 3u) << "two that were wrong, and the first that was right";

  for (uint64_t const at : {uint64_t{0}, uint64_t{1} << 18, sums::count - 1}) {
    uint32_t& word = reinterpret_cast<uint32_t*>(data.output(0, 1))[at];
    ++word;
    EXPECT_EQ(data.mismatch(0, true), "b[" + std::to_string(at) + "]");
    --word;
  }
  constexpr std::uint64_t mib = 1 << 20;
  std::byte* const b = data.output(0, 1);
  std::swap_ranges(b, b + mib, b + mib);
  EXPECT_EQ(data.mismatch(0, true), "b[0]");
  std::swap_ranges(b, b + mib, b + mib);
  data.output(1, 3)[8] = std::byte{6};
  EXPECT_EQ(data.mismatch(1, true), "c[2]");
  EXPECT_EQ(data.mismatch(0, true), "");
}

TEST(TransferJobData, RefusesResultsThatAreRightInAnotherWayIfEachBitCounts) {
  sums const work;
  job_data data(work, 3, [&](uint64_t bytes) {
    return std::shared_ptr<std::byte>(new std::byte[bytes]{}, std::default_delete<std::byte[]>());
  });
  data.prepare(1);
  sums::run(data, 0);
  EXPECT_EQ(data.mismatch(0, true), "");
  data.output(0, 3)[0] = std::byte{7};  // of which the workload says nothing
  EXPECT_EQ(data.mismatch(0, false), "");
  EXPECT_EQ(data.compared(), 2u);
  EXPECT_EQ(data.mismatch(0, true), "the results differ from those of another job");
}

TEST(TransferHelperThread, DoesCallsInOrderAndKeepsTheirErrors) {
  std::vector<int> done;
  helper_thread helper;
  auto const one = helper.start([&] {
    done.push_back(1);
    return 1.5;
  });
  auto const two = helper.start([&]() -> double {
    done.push_back(2);
    throw operation_failed("no memory");
  });
  auto const three = helper.start([&] {
    done.push_back(3);
    return 3.5;
  });
  EXPECT_EQ(three.get(), 3.5);
  EXPECT_THAT(done, ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(one.get(), 1.5);
  EXPECT_EQ(one.get(), 1.5) << "again";
  EXPECT_THROW(two.get(), operation_failed);
}

INSTANTIATE_TEST_SUITE_P(Arms, TransferPipeline, ::testing::ValuesIn(all_arms),
                         [](auto const& test) { return std::string(arm_names[static_cast<int>(test.param)]); });

}  // namespace
}  // namespace forebay::transfer
