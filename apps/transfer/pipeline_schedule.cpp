// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/pipeline_schedule.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace forebay::transfer {
namespace {

lane lane_of(pipeline_arm arm, step_kind what) {
  bool const overlaps_all = arm == pipeline_arm::triple_buffering;
  switch (what) {
    case step_kind::allocate:
    case step_kind::release:
      switch (arm) {
        case pipeline_arm::pool_threshold_0:
        case pipeline_arm::pool_threshold_max:
          return lane::work;
        case pipeline_arm::pool_side_stream:
          return lane::side;
        case pipeline_arm::host_thread:
          // cudaFree waits for the GPU. Beside the next job the helper would be held up until that one has ended.
          return what == step_kind::allocate ? lane::helper : lane::host;
        case pipeline_arm::malloc:
        case pipeline_arm::triple_buffering:
          break;
      }
      return lane::host;
    case step_kind::fill:
      return overlaps_all ? lane::in : lane::work;
    case step_kind::run:
      return lane::work;
    case step_kind::fetch:
      return overlaps_all ? lane::out : lane::work;
    case step_kind::deliver:
      break;
  }
  return lane::host;
}

/// Adds steps with what they wait for. The rules are the same in all arms.
class schedule {
 public:
  schedule(pipeline_arm arm, std::uint32_t jobs)
      : arm_(arm),
        sets_(std::min(facts_of(arm).sets, jobs)),
        outputs_(std::min(facts_of(arm).outputs, jobs)),
        of_set_(sets_),
        of_job_(jobs) {}

  void add(step_kind what, std::uint32_t job) {
    set_steps& set = of_set_[job % sets_];
    steps_.push_back({what, job, job % sets_, lane_of(arm_, what), {}});
    switch (what) {
      case step_kind::allocate:
        after(set.release);
        set.fetch.reset();
        set.allocate = place();
        break;
      case step_kind::fill:
        after(set.allocate);
        after(set.fetch);  // of the job that had the set before
        of_job_[job].fill = place();
        break;
      case step_kind::run:
        after(of_job_[job].fill);
        of_job_[job].run = place();
        break;
      case step_kind::fetch:
        after(of_job_[job].run);
        if (job >= outputs_) after(of_job_[job - outputs_].deliver);
        set.fetch = of_job_[job].fetch = place();
        break;
      case step_kind::deliver:
        after(of_job_[job].fetch);
        // The job has ended when its memory is free: else a pool would give it back at some later job's end.
        if (lane_of(arm_, step_kind::release) == lane::work) after(set.release);
        of_job_[job].deliver = place();
        break;
      case step_kind::release:
        after(set.fetch);
        set.release = place();
        break;
    }
  }
  std::vector<step> steps() && { return std::move(steps_); }

 private:
  using place_of = std::optional<std::uint32_t>;
  struct set_steps {
    place_of allocate, fetch, release;
  };
  struct job_steps {
    place_of fill, run, fetch, deliver;
  };

  std::uint32_t place() const { return static_cast<std::uint32_t>(steps_.size() - 1); }
  void after(place_of earlier) {
    if (earlier) steps_.back().after.push_back(*earlier);
  }

  pipeline_arm arm_;
  std::uint32_t sets_, outputs_;
  std::vector<set_steps> of_set_;
  std::vector<job_steps> of_job_;
  std::vector<step> steps_;
};

void add_work(schedule& to, std::uint32_t job) {
  to.add(step_kind::fill, job);
  to.add(step_kind::run, job);
  to.add(step_kind::fetch, job);
}

/// One job, and then the next.
void add_apart(schedule& to, std::uint32_t jobs, bool release_is_queued) {
  for (std::uint32_t job = 0; job < jobs; ++job) {
    to.add(step_kind::allocate, job);
    add_work(to, job);
    to.add(release_is_queued ? step_kind::release : step_kind::deliver, job);
    to.add(release_is_queued ? step_kind::deliver : step_kind::release, job);
  }
}

/// Memory of the next job is taken when a job is under way, so that calls that take long hold up nothing.
void add_with_next(schedule& to, std::uint32_t jobs, bool release_is_queued) {
  to.add(step_kind::allocate, 0);
  for (std::uint32_t job = 0; job < jobs; ++job) {
    add_work(to, job);
    if (job + 1 < jobs) to.add(step_kind::allocate, job + 1);
    to.add(release_is_queued ? step_kind::release : step_kind::deliver, job);
    to.add(release_is_queued ? step_kind::deliver : step_kind::release, job);
  }
}

void add_overlapped(schedule& to, std::uint32_t jobs, arm_facts const& facts) {
  std::uint32_t const sets = std::min(facts.sets, jobs), outputs = std::min(facts.outputs, jobs);
  for (std::uint32_t job = 0; job < jobs; ++job) {
    if (job < sets) to.add(step_kind::allocate, job);
    to.add(step_kind::fill, job);
    to.add(step_kind::run, job);
    if (job >= outputs) to.add(step_kind::deliver, job - outputs);
    to.add(step_kind::fetch, job);
  }
  for (std::uint32_t job = jobs - outputs; job < jobs; ++job) to.add(step_kind::deliver, job);
  for (std::uint32_t job = jobs - sets; job < jobs; ++job) to.add(step_kind::release, job);
}

}  // namespace

arm_facts facts_of(pipeline_arm arm) {
  switch (arm) {
    case pipeline_arm::malloc:
      break;
    case pipeline_arm::pool_threshold_0:
      return {1, 1, true, "cudaMallocAsync, cudaFreeAsync; the pool keeps nothing"};
    case pipeline_arm::pool_threshold_max:
      return {1, 1, true, "cudaMallocAsync, cudaFreeAsync; the pool keeps everything"};
    case pipeline_arm::pool_side_stream:
      return {2, 1, true, "the same, in a stream beside the job, for the next job and the last"};
    case pipeline_arm::host_thread:
      return {2, 1, false, "another thread of the host takes the next job's memory meanwhile"};
    case pipeline_arm::triple_buffering:
      return {3, 2, false, "three sets of buffers: input, kernels and results of three jobs overlap"};
  }
  return {1, 1, false, "each job takes its memory, and gives it back before the next"};
}

std::vector<step> schedule_of(pipeline_arm arm, std::uint32_t jobs) {
  schedule steps(arm, jobs);
  switch (arm) {
    case pipeline_arm::malloc:
      add_apart(steps, jobs, false);
      break;
    case pipeline_arm::pool_threshold_0:
    case pipeline_arm::pool_threshold_max:
      add_apart(steps, jobs, true);
      break;
    case pipeline_arm::pool_side_stream:
      add_with_next(steps, jobs, true);
      break;
    case pipeline_arm::host_thread:
      add_with_next(steps, jobs, false);
      break;
    case pipeline_arm::triple_buffering:
      add_overlapped(steps, jobs, facts_of(arm));
      break;
  }
  return std::move(steps).steps();
}

std::vector<bool> awaited_steps(std::span<step const> steps) {
  std::vector<bool> awaited(steps.size(), false);
  for (step const& s : steps) {
    for (std::uint32_t const earlier : s.after) {
      if (steps[earlier].at != s.at) awaited[earlier] = true;
    }
  }
  return awaited;
}

}  // namespace forebay::transfer
