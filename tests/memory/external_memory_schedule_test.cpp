// SPDX-License-Identifier: Apache-2.0
//! \file
//! Threads that use one external memory at the same time: no bound of it gives way, whatever comes in between. A model
//! whose accesses are not atomic must be caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/external_memory.hpp"
#include "support/schedules.hpp"

namespace forebay::memory {
namespace {

/// Reads and writes a word in two steps.
struct torn : simt::fiber {
  template <simt::word T, simt::scope S>
  class atomic_ref {
   public:
    explicit atomic_ref(T& object) : whole_(object) {}
    T load(simt::order o) const { return whole_.load(o); }
    void store(T value, simt::order o) const { whole_.store(value, o); }
    T fetch_add(T value, simt::order o) const {
      T const before = whole_.load(o);
      whole_.store(before + value, o);
      return before;
    }
    T fetch_max(T value, simt::order o) const {
      T const before = whole_.load(o);
      if (value > before) whole_.store(value, o);
      return before;
    }
    bool compare_exchange(T& expected, T desired, simt::order o) const {
      return whole_.compare_exchange(expected, desired, o);
    }

   private:
    simt::fiber::atomic_ref<T, S> whole_;
  };
};

struct seen_request {
  std::uint64_t came_ns, done_ps;
};

constexpr std::uint32_t lanes = 12, requests_each = 6;
constexpr std::uint64_t latency_ps = 2'000'000;

enum class bounded_by : std::uint8_t { slots, link, devices, all };
/// Twelve seeds have every scheduler with every memory model.
bounded_by kind_of(std::uint64_t seed) {
  return static_cast<bounded_by>(seed / 12 % 4);
}

external_memory_options options_of(bounded_by kind) {
  external_memory_options options;
  options.latency_us = 2;
  options.devices = 2;
  bool const all = kind == bounded_by::all;
  options.outstanding = all || kind == bounded_by::slots ? 5 : 0;
  options.link_bytes_per_second = all || kind == bounded_by::link ? 1e9 : 0;
  options.iops = all || kind == bounded_by::devices ? 10e6 : 0;
  return options;
}

/// What is wrong with the requests of a run; empty if nothing is.
std::string judge(bounded_by kind, std::vector<seen_request> seen) {
  external_memory_options const options = options_of(kind);
  std::sort(seen.begin(), seen.end(), [](auto const& a, auto const& b) { return a.done_ps < b.done_ps; });
  for (std::size_t i = 0; i < seen.size(); ++i) {
    auto const since = [&](std::size_t before) { return seen[i].done_ps - seen[i - before].done_ps; };
    if (seen[i].done_ps < seen[i].came_ns * 1000 + latency_ps) return "a request took less than the latency";
    if (options.outstanding != 0 && i >= options.outstanding && since(options.outstanding) < latency_ps) {
      return "more requests were in flight than may be";
    }
    // Each has 32 bytes. What waits for a slot may begin together.
    if (kind == bounded_by::link && i != 0 && since(1) < 32'000) return "two requests were on the link together";
    // Of three, two are on one of the two devices.
    if (kind == bounded_by::devices && i >= 2 && since(2) < 100'000) return "a device served two requests together";
  }
  return "";
}

template <class M, bool Counts>
std::string outcome_of(bounded_by kind, simt::memory_model model, simt::scheduler& schedule) {
  external_memory memory(options_of(kind), host());
  auto const ref = memory.ref<M, Counts>();
  std::vector<seen_request> seen(lanes * requests_each);
  simt::run_options how;
  how.memory = model;
  how.record = false;
  auto const result = simt::run(how, schedule, {.blocks = 1, .threads_per_block = lanes}, [&] {
    auto const port = ref.at(0);
    for (std::uint32_t i = 0; i < requests_each; ++i) {
      std::uint32_t const mine = M::thread_rank() * requests_each + i;
      seen[mine].came_ns = M::clock_ns();
      auto const read = port.issue(std::uint64_t{mine} * 32, 4);
      seen[mine].done_ps = read.done_ps;
      if (M::choose(2) == 0) port.wait(read);
    }
  });
  if (!result.ok) return result.what;
  if (Counts && memory.counts().requests != seen.size()) return "a request was not counted";
  // Times of the model began at or before the time at which the first request came.
  std::uint64_t begin_ns = ~std::uint64_t{0};
  for (auto const& request : seen) begin_ns = std::min(begin_ns, request.came_ns);
  for (auto& request : seen) request.came_ns -= begin_ns;
  return judge(kind, seen);
}

TEST(external_memory_schedules, no_bound_gives_way) {
  emulator::testing::explore([](std::uint64_t seed, simt::memory_model model, simt::scheduler& schedule) {
    std::string const outcome = outcome_of<simt::fiber, true>(kind_of(seed), model, schedule);
    ASSERT_EQ(outcome, "");
  });
}

TEST(external_memory_schedules, find_accesses_that_are_not_atomic) {
  for (bounded_by const kind : {bounded_by::slots, bounded_by::link, bounded_by::devices, bounded_by::all}) {
    bool caught = false;
    for (std::uint64_t seed = 0; seed < 360 && !caught; ++seed) {
      if (kind_of(seed) != kind) continue;
      emulator::testing::with_schedule(seed, [&](simt::memory_model model, simt::scheduler& schedule) {
        caught = !outcome_of<torn, false>(kind, model, schedule).empty();
      });
    }
    EXPECT_TRUE(caught) << "options " << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace forebay::memory
