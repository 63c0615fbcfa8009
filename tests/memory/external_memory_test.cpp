// SPDX-License-Identifier: Apache-2.0
#include "forebay/external_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/virtual_time.hpp"
#include "forebay/detail/memory/link_speed.hpp"
#include "forebay/error.hpp"

namespace forebay::memory {
namespace {

using machine = forebay::testing::virtual_time;
using counting_ref = external_memory_ref<machine, true>;
static_assert(std::is_trivially_copyable_v<counting_ref>);

constexpr std::uint64_t us = 1'000'000;  // in picoseconds

/// Nothing bounds it but its latency, and requests are of one block.
external_memory_options only_latency(double latency_us) {
  external_memory_options options;
  options.latency_us = latency_us;
  options.outstanding = 0;
  return options;
}

struct external_memory_model : ::testing::Test {
  void SetUp() override {
    machine::now_ns = 1'000'000;
    machine::before_waiting = nullptr;
  }
  void TearDown() override { machine::before_waiting = nullptr; }
};

TEST_F(external_memory_model, a_lone_load_takes_the_latency) {
  external_memory_options options = only_latency(1.2);
  options.outstanding = 2;
  options.iops = 1e6;
  options.link_bytes_per_second = 1e9;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  auto const port = ref.at();
  for (std::uint64_t i = 0; i < 20; ++i) {
    std::uint64_t const before_ns = machine::now_ns;
    port.load(32 * i, 4);
    EXPECT_EQ(machine::now_ns - before_ns, 1200u);
    machine::now_ns += 5000;
  }
  EXPECT_EQ(memory.counts().late, 0u);
}

TEST_F(external_memory_model, a_load_does_not_return_within_the_last_nanosecond) {
  external_memory memory(only_latency(1.0001), host());
  auto const ref = memory.ref<machine>();
  std::uint64_t const before_ns = machine::now_ns;
  ref.at().load(0, 4);
  EXPECT_EQ(machine::now_ns - before_ns, 1001u);
}

TEST_F(external_memory_model, reads_that_are_issued_ahead_take_their_time_together) {
  external_memory memory(only_latency(10), host());
  auto const ref = memory.ref<machine>();
  auto const port = ref.at();
  std::vector<external_memory_handle> reads;
  for (std::uint64_t i = 0; i < 8; ++i) reads.push_back(port.issue(4096 * i, 8));
  std::uint64_t const before_ns = machine::now_ns;
  for (auto const& read : reads) port.wait(read);
  EXPECT_EQ(machine::now_ns - before_ns, 10'000u);
}

TEST_F(external_memory_model, a_read_of_nothing_is_none) {
  for (bool const lines : {false, true}) {
    external_memory_options options = only_latency(10);
    options.request_max_bytes = 128;
    options.lines = lines;
    external_memory memory(options, host());
    auto const ref = memory.ref<machine, true>();
    auto const port = ref.at();
    std::uint64_t const before_ns = machine::now_ns;
    for (std::uint64_t const address : {0u, 32u, 100u, 128u}) {
      EXPECT_EQ(port.issue(address, 0).done_ps, 0u);
      port.load(address, 0);
    }
    port.wait({});
    EXPECT_EQ(machine::now_ns, before_ns);
    EXPECT_EQ(memory.counts().loads, 0u);
    EXPECT_EQ(memory.counts().requests, 0u);
  }
}

using ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
ranges requests_of(external_memory_options const& options, std::uint64_t address, std::uint64_t bytes) {
  external_memory memory(options, host());
  auto const requests = memory.ref<machine>().split(address, bytes);
  ranges found;
  for (std::uint32_t i = 0; requests.has(i); ++i) found.emplace_back(requests.begin(i), requests.end(i));
  return found;
}

TEST_F(external_memory_model, requests_are_whole_blocks_up_to_the_longest) {
  external_memory_options options;
  options.alignment_bytes = 32;
  EXPECT_EQ(requests_of(options, 40, 4), (ranges{{32, 64}}));
  EXPECT_EQ(requests_of(options, 60, 8), (ranges{{32, 64}, {64, 96}})) << "by default a request is one block";
  options.request_max_bytes = 96;
  EXPECT_EQ(requests_of(options, 60, 8), (ranges{{32, 96}}));
  EXPECT_EQ(requests_of(options, 40, 200), (ranges{{32, 128}, {128, 224}, {224, 256}})) << "cut from the first block";
  EXPECT_EQ(requests_of(options, 32, 96), (ranges{{32, 128}})) << "exactly one";
  options.request_max_bytes = 128;
  EXPECT_EQ(requests_of(options, 40, 200), (ranges{{32, 160}, {160, 256}}));
  options.lines = true;
  EXPECT_EQ(requests_of(options, 40, 200), (ranges{{32, 128}, {128, 256}})) << "cut at lines";
  EXPECT_EQ(requests_of(options, 130, 4), (ranges{{128, 160}}));
  EXPECT_EQ(requests_of(options, 100, 300), (ranges{{96, 128}, {128, 256}, {256, 384}, {384, 416}}));
}

TEST_F(external_memory_model, blocks_and_requests_are_counted_if_the_type_says_so) {
  external_memory_options options = only_latency(1);
  options.alignment_bytes = 16;
  options.request_max_bytes = 64;
  external_memory memory(options, host());
  auto const silent = memory.ref<machine>();
  silent.at().load(0, 1000);
  EXPECT_EQ(memory.counts().requests, 0u);
  auto const ref = memory.ref<machine, true>();
  ref.at().load(17, 1);          // one block
  ref.at().load(30, 100);        // [16, 144): two requests
  (void)ref.at().issue(64, 64);  // one
  auto const counts = memory.counts();
  EXPECT_EQ(counts.loads, 3u);
  EXPECT_EQ(counts.requests, 4u);
  EXPECT_EQ(counts.bytes, 16u + 128 + 64);
  memory.reset();
  EXPECT_EQ(memory.counts().loads, 0u);
}

TEST_F(external_memory_model, a_read_takes_as_long_as_its_last_request) {
  external_memory_options options = only_latency(10);
  options.link_bytes_per_second = 1e9;  // 32 bytes take 32 ns
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  EXPECT_EQ(ref.at().issue(0, 320).done_ps, 9 * 32'000 + 10 * us);
  EXPECT_EQ(ref.at().issue(0, 32).done_ps, 10 * 32'000 + 10 * us) << "the link is one for all";
}

TEST_F(external_memory_model, neighbouring_stretches_lie_on_different_devices) {
  external_memory_options options = only_latency(10);
  options.iops = 1e6;  // 1 us
  options.devices = 3;
  options.request_max_bytes = 128;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  auto const port = ref.at();
  for (std::uint64_t const stretch : {0u, 1u, 2u}) EXPECT_EQ(port.issue(128 * stretch, 32).done_ps, 10 * us);
  EXPECT_EQ(port.issue(3 * 128, 32).done_ps, 11 * us) << "the first device again";
  EXPECT_EQ(port.issue(32, 32).done_ps, 12 * us) << "the same stretch";
  EXPECT_EQ(port.issue(128, 32).done_ps, 11 * us);
}

struct span {
  std::uint64_t start_ps, done_ps;
};

/// The requests of a closed loop: each client has one in flight, and makes the next when it is done.
std::vector<span> closed_loop(external_memory& memory, std::uint32_t clients, std::uint32_t total,
                              std::uint32_t bytes) {
  auto const ref = memory.ref<machine>();
  auto const port = ref.at(0);
  std::uint64_t const begin_ns = machine::now_ns;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> due_ns;
  for (std::uint32_t i = 0; i < clients; ++i) due_ns.push(begin_ns);
  std::vector<span> spans;
  std::uint64_t const latency_ps = static_cast<std::uint64_t>(memory.options().latency_us * 1e6);
  for (std::uint64_t i = 0; i < total; ++i) {
    machine::now_ns = due_ns.top();
    due_ns.pop();
    std::uint64_t const done_ps = port.issue(i * 512, bytes).done_ps;
    spans.push_back({done_ps - latency_ps, done_ps});
    due_ns.push(begin_ns + (done_ps + 999) / 1000);
  }
  return spans;
}

std::uint32_t most_at_a_time(std::vector<span> const& spans) {
  std::vector<std::pair<std::uint64_t, int>> changes;
  for (span const& s : spans) {
    changes.emplace_back(s.start_ps, +1);
    changes.emplace_back(s.done_ps, -1);  // sorts before a start at the same time
  }
  std::sort(changes.begin(), changes.end());
  int now = 0, most = 0;
  for (auto const& [at, change] : changes) most = std::max(most, now += change);
  return static_cast<std::uint32_t>(most);
}

struct bound {
  char const* name;
  double iops;
  std::uint32_t devices, outstanding;
  double latency_us, link;
  std::uint32_t bytes;
  double expected;  ///< bytes a second
};

TEST_F(external_memory_model, throughput_is_that_of_the_tightest_bound) {
  bound const bounds[] = {
      {"devices", 6e6, 1, 0, 20, 24e9, 512, 6e6 * 512},
      {"several devices", 11e6, 16, 0, 5, 0, 128, 11e6 * 16 * 128},
      {"latency", 0, 1, 768, 16, 24e9, 128, 768 / 16e-6 * 128},
      {"latency of few", 0, 1, 3, 2, 0, 32, 3 / 2e-6 * 32},
      {"link", 0, 1, 768, 1.2, 24e9, 128, 24e9},
      {"latency before devices", 100e6, 1, 256, 3.3, 12e9, 64, 256 / 3.3e-6 * 64},
      {"devices before latency", 40e6, 2, 512, 3.3, 12e9, 64, 80e6 * 64},
      {"link before all", 40e6, 4, 512, 2, 6e9, 64, 6e9},
  };
  for (bound const& b : bounds) {
    SCOPED_TRACE(b.name);
    external_memory_options options;
    options.iops = b.iops;
    options.devices = b.devices;
    options.outstanding = b.outstanding;
    options.latency_us = b.latency_us;
    options.link_bytes_per_second = b.link;
    options.request_max_bytes = 512;
    external_memory memory(options, host());
    // A multiple of each limit, since slots become free in turns of so many. The first turns fill the queues.
    std::uint32_t const clients = 4608;
    auto const spans = closed_loop(memory, clients, 8 * clients + 1, b.bytes);
    double const seconds = static_cast<double>(spans[8 * clients].done_ps - spans[2 * clients].done_ps) * 1e-12;
    // Charges are whole picoseconds.
    EXPECT_NEAR(6.0 * clients * b.bytes / seconds, b.expected, b.expected * 1e-4);
    if (b.outstanding != 0) {
      EXPECT_LE(most_at_a_time(spans), b.outstanding);
    }
  }
}

TEST_F(external_memory_model, a_saturated_memory_is_exact) {
  // Of requests that all come at once, each begins when the tightest bound allows.
  external_memory_options options = only_latency(10);
  options.outstanding = 4;
  external_memory slots(options, host());
  auto const by_slots = slots.ref<machine>();
  options.link_bytes_per_second = 1e9;
  external_memory slots_and_link(options, host());
  auto const by_both = slots_and_link.ref<machine>();
  options.outstanding = 0;
  external_memory link(options, host());
  auto const by_link = link.ref<machine>();
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(by_slots.at().issue(0, 32).done_ps, (i / 4 + 1) * 10 * us);
    EXPECT_EQ(by_link.at().issue(0, 32).done_ps, i * 32'000 + 10 * us);
    EXPECT_EQ(by_both.at().issue(0, 32).done_ps, i % 4 * 32'000 + (i / 4 + 1) * 10 * us);
  }
}

TEST_F(external_memory_model, the_limit_is_used_in_full_and_not_exceeded) {
  for (std::uint32_t const outstanding : {1u, 2u, 7u, 64u}) {
    external_memory_options options = only_latency(3);
    options.outstanding = outstanding;
    external_memory memory(options, host());
    EXPECT_EQ(most_at_a_time(closed_loop(memory, 200, 4000, 32)), outstanding);
  }
}

TEST_F(external_memory_model, shards_share_out_rates_and_the_limit_with_its_remainder) {
  external_memory_options options = only_latency(10);
  options.outstanding = 7;
  options.shards = 3;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  std::uint64_t const slots[] = {3, 2, 2};
  for (std::uint32_t s = 0; s < 3; ++s) {
    for (std::uint64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(ref.at(s).issue(0, 32).done_ps, (i / slots[s] + 1) * 10 * us) << "shard " << s << " request " << i;
    }
  }
  options.outstanding = 0;
  options.link_bytes_per_second = 1e9;
  options.iops = 20e6;  // 50 ns
  external_memory rates(options, host());
  auto const shared = rates.ref<machine>();
  for (std::uint32_t s = 0; s < 3; ++s) {
    for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(shared.at(s).issue(0, 32).done_ps, i * 150'000 + 10 * us);
  }
  options.iops = 0;
  external_memory link(options, host());
  auto const linked = link.ref<machine>();
  for (std::uint32_t s = 0; s < 3; ++s) {
    for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(linked.at(s).issue(0, 32).done_ps, i * 96'000 + 10 * us);
  }
}

TEST_F(external_memory_model, requests_without_latency_are_never_in_flight) {
  external_memory_options options = only_latency(0);
  options.outstanding = 1;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  std::uint64_t const before_ns = machine::now_ns;
  for (int i = 0; i < 10; ++i) ref.at().load(0, 32);
  EXPECT_LE(machine::now_ns - before_ns, 1u);

  // One that waits for its device keeps no other from another device.
  options.iops = 1e6;
  options.devices = 2;
  external_memory devices(options, host());
  auto const by_device = devices.ref<machine>();
  (void)by_device.at().issue(0, 32);
  EXPECT_EQ(by_device.at().issue(0, 32).done_ps, 1 * us);
  EXPECT_LT(by_device.at().issue(32, 32).done_ps, 1 * us);
}

TEST_F(external_memory_model, a_load_that_returns_after_its_time_is_late) {
  external_memory_options options = only_latency(2);
  options.late_after_us = 1;
  external_memory memory(options, host());
  auto const ref = memory.ref<machine>();
  auto const port = ref.at();
  std::uint64_t held_up_ns = 0;
  machine::before_waiting = [&] { machine::now_ns += held_up_ns; };
  for (std::uint64_t const ns : {0u, 2000u, 3000u}) {
    held_up_ns = ns;
    port.load(0, 32);
    EXPECT_EQ(memory.counts().late, 0u) << ns;
  }
  held_up_ns = 3001;
  port.load(0, 32);
  EXPECT_EQ(memory.counts().late, 1u);

  // A caller that comes late itself has lost nothing; one that the wait holds up has.
  held_up_ns = 0;
  auto const early = port.issue(0, 32);
  machine::now_ns += 1'000'000;
  port.wait(early);
  EXPECT_EQ(memory.counts().late, 1u);
  auto const held_up = port.issue(0, 32);
  machine::now_ns += 1'000'000;
  held_up_ns = 1001;
  port.wait(held_up);
  EXPECT_EQ(memory.counts().late, 2u);
  memory.reset();
  EXPECT_EQ(memory.counts().late, 0u);
}

/// A thread that is held up before its second look at the clock.
struct held_up_once : machine {
  static inline int looks = 0;
  static std::uint64_t clock_ns() {
    if (++looks == 2) now_ns += 10'000;
    return now_ns;
  }
};

TEST_F(external_memory_model, a_load_is_late_if_the_thread_was_held_up_before_it_waited) {
  external_memory memory(only_latency(2), host());
  auto const ref = memory.ref<held_up_once>();
  auto const port = ref.at();
  held_up_once::looks = 0;
  port.load(0, 32);
  EXPECT_EQ(memory.counts().late, 1u);
}

TEST_F(external_memory_model, a_thread_whose_clock_is_behind_begins_at_the_beginning) {
  external_memory memory(only_latency(2), host());
  auto const ref = memory.ref<machine>();
  auto const port = ref.at();
  machine::now_ns -= 500;
  EXPECT_EQ(port.issue(0, 32).done_ps, 2 * us);
}

std::string refusal(std::string const& text) {
  try {
    (void)external_memory_options::parse(text);
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return "not refused";
}

TEST(external_memory_options, reads_all_keys) {
  auto const options = external_memory_options::parse(
      "latency_us=2.5,alignment=16,iops=11M,outstanding=512,link=gen4x16,devices=16,request_max=2K,lines=on");
  EXPECT_EQ(options.latency_us, 2.5);
  EXPECT_EQ(options.alignment_bytes, 16u);
  EXPECT_EQ(options.iops, 11e6);
  EXPECT_EQ(options.outstanding, 512u);
  EXPECT_EQ(options.link_bytes_per_second, find_link_speed("gen4x16").bytes_per_second);
  EXPECT_EQ(options.devices, 16u);
  EXPECT_EQ(options.request_max_bytes, 2048u);
  EXPECT_TRUE(options.lines);
  auto const none = external_memory_options::parse("iops=none,outstanding=none,link=none,lines=off");
  EXPECT_EQ(none.iops, 0);
  EXPECT_EQ(none.outstanding, 0u);
  EXPECT_EQ(none.link_bytes_per_second, 0);
  EXPECT_FALSE(none.lines);
  EXPECT_EQ(external_memory_options::parse("link=24G").link_bytes_per_second, 24e9);
  EXPECT_EQ(external_memory_options::parse("").outstanding, 768u);
}

TEST(external_memory_options, refusals_say_what_to_give_instead) {
  EXPECT_EQ(refusal("latancy_us=2"), "latancy_us: '2': external: has no such key; did you mean latency_us?");
  EXPECT_EQ(refusal("latency_us"),
            "external: 'latency_us': write key=value between commas, as in latency_us=2,alignment=32");
  EXPECT_EQ(refusal("devices=1,,link=none"),
            "external: '': write key=value between commas, as in latency_us=2,alignment=32");
  EXPECT_EQ(refusal("devices=1,devices=2"), "devices: '2': give each key once");
  EXPECT_EQ(refusal("latency_us=2000000"), "latency_us: '2e+06': give microseconds from 0 to 1000000");
  EXPECT_EQ(refusal("alignment=48"), "alignment: '48': give a power of two from 16 to 4096");
  EXPECT_EQ(refusal("alignment=8"), "alignment: '8': give a power of two from 16 to 4096");
  EXPECT_EQ(refusal("alignment=8K"), "alignment: '8192': give a power of two from 16 to 4096");
  EXPECT_EQ(refusal("iops=20G"), "iops: '2e+10': give a rate of each device from 1 to 10G, or none");
  EXPECT_EQ(refusal("outstanding=0"), "outstanding: '0': give a whole number from 1 to 1048576");
  EXPECT_EQ(refusal("link=1000"), "link: '1000': give 1M to 10000G bytes a second, or none");
  EXPECT_NE(refusal("link=gen9x16").find("use one of gen3x4"), std::string::npos);
  EXPECT_EQ(refusal("devices=1025"), "devices: '1025': give a whole number from 1 to 1024");
  EXPECT_EQ(refusal("alignment=64,request_max=96"),
            "request_max: '96': give a multiple of the alignment, 64, up to 1M");
  EXPECT_EQ(refusal("request_max=2M"), "request_max: '2097152': give a multiple of the alignment, 32, up to 1M");
  EXPECT_EQ(refusal("request_max=8G"), "request_max: '8G': give at most 1M");
  EXPECT_EQ(refusal("request_max=96,lines=on"),
            "request_max: '96': give a power of two where requests are parts of lines");
  EXPECT_EQ(refusal("lines=1"), "lines: '1': give on or off");
}

TEST(external_memory_options, the_memory_refuses_what_they_cannot_be) {
  auto const with = [](auto&& change) {
    external_memory_options options;
    change(options);
    return options;
  };
  EXPECT_THROW(external_memory(with([](auto& o) { o.shards = 769; }), host()), refused_input);
  EXPECT_THROW(external_memory(with([](auto& o) { o.shards = 1025; }), host()), refused_input);
  EXPECT_THROW(external_memory(with([](auto& o) { o.latency_us = -1; }), host()), refused_input);
  EXPECT_THROW(external_memory(with([](auto& o) { o.latency_us = 0.0 / 0.0; }), host()), refused_input);
  EXPECT_THROW(external_memory(with([](auto& o) { o.iops = 0.5; }), host()), refused_input);
  EXPECT_THROW(external_memory(with([](auto& o) { o.devices = 0; }), host()), refused_input);
  EXPECT_THROW(external_memory(with([](auto& o) { o.late_after_us = 1e7; }), host()), refused_input);
  EXPECT_NO_THROW(external_memory(with([](auto& o) { o.shards = 768; }), host()));
}

TEST(link_speeds, each_generation_has_twice_the_rate) {
  EXPECT_EQ(link_speeds().size(), 12u);
  EXPECT_NEAR(find_link_speed("gen4x16").bytes_per_second, 31.5e9, 0.02e9);
  EXPECT_EQ(find_link_speed("gen5x8").bytes_per_second, find_link_speed("gen4x16").bytes_per_second);
  EXPECT_THROW(find_link_speed("gen7x16"), refused_input);
}

}  // namespace
}  // namespace forebay::memory
