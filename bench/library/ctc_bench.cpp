// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a kernel gains by reading ahead while it computes: one block of 1,024 threads, computation against
//! communication from 0 to 2, both ways timed.
//!
//! Communication is the time that the rounds take without computation. Computation is a chain of multiply-adds; its
//! time is that of a kernel with the same rounds that reads nothing. Both are measured, the second one at every point.
//! The ratio is that of two programs that differ only in when a round's reads are started. A third program, whose warps
//! compute as soon as their own reads are complete, is shown beside them: warps that do not wait for each other overlap
//! by themselves.
#include "library/ctc_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/row_drives.hpp"

namespace {

using forebay::bench::command_line;
using forebay::bench::ctc_ideal_ratio;
using forebay::bench::ctc_on_gpu;
using forebay::bench::ctc_result;
using forebay::bench::ctc_work;
using nlohmann::json;

struct geometry {
  std::string name;
  std::vector<std::string> drives;
  ctc_work work;
  std::vector<double> ratios;
};

struct median_of_runs {
  std::vector<double> seconds;
  double median() const { return seconds[seconds.size() / 2]; }
  double sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

class sweep {
 public:
  sweep(geometry const& g, forebay::bench::drive_options const& where, int runs)
      : g_(g), runs_(runs), daemon_(where.serve(g.drives)), gpu_(g.drives, largest(g.work)) {
    g_.work.blocks = gpu_.blocks();
  }

  json run(bool& good) {
    ctc_work probe = g_.work;
    probe.rounds = 1;
    auto const seconds_of_steps = [&](std::uint32_t steps) {
      probe.steps = steps;
      return timed([&] { return gpu_.seconds_to_compute(probe); }).median();
    };
    constexpr std::uint32_t few = 10'000, many = 110'000;
    // The difference of two runs, so that the time of a launch does not count.
    seconds_of_steps(few);
    double const step_s = (seconds_of_steps(many) - seconds_of_steps(few)) / (many - few);
    double const communication_s = run(0, in_turn).median();
    double const round_s = communication_s / g_.work.rounds;
    fmt::print("{}: a round of {} reads of {} B takes {:.2f} us, a step of computation {:.3f} ns; {} registers\n",
               g_.name, g_.work.commands * ctc_on_gpu::threads, g_.work.block_bytes, round_s * 1e6, step_s * 1e9,
               gpu_.registers());
    json points = json::array();
    forebay::bench::row_drives drives;
    double best = 0, worst = 1e9;
    for (double const c : g_.ratios) {
      auto const steps = static_cast<std::uint32_t>(std::lround(c * round_s / step_s));
      ctc_work alone = g_.work;
      alone.steps = steps;
      double const computation_s = timed([&] { return gpu_.seconds_to_compute(alone); }).median();
      gpu_.reset_statistics();
      median_of_runs const sync = run(steps, in_turn), async = run(steps, ahead),
                           loose = run(steps, warps_by_themselves);
      json const report = json::parse(gpu_.report());
      double const ratio = sync.median() / async.median();
      double const ideal = std::max(1.0, 1 + c) / std::max(1.0, c);
      best = std::max(best, ratio);
      worst = std::min(worst, ratio);
      fmt::print(
          "  c {:.2f} ({:.2f} measured): in turn {:9.1f} us, ahead {:9.1f} us, ratio {:.3f}, ideal {:.3f} ({:.3f} with "
          "both ends); in turn, each warp by itself {:9.1f} us\n",
          c, computation_s / communication_s, sync.median() * 1e6, async.median() * 1e6, ratio, ideal,
          ctc_ideal_ratio(c, g_.work.rounds), loose.median() * 1e6);
      std::fflush(stdout);
      points.push_back({{"ratio_of_computation", c},
                        {"steps", steps},
                        {"computation_alone_s", computation_s},
                        {"computation_over_communication", computation_s / communication_s},
                        {"sync_s", sync.seconds},
                        {"async_s", async.seconds},
                        {"sync_median_s", sync.median()},
                        {"async_median_s", async.median()},
                        {"sync_each_warp_by_itself_s", loose.seconds},
                        {"sync_each_warp_by_itself_median_s", loose.median()},
                        {"sync_over_async", ratio},
                        {"ideal", ideal},
                        {"ideal_with_both_ends", ctc_ideal_ratio(c, g_.work.rounds)},
                        {"report", report}});
      double const seconds = sync.sum() + async.sum() + loose.sum();
      forebay::bench::row_drives of_point;
      of_point.add(report, seconds);
      of_point.describe(points.back());
      drives.add(report, seconds);
    }
    fmt::print("  best {:.3f}, worst {:.3f}\n", best, worst);
    good = good && seen_.failed == 0 && seen_.wrong == 0 && seen_.reads != 0;
    json row = {{"name", g_.name},
                {"drives", g_.drives},
                {"blocks", 1},
                {"threads", ctc_on_gpu::threads},
                {"commands_per_thread_and_round", g_.work.commands},
                {"rounds", g_.work.rounds},
                {"rounds_ahead", rounds_ahead},
                {"block_bytes", g_.work.block_bytes},
                {"registers_per_thread", gpu_.registers()},
                {"local_bytes_per_thread", gpu_.local_bytes()},
                {"communication_alone_s", communication_s},
                {"communication_s_per_round", round_s},
                {"computation_s_per_step", step_s},
                {"points", points},
                {"best_sync_over_async", best},
                {"worst_sync_over_async", worst},
                {"reads", seen_.reads},
                {"failed", seen_.failed},
                {"wrong_reads", seen_.wrong},
                {"storage", json::parse(gpu_.report())}};
    drives.describe(row);
    return row;
  }

 private:
  static ctc_work largest(ctc_work work) {
    work.ahead = rounds_ahead;
    return work;
  }
  template <class Run>
  median_of_runs timed(Run&& once) const {
    median_of_runs found;
    for (int i = 0; i < runs_; ++i) found.seconds.push_back(once());
    std::sort(found.seconds.begin(), found.seconds.end());
    return found;
  }
  struct way {
    std::uint32_t ahead;
    bool together;
  };
  static constexpr std::uint32_t rounds_ahead = 2;
  static constexpr way in_turn{0, true}, ahead{rounds_ahead, true}, warps_by_themselves{0, false};

  median_of_runs run(std::uint32_t steps, way how) {
    ctc_work work = g_.work;
    work.steps = steps;
    work.ahead = how.ahead;
    work.together = how.together;
    return timed([&] {
      ++work.seed;
      return gpu_.seconds(work, seen_);
    });
  }

  geometry g_;
  int runs_;
  std::unique_ptr<forebay::bench::drive_daemon> daemon_;
  ctc_on_gpu gpu_;
  ctc_result seen_;
};

std::vector<double> evenly(double step) {
  std::vector<double> ratios;
  for (int i = 0; i * step <= 2.0001; ++i) ratios.push_back(i * step);
  return ratios;
}

int run(command_line const& given) {
  bool const quick = given.has("--quick");
  // As many drives of this one kind.
  std::uint32_t const count = given.number("--drives", 1u);
  if (count == 0 || count > 64) throw forebay::refused_input("--drives", std::to_string(count), "give 1 to 64");
  forebay::bench::drive_options const where(given, count);
  auto const drives = [&](std::string const& uri) { return where.uris(given.text("--drive", uri), count); };
  std::vector<geometry> geometries = {{"1 read a thread and round",
                                       drives("emulated:size=1G,iops=2470000,latency_us=50"),
                                       {.rounds = 64, .commands = 1},
                                       quick ? evenly(1) : evenly(0.1)},
                                      {"64 reads a thread and round",
                                       drives("emulated:size=1G,iops=20000000,latency_us=50"),
                                       {.rounds = quick ? 8u : 16u, .commands = 64},
                                       quick ? evenly(1) : evenly(0.25)}};
  std::uint32_t const only = given.number("--commands", 0u);
  if (only != 0) {
    std::erase_if(geometries, [&](geometry const& g) { return g.work.commands != only; });
    if (geometries.empty()) {
      geometries = {{fmt::format("{} reads a thread and round", only),
                     drives("emulated:size=1G,iops=2470000,latency_us=50"),
                     {.rounds = 64, .commands = only},
                     quick ? evenly(1) : evenly(0.1)}};
    }
  }
  for (geometry& g : geometries) {
    g.work.rounds = given.number("--rounds", g.work.rounds);
    g.work.block_bytes = given.number("--block-bytes", g.work.block_bytes);
    g.ratios = given.numbers("--ratios", g.ratios);
    if (g.work.rounds == 0) throw forebay::refused_input("--rounds", "0", "is at least 1");
    if (g.work.block_bytes == 0 || g.work.block_bytes % 512 != 0) {
      throw forebay::refused_input("--block-bytes", std::to_string(g.work.block_bytes), "is a multiple of 512");
    }
  }
  if (auto const status = where.run_as_client(given, count)) return *status;
  json document = forebay::bench::document_of("library_ctc", given.as_typed());
  bool good = true;
  for (geometry const& g : geometries) document["results"].push_back(sweep(g, where, quick ? 1 : 5).run(good));
  return forebay::bench::finish(given, std::move(document), good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = drive_options::with_value(
        {{"--drive", "URI of each drive; default: emulated drives of 2.47 MIOPS, of 20 MIOPS with --commands 64"},
         {"--drives", "how many; default: 1"},
         {"--commands", "reads of a thread in each round; default: 1, then 64"},
         {"--rounds", "default: 64, and 16 with --commands 64"},
         {"--block-bytes", "of each read; default: 4096"},
         {"--ratios", "computation over communication, with commas; default: 0 to 2"}}),
    .switches = drive_options::switches({{"--quick", "few ratios, and one run of each"}}),
    .environment = {load_all_code},
    .run = run};
