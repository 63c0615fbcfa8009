// SPDX-License-Identifier: Apache-2.0
//! \file
//! Measures an emulated drive whose engine is on a GPU, as a client sees it that only submits and waits.
//!
//! Cases of the same drive share it: it is written, every byte of a part is read back, and then each case runs five
//! times; timed runs look at one word of every block. With `--residency served` each drive is in a daemon of its own.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cases.hpp"
#include "emulator/measure_cases.hpp"
#include "emulator/raw_launch.hpp"
#include "emulator/rig.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "harness/benchmark.hpp"
#include "harness/event_timer.hpp"
#include "harness/repeated.hpp"
#include "harness/row_drives.hpp"
#include "harness/served.hpp"

namespace {

using forebay::bench::bench_case;
using forebay::bench::clean;
using forebay::bench::command_line;
using forebay::bench::drives_asked;
using forebay::bench::raw_result;
using forebay::bench::raw_workload;
using forebay::bench::rig;
using forebay::bench::runs_per_case;
using nlohmann::json;
namespace memory = forebay::memory;

double percentile_us(raw_result const& seen, double fraction) {
  auto const wanted = static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(seen.commands)));
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i + 1 < raw_result::bins; ++i) {
    sum += seen.latency_bin[i];
    if (sum >= wanted) return static_cast<double>(std::min(raw_result::end_ns(i), seen.latency_max_ns)) / 1e3;
  }
  return static_cast<double>(seen.latency_max_ns) / 1e3;
}

json describe(raw_result const& seen, double seconds, std::uint32_t block_bytes) {
  double const iops = static_cast<double>(seen.commands) / seconds;
  double const commands = static_cast<double>(std::max<std::uint64_t>(seen.commands, 1));
  return {{"seconds", seconds},
          {"commands", seen.commands},
          {"writes", seen.writes},
          {"iops", iops},
          {"bw_bytes", iops * block_bytes},
          // End to end: from just before a command is stored until its thread saw that it is complete.
          {"latency_us",
           {{"min", static_cast<double>(seen.latency_min_ns) / 1e3},
            {"mean", static_cast<double>(seen.latency_sum_ns) / 1e3 / commands},
            {"p50", percentile_us(seen, 0.5)},
            {"p99", percentile_us(seen, 0.99)},
            {"p99.9", percentile_us(seen, 0.999)},
            {"max", static_cast<double>(seen.latency_max_ns) / 1e3}}},
          {"failed", seen.failed},
          {"wrong_words", seen.wrong},
          {"timed_out_warps", seen.timed_out}};
}

/// Reads of blocks of 512 bytes that the GPU makes by itself from anywhere in page-locked memory of that size; and
/// copies, to anywhere in `client_bytes`, as much as a client's threads read into.
struct raw_host_rates {
  json reads, copies;
};
raw_host_rates raw_host_reads(std::uint64_t bytes, std::uint64_t client_bytes) {
  // Freed before the drive is opened, which then gets the very same memory.
  memory::allocation const region(memory::pinned(), bytes, std::size_t{2} << 20);
  memory::allocation const sink(memory::device(0), 4096, 4096);
  memory::allocation const buffers(memory::device(0), client_bytes, 4096);
  memory::cuda_stream const stream(0);
  std::uint32_t const blocks = forebay::bench::multiprocessors() * 2;
  constexpr std::uint32_t rounds = 100;
  auto const measure = [&](std::byte* to) -> json {
    std::vector<double> rates;
    for (int i = 0; i <= runs_per_case; ++i) {
      double const seconds = forebay::bench::seconds_of(stream, [&] {
        forebay::bench::launch_raw_reads({.blocks = blocks, .threads_per_block = 512}, region.as<std::byte>(), bytes,
                                         rounds, to, buffers.size_bytes(), sink.as<std::uint32_t>(), stream.get());
      });
      if (i != 0) rates.push_back(blocks * 16.0 * rounds * 8 / seconds);
    }
    std::sort(rates.begin(), rates.end());
    json found = {{"reads_per_second", rates}, {"median", rates[rates.size() / 2]}};
    if (to != nullptr) found["into_bytes"] = buffers.size_bytes();
    return found;
  };
  return {measure(nullptr), measure(buffers.as<std::byte>())};
}

/// The median of the figures that a drive or a client reports for one part of the latency.
std::string part_us(json const& report, char const* part) {
  auto const latency = report.find("latency");
  if (latency == report.end() || !latency->contains(part)) return "";
  return fmt::format("{} {:.2f}, ", part, (*latency)[part]["p50_ns"].get<double>() / 1e3);
}

void print(bench_case const& c, json const& median, json const& report) {
  double const iops = median["iops"].get<double>();
  json const& latency = median["latency_us"];
  fmt::print(
      "{:11} {:28} {:8.2f} MIOPS{} | p50 us: {}end-to-end {:.2f} (mean {:.2f}, min {:.2f}) | late ns p50 {} "
      "p99.9 {} max {} | gap ns {} | {}\n",
      c.group, c.name, iops / 1e6,
      c.expected_iops != 0 ? fmt::format(" {:6.2f}%", 100 * iops / c.expected_iops) : std::string(8, ' '),
      part_us(report, "target") + part_us(report, "processing"), latency["p50"].get<double>(),
      latency["mean"].get<double>(), latency["min"].get<double>(), report["lateness"]["p50_ns"].get<std::uint64_t>(),
      report["lateness"]["p99.9_ns"].get<std::uint64_t>(), report["lateness"]["max_ns"].get<std::uint64_t>(),
      report["poll_gap"]["p50_ns"].get<std::uint64_t>(), report["fidelity"].get<std::string>());
  std::fflush(stdout);
}

/// Measures cases on one drive, as long as they have the same key.
class bench {
 public:
  /// `client_sms`: multiprocessors that the client may use; 0: all that it sees, less those of a drive in its process.
  bench(std::string residency, std::uint32_t client_sms) : residency_(std::move(residency)), client_sms_(client_sms) {}

  /// Returns whether all data that was read was right; adds to `results`.
  bool run(bench_case c, json& results) {
    raw_host_rates raw;
    if (c.host_bytes != 0) {
      drive_.reset();
      std::uint64_t const threads = std::uint64_t{client_sms(c)} * c.threads_per_block;
      raw = raw_host_reads(c.host_bytes, forebay::bench::raw_area::bytes(threads, c.block_bytes));
      c.expected_iops = raw.reads["median"].get<double>();
    }
    auto seen = std::make_unique<raw_result>();
    bool good = open(c, *seen);
    raw_workload work = drive_->workload(c);
    json document = {{"group", c.group},
                     {"name", c.name},
                     {"drive", c.drive_uri(residency_)},
                     {"residency", residency_},
                     {"queues", c.queue_count()},
                     {"queue_depth", c.depth},
                     {"queue_of", c.own_queues ? "a warp" : "several warps"},
                     {"lanes_per_warp", c.lanes},
                     {"block_bytes", c.block_bytes},
                     {"write_percent", c.write_percent}};
    if (c.moves_data) document["every_byte_checked"] = checked_;
    work.rounds = 2;
    double const short_s = drive_->run(c, work, *seen);
    // Otherwise each run would take as long as a client waits.
    if (seen->timed_out != 0) throw forebay::operation_failed("completions did not come in time");
    good = good && (!c.moves_data || clean(*seen));
    double const rate = static_cast<double>(seen->commands) / short_s;
    run_for(c, rate, work);
    if (c.blocks == 0 && residency_ == "served") make_fit(c, work, *seen);
    document["client_threads"] = drive_->threads(c);
    document["client_blocks"] = drive_->blocks(c);
    drive_->reset_statistics();
    json runs = json::array();
    double all_seconds = 0;
    for (int i = 0; i < runs_per_case; ++i) {
      work.seed = static_cast<std::uint64_t>(100 + i);
      double const seconds = drive_->run(c, work, *seen);
      all_seconds += seconds;
      if (!c.moves_data) seen->wrong = 0;
      good = good && clean(*seen);
      runs.push_back(describe(*seen, seconds, c.block_bytes));
    }
    std::sort(runs.begin(), runs.end(), [](json const& a, json const& b) { return a["iops"] < b["iops"]; });
    json const median = runs[runs_per_case / 2];
    document["median"] = runs_per_case / 2;
    document["runs"] = runs;
    document["report"] = drive_->report();
    document["right"] = good;
    forebay::bench::row_drives drives;
    drives.add(document["report"], all_seconds);
    drives.describe(document);
    if (document["beyond_link"].get<bool>() && c.link.empty()) {
      document["note"] =
          "more than a PCIe 5.0 x16 link carries (63.0 GB/s each way): no drive behind one link does this";
    }
    if (c.host_bytes != 0) {
      document["raw_reads"] = raw.reads;
      document["raw_copies"] = raw.copies;
    }
    if (c.expected_iops != 0) {
      document["expected_iops"] = c.expected_iops;
      document["of_expected"] = median["iops"].get<double>() / c.expected_iops;
    }
    if (c.expected_latency_us != 0) document["expected_latency_us"] = c.expected_latency_us;
    print(c, median, document["report"]);
    results.push_back(std::move(document));
    return good;
  }

  /// The next case has a drive of its own.
  void forget() { drive_.reset(); }

  /// Keeps the case running until standard input ends. Prints a line when it runs, and then its results.
  bool load(bench_case const& c) {
    auto seen = std::make_unique<raw_result>();
    bool good = open(c, *seen);
    raw_workload work = drive_->workload(c);
    run_for(c, c.expected_iops, work);
    drive_->reset_statistics();
    double seconds = 0;
    std::uint64_t commands = 0;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    for (bool said = false; ::poll(&input, 1, 0) == 0; said = true) {
      ++work.seed;
      seconds += drive_->run(c, work, *seen);
      commands += seen->commands;
      good = good && clean(*seen);
      if (said) continue;
      fmt::print("running\n");
      std::fflush(stdout);
    }
    json const done = {{"drive", c.drive_uri(residency_)},
                       {"iops", static_cast<double>(commands) / seconds},
                       {"seconds", seconds},
                       {"right", good},
                       {"report", drive_->report()}};
    fmt::print("{}\n", done.dump());
    return good;
  }

 private:
  std::uint32_t client_sms(bench_case const& c) const {
    std::uint32_t const all = forebay::bench::multiprocessors();
    // Under MPS a process may see only its own share of the multiprocessors, or all.
    if (client_sms_ != 0) return std::min(client_sms_, all);
    return residency_ == "peer" ? all : all - std::min(c.sms, all - 1);
  }

  /// Makes each thread go on until the time is over. If there are more threads than the GPU runs at a time, each has as
  /// many commands as take that long at `rate` of them a second.
  void run_for(bench_case const& c, double rate, raw_workload& work) const {
    work.rounds = std::numeric_limits<std::uint32_t>::max();
    work.run_ns = static_cast<std::uint64_t>(c.seconds * 1e9);
    if (drive_->fit_at_a_time(c)) return;
    double const rounds = c.seconds * rate / static_cast<double>(drive_->threads(c));
    work.rounds = static_cast<std::uint32_t>(std::clamp(rounds, 2.0, 100'000.0));
    work.run_ns = 0;
  }

  void make_fit(bench_case const& c, raw_workload work, raw_result& seen) {
    forebay::bench::make_fit(
        [&](std::uint64_t ns) {
          work.run_ns = ns;
          return drive_->run(c, work, seen);
        },
        [&] {
          if (drive_->blocks(c) == 1 || seen.timed_out != 0) return false;
          drive_->leave_a_multiprocessor();
          return true;
        });
  }

  /// Opens and writes the drive of `c`, if it is not open. Returns whether that went well.
  bool open(bench_case const& c, raw_result& seen) {
    if (drive_ && drive_->key() == c.drive_key(residency_)) return true;
    drive_.reset();
    drive_ = std::make_unique<rig>(c, residency_, client_sms(c));
    if (!c.moves_data) return true;
    bool const right = drive_->fill(c, seen);
    checked_ = {{"commands", seen.commands}, {"wrong_words", seen.wrong}, {"right", right}};
    return right;
  }

  std::string const residency_;
  std::uint32_t const client_sms_;
  std::unique_ptr<rig> drive_;
  json checked_;
};

int measure(drives_asked const& o, std::vector<bench_case> cases, command_line const& given) {
  o.check();
  json document;
  auto const store = [&](json const& results) {
    document = o.document("emulated_drive", "", results);
    given.write(document.dump(2));
  };
  bool good = true;
  if (o.where.residency() == "served" && o.drive.empty()) {
    good = forebay::bench::measure_served(forebay::bench::drives_of(cases, o.where.residency()), o.json_path,
                                          o.passed_on(), store);
  } else {
    std::erase_if(cases,
                  [&](bench_case const& c) { return !o.drive.empty() && c.drive_uri(o.where.residency()) != o.drive; });
    good = forebay::bench::measure_each(cases, bench(o.where.residency(), o.client_sms), store);
  }
  return forebay::bench::exit_status(given, document, good);
}

int run(command_line const& given) {
  if (given.has("--multiprocessors")) {
    fmt::print("{}\n", forebay::bench::multiprocessors());
    return 0;
  }
  drives_asked const o(given);
  std::vector<bench_case> cases = forebay::bench::cases_of(o.group, o.where.residency());
  for (bench_case& c : cases) o.choose(c);
  if (given.has("--list")) {
    for (bench_case const& c : cases) fmt::print("{}\t{}\t{}\n", c.group, c.name, c.drive_uri(o.where.residency()));
    return 0;
  }
  if (given.has("--load")) {
    std::string const name = given.text("--load", "");
    auto const found = std::find_if(cases.begin(), cases.end(), [&](bench_case const& c) { return c.name == name; });
    if (found == cases.end()) throw forebay::refused_input("--load", name, "name a case that --list prints");
    return bench(o.where.residency(), 0).load(*found) ? 0 : 1;
  }
  return measure(o, cases, given);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = joined(drive_options::with_value_but_sms(drives_asked::with_value()),
                         {{"--load", "keep the case of this name running until standard input ends"}}),
    .switches = drive_options::switches({{"--list", "print the cases and measure nothing"},
                                         {"--multiprocessors", "print how many the GPU has and measure nothing"}}),
    .environment = {},
    .run = run};
