// SPDX-License-Identifier: Apache-2.0
#include "emulator/cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "forebay/error.hpp"

namespace forebay::bench {
namespace {

constexpr double latency_us = 50;

/// Large enough that the GPU's cache holds almost none of it.
std::string const ideal = "emulated:size=8G";

/// The model sets the rate, so the size changes nothing: the drive is small enough to be written quickly.
std::string timed(double miops, double least_us = latency_us) {
  return fmt::format("emulated:size={},iops={}k,latency_us={}", miops < 20 ? "128M" : "1G", miops * 1000, least_us);
}

/// Spreads `warps` over many multiprocessors.
void in_warps(bench_case& c, std::uint32_t warps) {
  c.own_queues = warps <= c.queue_count();
  c.blocks = warps;
  c.threads_per_block = 32;
  while (c.blocks > 512 && c.blocks % 2 == 0 && c.threads_per_block < 1024) {
    c.blocks /= 2;
    c.threads_per_block *= 2;
  }
}

void add_unthrottled(std::vector<bench_case>& list) {
  std::string const group = "unthrottled";
  list.push_back({.group = group, .name = "reads 512 B, 32 SMs", .uri = ideal});
  list.push_back({.group = group, .name = "70/30 512 B", .uri = ideal, .write_percent = 30});
  list.push_back({.group = group, .name = "writes 512 B", .uri = ideal, .write_percent = 100});
  list.push_back({.group = group, .name = "reads 4 KiB", .uri = ideal, .block_bytes = 4096});
  for (std::uint32_t const sms : {8u, 16u, 64u}) {
    list.push_back({.group = group, .name = fmt::format("reads 512 B, {} SMs", sms), .uri = ideal, .sms = sms});
  }
  for (std::uint32_t const queues : {32u, 128u, 2048u}) {
    list.push_back(
        {.group = group, .name = fmt::format("reads 512 B, {} queues", queues), .uri = ideal, .queues = queues});
  }
}

/// The techniques of the frontend, one by one; "distributed" is more than one unit.
void add_frontend(std::vector<bench_case>& list) {
  std::string const group = "frontend";
  bench_case const all{.group = group, .name = "all three", .uri = timed(2000, 1), .moves_data = false};
  list.push_back(all);
  bench_case c = all;
  c.name = "not coalesced";
  c.frontend = {.coalesced_fetch = false};
  list.push_back(c);
  c = all;
  c.name = "not aggregated";
  c.frontend = {.aggregated_timing = false};
  list.push_back(c);
  c = all;
  c.name = "not distributed";
  c.sms = 1;
  list.push_back(c);
  c.name = "none of them";
  c.seconds = 0.05;
  c.frontend = {.coalesced_fetch = false, .aggregated_timing = false};
  list.push_back(c);
  list.push_back({.group = group, .name = "no timing model", .uri = ideal, .moves_data = false});
}

void add_targets(std::vector<bench_case>& list) {
  for (double const miops : {1.0, 2.47, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0, 200.0, 300.0}) {
    // Four times as much in flight as the target needs.
    bench_case c{.group = "target",
                 .name = fmt::format("{} MIOPS, 50 us", miops),
                 .uri = timed(miops),
                 .expected_iops = miops * 1e6};
    in_warps(c, static_cast<std::uint32_t>(std::max(32.0, 4 * miops * latency_us / 32)));
    list.push_back(c);
  }
  for (std::uint32_t const sms : {16u, 8u}) {
    list.push_back({.group = "target",
                    .name = fmt::format("100 MIOPS, {} SMs", sms),
                    .uri = timed(100),
                    .sms = sms,
                    .expected_iops = 100e6});
  }
}

/// Closed loops of N threads: min(Tmax, N / L) commands a second, each of them max(L, N / Tmax).
void add_sweep(std::vector<bench_case>& list) {
  for (double const miops : {2.47, 40.0, 100.0}) {
    for (double const load : {0.125, 0.25, 0.5, 0.75, 0.9, 1.25, 2.0, 4.0}) {
      bench_case c{.group = "sweep", .uri = timed(miops), .queues = 640};
      double const wanted = load * miops * latency_us;
      // The threads of a warp go on together. A warp has only as many as the drive serves in a third of a microsecond,
      // so that none waits for long for another's command. It has more where there are not enough queues.
      c.lanes = static_cast<std::uint32_t>(std::max({1.0, std::round(miops / 5), std::ceil(wanted / 512)}));
      if (c.lanes > 24) c.lanes = 32;
      in_warps(c, static_cast<std::uint32_t>(std::round(wanted / c.lanes)));
      double const threads = c.blocks * (c.threads_per_block / 32.0) * c.lanes;
      c.name = fmt::format("{} MIOPS, {} threads", miops, threads);
      c.expected_iops = std::min(miops * 1e6, threads / latency_us * 1e6);
      c.expected_latency_us = std::max(latency_us, threads / miops);
      list.push_back(c);
    }
  }
}

void add_light(std::vector<bench_case>& list) {
  bench_case c{.group = "light", .name = "64 threads, 64 warps", .uri = timed(2.47), .lanes = 1};
  c.expected_latency_us = latency_us;
  in_warps(c, 64);
  list.push_back(c);
  c.name = "64 threads, 2 warps";
  c.lanes = 32;
  in_warps(c, 2);
  list.push_back(c);
}

/// One queue takes all of the load.
void add_skew(std::vector<bench_case>& list) {
  // One warp less than fills the queue, so that nobody waits for room.
  list.push_back({.group = "skew",
                  .name = "one queue, 50 us",
                  .uri = timed(40),
                  .queues = 1,
                  .completion_depth = 4096,
                  .blocks = 31,
                  .threads_per_block = 32,
                  .expected_iops = 1023 / latency_us * 1e6});
}

void add_queues(std::vector<bench_case>& list) {
  for (std::uint32_t const queues : {2048u, 4096u}) {
    list.push_back({.group = "queues",
                    .name = fmt::format("{} queues, 2 M threads", queues),
                    .uri = timed(40),
                    .queues = queues,
                    .blocks = 2048,
                    .seconds = 0.2,
                    .expected_iops = 40e6});
  }
}

void add_p5800x(std::vector<bench_case>& list) {
  struct figure {
    char const* name;
    std::uint32_t block_bytes, warps;
    double iops;
  };
  for (figure const& f : {figure{"512 B", 512, 64, 4.9e6}, figure{"4 KiB", 4096, 64, 1.5e6},
                          figure{"128 KiB", 131072, 4, 7.2e9 / 131072}}) {
    bench_case c{.group = "p5800x", .name = f.name, .uri = "emulated:profile=p5800x,size=512M"};
    c.block_bytes = f.block_bytes;
    c.expected_iops = f.iops;
    in_warps(c, f.warps);
    list.push_back(c);
  }
}

void add_host(std::vector<bench_case>& list) {
  // Host memory is far: how much is read from it at a time grows with the multiprocessors. Stores into the readers'
  // buffers compete for the address translation that the readers wait for, so there are no more readers than keep the
  // link busy.
  for (std::uint64_t const gib : {1u, 32u}) {
    for (std::uint32_t const sms : {32u, 64u}) {
      list.push_back({.group = "host",
                      .name = fmt::format("reads 512 B, {} GiB, {} SMs", gib, sms),
                      .uri = fmt::format("emulated:size={}G", gib),
                      .backing = "host",
                      .sms = sms,
                      .threads_per_block = 256,
                      .host_bytes = gib << 30});
    }
  }
}

void add_overload(std::vector<bench_case>& list) {
  list.push_back({.group = "overload", .name = "2 GIOPS asked of 4 SMs", .uri = timed(2000), .sms = 4});
}

}  // namespace

std::string bench_case::drive_uri(std::string const& residency) const {
  bool const on_peer = residency == "peer";
  return fmt::format("{},backing={},residency={},sms={},queues={}{}{}", uri, on_peer ? "peer:1" : backing, residency,
                     sms, queue_count(), link.empty() ? "" : ",link=" + link, moves_data ? "" : ",data=none");
}

std::string bench_case::drive_key(std::string const& residency) const {
  return fmt::format("{} {} {} {} {} {}", drive_uri(residency), depth, completion_depth, frontend.coalesced_fetch,
                     frontend.aggregated_timing, block_bytes);
}

std::vector<bench_case> cases_of(std::string const& group, std::string const& residency) {
  std::vector<bench_case> list;
  for (auto const add : {add_unthrottled, add_targets, add_light, add_sweep, add_skew, add_queues, add_p5800x,
                         add_overload, add_frontend, add_host}) {
    add(list);
  }
  // A daemon accepts no settings of its frontend. The remaining groups show what a peer's drive does differently.
  std::set<std::string> const elsewhere{"unthrottled", "target", "sweep", "light"};
  std::erase_if(list, [&](bench_case const& c) {
    return (residency == "served" && c.group == "frontend") || (residency == "peer" && !elsewhere.contains(c.group));
  });
  if (group.empty()) return list;
  std::set<std::string> groups;
  for (bench_case const& c : list) groups.insert(c.group);
  if (!groups.contains(group)) {
    throw refused_input("--group", group,
                        fmt::format("with residency={} there are {}", residency, fmt::join(groups, ", ")));
  }
  std::erase_if(list, [&](bench_case const& c) { return c.group != group; });
  return list;
}

}  // namespace forebay::bench
