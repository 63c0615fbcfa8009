// SPDX-License-Identifier: Apache-2.0
//! \file
//! External memory whose data are read while it waits: in fast memory, or across a link of which the time is not known
//! before. And waits on a GPU, whose common clock ticks seldom.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/virtual_time.hpp"
#include "forebay/error.hpp"
#include "forebay/external_memory.hpp"

namespace forebay::memory {
namespace {

using machine = forebay::testing::virtual_time;

constexpr std::uint64_t us = 1'000'000;  // in picoseconds

/// Data that come `real_ns` after they were asked for.
struct data_under_way {
  std::uint64_t real_ns;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  std::vector<std::uint64_t> began_ns;
  std::uint64_t come_ns = 0;

  void start(std::uint64_t begin, std::uint64_t end) {
    ranges.emplace_back(begin, end);
    began_ns.push_back(machine::now_ns);
    come_ns = machine::now_ns + real_ns;
  }
  void finish() { machine::now_ns = std::max(machine::now_ns, come_ns); }
};

external_memory_options pinned(double latency_us, std::uint32_t outstanding) {
  external_memory_options options;
  options.mode = external_mode::pinned;
  options.latency_us = latency_us;
  options.outstanding = outstanding;
  return options;
}

struct external_memory_data : ::testing::Test {
  void SetUp() override {
    machine::now_ns = 1'000'000;
    machine::before_waiting = nullptr;
  }
};

TEST_F(external_memory_data, of_fast_memory_come_within_the_latency) {
  external_memory_options options;
  options.latency_us = 2;
  options.request_max_bytes = 64;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  data_under_way data{400, {}, {}};
  std::uint64_t const before_ns = machine::now_ns;
  ref.at().load(40, 200, data);
  EXPECT_EQ(machine::now_ns - before_ns, 2000u);
  EXPECT_EQ(data.ranges, (decltype(data.ranges){{32, 256}})) << "whole blocks";
  EXPECT_EQ(memory.counts().late, 0u);
  data.real_ns = 3000;
  ref.at().load(0, 32, data);
  EXPECT_EQ(memory.counts().late, 1u) << "the model is faster than the memory";
}

// The same model in both modes: `pinned` only says where the caller puts the data.
TEST_F(external_memory_data, that_cross_a_link_are_held_back_until_the_time_of_the_model) {
  external_memory memory(pinned(2, 1), host());
  auto const ref = memory.ref<machine>();
  auto const port = ref.at();
  data_under_way data{500, {}, {}};
  std::uint64_t const before_ns = machine::now_ns;
  for (std::uint64_t i = 0; i < 5; ++i) {
    machine::now_ns = before_ns;  // other threads, which come at the same time
    EXPECT_EQ(port.issue(32 * i, 32, data).done_ps, (i + 1) * 2 * us) << "each takes the slot after the one before";
    EXPECT_EQ(data.began_ns[i], before_ns) << "no thread waits for another";
    EXPECT_EQ(machine::now_ns - before_ns, 500u) << "it returns when the data have come";
  }
  external_memory two(pinned(2, 2), host());
  auto const by_two = two.ref<machine>();
  for (std::uint64_t i = 0; i < 5; ++i) {
    std::uint64_t const asked_ns = machine::now_ns;
    by_two.at().load(0, 32, data);
    EXPECT_EQ(machine::now_ns - asked_ns, 2000u) << "no slot is waited for";
  }
  EXPECT_EQ(two.counts().late, 0u);
}

TEST_F(external_memory_data, that_come_after_their_time_are_late) {
  external_memory memory(pinned(2, 1), host());
  auto const ref = memory.ref<machine>();
  data_under_way slow{5000, {}, {}}, fast{500, {}, {}};
  std::uint64_t const before_ns = machine::now_ns;
  ref.at().load(0, 32, slow);
  EXPECT_EQ(machine::now_ns - before_ns, 5000u) << "nobody goes on without the data";
  EXPECT_EQ(memory.counts().late, 1u) << "the machine is slower than what is modelled";
  machine::now_ns = before_ns;
  EXPECT_EQ(ref.at().issue(32, 32, fast).done_ps, 4 * us) << "the slot is that of the model";
}

TEST_F(external_memory_data, of_several_requests_are_read_at_once_and_take_the_slots_that_there_are) {
  external_memory_options options = pinned(2, 3);
  options.request_max_bytes = 64;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine, true>();
  data_under_way data{500, {}, {}};
  EXPECT_EQ(ref.at().issue(0, 7 * 64, data).done_ps, 6 * us);
  EXPECT_EQ(data.ranges, (decltype(data.ranges){{0, 448}}));
  EXPECT_EQ(memory.counts().requests, 7u);
  EXPECT_EQ(memory.counts().bytes, 448u);
  options.outstanding = 0;
  external_memory any(options, host());
  EXPECT_EQ(any.ref<machine>().at().issue(0, 40 * 64, data).done_ps, 2 * us);
}

/// A GPU: a clock for all that ticks seldom, and one that counts cycles. Each look at one takes some time.
struct ticking : simt::native {
  static constexpr bool counts_cycles = true;
  static inline std::uint64_t now_ps = 0, tick_ns = 32;
  static inline double cycles_per_ns = 1.755;
  static inline std::uint64_t skipped = 0;       ///< cycles, where a thread goes on elsewhere
  static inline std::uint64_t rest_ps = 20'000;  ///< between two looks at what is waited for

  static void pass(std::uint64_t ps) { now_ps += ps; }
  static std::uint64_t clock_ns() {
    pass(11'000);
    return now_ps / 1000 / tick_ns * tick_ns;
  }
  static std::uint64_t cycles() {
    pass(7'000);
    return skipped + static_cast<std::uint64_t>(static_cast<double>(now_ps) / 1000 * cycles_per_ns);
  }
  static void rest_unless_near(bool near) {
    if (!near) pass(std::min<std::uint64_t>(rest_ps, 128'000));
  }
  template <class Predicate>
  static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns) {
    for (;; pass(rest_ps)) {
      std::uint64_t const at_ns = clock_ns();
      if (predicate()) return true;
      if (at_ns >= deadline_ns) return false;
    }
  }
};

struct external_memory_waits : ::testing::TestWithParam<std::uint64_t> {
  void SetUp() override {
    ticking::tick_ns = GetParam();
    ticking::now_ps = 1'000'000'123;
    ticking::skipped = 0;
    ticking::rest_ps = 20'000;
    ticking::cycles_per_ns = 1.755;
  }
  /// How long a load takes, on average, and how long most of them do not take.
  static std::pair<double, double> times_of(external_memory& memory, int loads) {
    auto const ref = memory.ref<ticking>();
    auto const port = ref.at();
    double total = 0, longest = 0;
    for (int i = 0; i < loads; ++i) {
      std::uint64_t const before_ps = ticking::now_ps;
      port.load(0, 32);
      double const took_ns = static_cast<double>(ticking::now_ps - before_ps) / 1000;
      total += took_ns;
      longest = std::max(longest, took_ns);
      ticking::pass(13'000);  // what a program does
    }
    return {total / loads, longest};
  }
};
INSTANTIATE_TEST_SUITE_P(ticks, external_memory_waits, ::testing::Values(32, 1000));

external_memory_options only_latency(double latency_us) {
  external_memory_options options;
  options.latency_us = latency_us;
  options.outstanding = 0;
  return options;
}

TEST_P(external_memory_waits, are_exact_between_the_ticks_of_the_clock_once_the_rate_is_known) {
  for (double const latency_us : {1.2, 2.0, 4.0, 16.0, 120.0}) {
    external_memory memory(only_latency(latency_us), host());
    (void)times_of(memory, 200);
    std::uint64_t const late_before = memory.counts().late;
    auto const [mean_ns, longest_ns] = times_of(memory, 1000);  // a thread that has just come knows it too
    double const want_ns = latency_us * 1000;
    EXPECT_NEAR(mean_ns, want_ns, want_ns * (GetParam() == 32 ? 0.012 : 0.02)) << latency_us;
    EXPECT_LE(longest_ns, want_ns * 1.03) << latency_us;
    EXPECT_EQ(memory.counts().late, late_before);
  }
}

TEST_P(external_memory_waits, that_are_long_rest_and_yet_end_in_time) {
  ticking::rest_ps = 3 * us;
  external_memory memory(only_latency(700), host());
  (void)times_of(memory, 20);
  std::uint64_t const late_before = memory.counts().late;
  EXPECT_LE(times_of(memory, 100).second, 700'000 + 1.3 * static_cast<double>(GetParam()));
  EXPECT_EQ(memory.counts().late, late_before);
}

TEST_P(external_memory_waits, follow_a_rate_that_changes) {
  external_memory memory(only_latency(2), host());
  for (double const rate : {1.755, 1.2, 1.98}) {
    ticking::cycles_per_ns = rate;
    auto const ref = memory.ref<ticking>();
    auto const port = ref.at();
    // The count of cycles goes on from where it was: `cycles()` is of all time, so the thread is new.
    for (int i = 0; i < 400; ++i) port.load(0, 32);
    EXPECT_NEAR(times_of(memory, 300).first, 2000, 40) << rate;
  }
}

TEST_P(external_memory_waits, end_soon_where_the_count_of_cycles_is_another) {
  external_memory memory(only_latency(2), host());
  (void)times_of(memory, 200);
  auto const ref = memory.ref<ticking>();
  auto const port = ref.at();
  ticking::skipped = 1'000'000'000;
  auto const read = port.issue(0, 32);
  ticking::skipped = 0;
  std::uint64_t const before_ps = ticking::now_ps;
  port.wait(read);
  EXPECT_LT(ticking::now_ps - before_ps, 8 * us);
}

TEST_P(external_memory_waits, end_before_their_time_by_the_lead) {
  external_memory_options options = only_latency(4);
  options.lead_us = 1;
  external_memory memory(options, host());
  (void)times_of(memory, 200);
  EXPECT_NEAR(times_of(memory, 1000).first, 3000, 60);
  EXPECT_EQ(memory.counts().late, 0u);
  machine::now_ns = 1'000'000;
  external_memory coarse(options, host());
  std::uint64_t const before_ns = machine::now_ns;
  coarse.ref<machine>().at().load(0, 32);
  EXPECT_EQ(machine::now_ns - before_ns, 3000u);
}

TEST_P(external_memory_waits, that_last_too_long_are_late) {
  external_memory memory(only_latency(2), host());
  (void)times_of(memory, 200);
  auto const ref = memory.ref<ticking>();
  auto const port = ref.at();
  struct held_up {
    void start(std::uint64_t, std::uint64_t) {}
    void finish() { ticking::pass(2'400'000); }
  };
  port.load(0, 32, held_up());
  EXPECT_EQ(memory.counts().late, 1u);
  auto const read = port.issue(0, 32);
  ticking::pass(50 * us);
  port.wait(read);
  EXPECT_EQ(memory.counts().late, 1u) << "a caller that comes late itself has lost nothing";
}

std::string refusal(std::string const& text) {
  try {
    (void)external_memory_options::parse(text);
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return "not refused";
}

TEST(external_memory_modes, have_names) {
  EXPECT_EQ(external_memory_options::parse("").mode, external_mode::device);
  EXPECT_EQ(external_memory_options::parse("mode=pinned").mode, external_mode::pinned);
  EXPECT_EQ(external_memory_options::parse("mode=device,shards=4,lead_us=0.05").shards, 4u);
  EXPECT_EQ(external_memory_options::parse("lead_us=0.05").lead_us, 0.05);
  EXPECT_EQ(refusal("mode=host"), "mode: 'host': give device or pinned");
  EXPECT_EQ(refusal("shards=0"), "shards: '0': give a whole number from 1 to 1024");
  EXPECT_EQ(refusal("lead_us=2000"), "lead_us: '2000': give microseconds from 0 to 1000");
}

/// Host memory that passes for that of a GPU.
class gpu_memory : public resource {
 public:
  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t bytes, std::size_t alignment) override { return host().allocate(bytes, alignment); }
  void deallocate(void* address) noexcept override { host().deallocate(address); }
  void copy_in(void* to, void const* from, std::size_t bytes) override { host().copy_in(to, from, bytes); }
  void copy_out(void* to, void const* from, std::size_t bytes) override { host().copy_out(to, from, bytes); }
};

TEST(external_memory_modes, threads_of_a_gpu_have_more_shards_unless_they_were_given) {
  gpu_memory gpu;
  external_memory_options options;
  EXPECT_EQ(external_memory(options, host()).options().shards, 1u);
  EXPECT_EQ(external_memory(options, gpu).options().shards, 16u);
  options.outstanding = 5;
  EXPECT_EQ(external_memory(options, gpu).options().shards, 5u);
  options.shards = 2;
  EXPECT_EQ(external_memory(options, gpu).options().shards, 2u);
}

TEST(external_memory_modes, threads_of_a_gpu_have_a_lead_unless_it_was_given) {
  gpu_memory gpu;
  EXPECT_EQ(external_memory({}, host()).options().lead_us, 0);
  EXPECT_EQ(external_memory({}, gpu).options().lead_us, 0.32);
  EXPECT_EQ(external_memory(external_memory_options::parse("lead_us=0"), gpu).options().lead_us, 0);
  EXPECT_EQ(external_memory(external_memory_options::parse("lead_us=0.2"), host()).options().lead_us, 0.2);
}

TEST(external_memory_modes, a_page_has_so_many_requests) {
  external_memory_options options;
  EXPECT_EQ(options.requests_of_page(4096), 128u);
  EXPECT_EQ(options.requests_of_page(8), 1u);
  options.request_max_bytes = 96;
  EXPECT_EQ(options.requests_of_page(128), 2u);
  options.request_max_bytes = 2048;
  EXPECT_EQ(options.requests_of_page(512), 1u);
  EXPECT_THROW((void)options.requests_of_page(96), refused_input);
  EXPECT_THROW((void)options.requests_of_page(0), refused_input);
}

}  // namespace
}  // namespace forebay::memory
