// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cost of the CPU executor: `simt_executor_bench --json FILE`. These are the numbers of
//! docs/internals/executor.md.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/run.hpp"

namespace {

namespace simt = forebay::simt;
using simt::fiber;
using simt::native;
using simt::order;

double elapsed_ns(std::uint64_t since_ns) {
  return static_cast<double>(native::clock_ns() - since_ns);
}

/// ns from a lane's unmet wait to the next lane's, all lanes on one OS thread.
double switch_ns(std::uint32_t lanes) {
  std::uint32_t const turns = 8'000'000 / lanes;
  std::uint64_t start_ns = 0, end_ns = 0;
  simt::launch<fiber>(
      {(lanes + 1023) / 1024, std::min(lanes, 1024u), 0},
      [&] {
        if (start_ns == 0) start_ns = native::clock_ns();
        for (std::uint32_t i = 0; i < turns; ++i) {
          bool looked = false;
          static_cast<void>(fiber::wait_until([&] { return std::exchange(looked, true); }, simt::no_deadline));
        }
        end_ns = native::clock_ns();
      },
      {.os_threads = 1});
  return static_cast<double>(end_ns - start_ns) / (static_cast<double>(turns) * lanes);
}

/// us to start and end `lanes` lanes that do nothing.
double launch_us(std::uint32_t lanes) {
  std::uint64_t const start_ns = native::clock_ns();
  simt::launch<fiber>({lanes / 256, 256, 0}, [] {}, {.os_threads = 1});
  return elapsed_ns(start_ns) / 1000;
}

/// Median delay, us, from an answer `after_us` later by another thread until a waiting lane sees it.
double seen_after_us(std::uint64_t after_us) {
  std::vector<double> delays;
  for (int i = 0; i < 101; ++i) {
    std::uint32_t asked = 0, answered = 0;
    std::uint64_t answered_ns = 0, seen_ns = 0;
    std::jthread const server([&] {
      auto wait = [](auto&& predicate, std::uint64_t deadline_ns) {
        static_cast<void>(native::wait_until(predicate, deadline_ns));
      };
      // Pairs with the release of the question; the release of the answer with the acquire of the lanes.
      wait([&] { return simt::atomic<native>(asked).load(order::acquire) != 0; }, simt::no_deadline);
      wait([] { return false; }, native::clock_ns() + after_us * 1000);
      answered_ns = native::clock_ns();
      simt::atomic<native>(answered).store(1, order::release);
    });
    simt::launch<fiber>(
        {1, 32, 0},
        [&] {
          simt::atomic<fiber>(asked).store(1, order::release);
          static_cast<void>(fiber::wait_until([&] { return simt::atomic<fiber>(answered).load(order::acquire) != 0; },
                                              simt::no_deadline));
          if (fiber::thread_rank() == 0) seen_ns = native::clock_ns();
        },
        {.os_threads = 1});
    delays.push_back(static_cast<double>(seen_ns - answered_ns) / 1000);
  }
  std::nth_element(delays.begin(), delays.begin() + 50, delays.end());
  return delays[50];
}

/// ns a scheduling point of a scheduled run of 64 lanes, half of them atomic and half plain accesses.
double step_ns(simt::memory_model memory, simt::scheduler& schedule) {
  std::vector<std::uint64_t> words(64);
  std::uint64_t const start_ns = native::clock_ns();
  std::uint64_t steps = 0;
  for (int i = 0; i < 20; ++i)
    steps += simt::run({.memory = memory, .record = false}, schedule, {2, 32, 0}, [&] {
               std::uint64_t own = 0;
               for (std::uint32_t k = 0; k < 100; ++k) {
                 simt::atomic<fiber>(words[(fiber::thread_rank() + k) % 64]).fetch_add(1, order::acq_rel);
                 fiber::st(&own, fiber::ld(&own) + k);
               }
             }).steps;
  return elapsed_ns(start_ns) / static_cast<double>(steps);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "--json") != 0) {
    std::fprintf(stderr, "usage: %s --json FILE\n", argv[0]);
    return 2;
  }
  std::FILE* const out = std::strcmp(argv[2], "-") == 0 ? stdout : std::fopen(argv[2], "w");
  if (out == nullptr) {
    std::fprintf(stderr, "--json: '%s': cannot be written\n", argv[2]);
    return 2;
  }
  std::fprintf(out, "{\"schema_version\": 1, \"processors\": %u,\n", std::thread::hardware_concurrency());
  for (std::uint32_t const lanes : {32u, 1024u, 16384u})
    std::fprintf(out, " \"switch_%u_lanes_ns\": %.1f,\n", lanes, switch_ns(lanes));
  std::fprintf(out, " \"launch_16384_lanes_us\": %.0f,\n", launch_us(16384));
  for (std::uint64_t const us : {50u, 500u, 5000u})
    std::fprintf(out, " \"answer_after_%u_us_seen_after_us\": %.1f,\n", static_cast<unsigned>(us), seen_after_us(us));
  constexpr char const* names[] = {"sequential", "store_buffers", "race_detector", "stale_reads"};
  for (std::size_t i = 0; i < 4; ++i) {
    simt::random spread(1, 1), sticky(1);
    simt::pct priorities(1, 3, 20'000);
    auto const memory = static_cast<simt::memory_model>(i);
    double const random_ns = step_ns(memory, spread), sticky_ns = step_ns(memory, sticky);
    std::fprintf(out, " \"step_%s_ns\": {\"random\": %.0f, \"sticky\": %.0f, \"pct\": %.0f}%s\n", names[i], random_ns,
                 sticky_ns, step_ns(memory, priorities), i == 3 ? "}" : ",");
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
