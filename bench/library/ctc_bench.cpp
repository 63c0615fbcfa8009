// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a kernel gains that reads ahead while it computes: one block of 1,024 threads, computation against
//! communication from 0 to 2, both ways timed.
//!
//! Communication is what a round of reads takes without computation. Computation is a chain of multiply-adds, of which
//! as many are made as take `c` times as long in a kernel that does nothing else.
#include "library/ctc_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/command_line.hpp"
#include "forebay/error.hpp"
#include "machine.hpp"

namespace {

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
};

class sweep {
 public:
  sweep(geometry const& g, int runs) : g_(g), runs_(runs), gpu_(g.drives, largest(g.work)) {
    g_.work.blocks = gpu_.blocks();
  }

  json run(bool& good) {
    constexpr std::uint32_t few = 10'000, many = 110'000;
    // The difference, so that what a launch takes does not count.
    gpu_.seconds_to_compute(1, few);
    double const step_s = (timed([&] { return gpu_.seconds_to_compute(1, many); }).median() -
                           timed([&] { return gpu_.seconds_to_compute(1, few); }).median()) /
                          (many - few);
    median_of_runs const communication = both(0, false);
    double const round_s = communication.median() / g_.work.rounds;
    fmt::print("{}: a round of {} reads of {} B takes {:.2f} us, a step of computation {:.3f} ns; {} registers\n",
               g_.name, g_.work.commands * ctc_on_gpu::threads, g_.work.block_bytes, round_s * 1e6, step_s * 1e9,
               gpu_.registers());
    json points = json::array();
    double best = 0;
    for (double const c : g_.ratios) {
      auto const steps = static_cast<std::uint32_t>(std::lround(c * round_s / step_s));
      median_of_runs const in_turn = both(steps, false), ahead = both(steps, true);
      double const ratio = in_turn.median() / ahead.median();
      double const ideal = std::max(1.0, 1 + c) / std::max(1.0, c);
      best = std::max(best, ratio);
      fmt::print(
          "  c {:.2f}: in turn {:9.1f} us, ahead {:9.1f} us, ratio {:.3f}, ideal {:.3f} ({:.3f} with both ends)\n", c,
          in_turn.median() * 1e6, ahead.median() * 1e6, ratio, ideal, ctc_ideal_ratio(c, g_.work.rounds));
      points.push_back({{"ratio_of_computation", c},
                        {"steps", steps},
                        {"sync_s", in_turn.seconds},
                        {"async_s", ahead.seconds},
                        {"sync_median_s", in_turn.median()},
                        {"async_median_s", ahead.median()},
                        {"sync_over_async", ratio},
                        {"ideal", ideal},
                        {"ideal_with_both_ends", ctc_ideal_ratio(c, g_.work.rounds)}});
    }
    good = good && seen_.failed == 0 && seen_.wrong == 0 && seen_.reads != 0;
    return {{"name", g_.name},
            {"drives", g_.drives},
            {"blocks", 1},
            {"threads", ctc_on_gpu::threads},
            {"commands_per_thread_and_round", g_.work.commands},
            {"rounds", g_.work.rounds},
            {"block_bytes", g_.work.block_bytes},
            {"registers_per_thread", gpu_.registers()},
            {"local_bytes_per_thread", gpu_.local_bytes()},
            {"communication_s_per_round", round_s},
            {"computation_s_per_step", step_s},
            {"points", points},
            {"best_sync_over_async", best},
            {"reads", seen_.reads},
            {"failed", seen_.failed},
            {"wrong_reads", seen_.wrong},
            {"storage", json::parse(gpu_.report())}};
  }

 private:
  static ctc_work largest(ctc_work work) {
    work.asynchronous = true;
    return work;
  }
  template <class Run>
  median_of_runs timed(Run&& once) const {
    median_of_runs found;
    for (int i = 0; i < runs_; ++i) found.seconds.push_back(once());
    std::sort(found.seconds.begin(), found.seconds.end());
    return found;
  }
  median_of_runs both(std::uint32_t steps, bool asynchronous) {
    ctc_work work = g_.work;
    work.steps = steps;
    work.asynchronous = asynchronous;
    return timed([&] {
      ++work.seed;
      return gpu_.seconds(work, seen_);
    });
  }

  geometry g_;
  int runs_;
  ctc_on_gpu gpu_;
  ctc_result seen_;
};

std::vector<double> evenly(double step) {
  std::vector<double> ratios;
  for (int i = 0; i * step <= 2.0001; ++i) ratios.push_back(i * step);
  return ratios;
}

}  // namespace

int main(int argc, char** argv) {
  // Code that is loaded while a drive's engine runs would wait for it.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  try {
    forebay::apps::command_line const given(
        argc, argv, {"--drive", "--drives", "--commands", "--rounds", "--block-bytes", "--ratios"}, {"--quick"});
    bool const quick = given.has("--quick");
    // As many drives of the one kind.
    auto const drives = [&](std::string const& uri) {
      return std::vector<std::string>(given.number("--drives", 1u), given.text("--drive", uri));
    };
    std::vector<geometry> geometries = {{"1 read a thread and round",
                                         drives("emulated:size=1G,iops=2470000,latency_us=50,backing=hbm"),
                                         {.rounds = 64, .commands = 1},
                                         quick ? evenly(1) : evenly(0.1)},
                                        {"64 reads a thread and round",
                                         drives("emulated:size=1G,iops=20000000,latency_us=50,backing=hbm"),
                                         {.rounds = quick ? 8u : 64u, .commands = 64},
                                         quick ? evenly(1) : evenly(0.25)}};
    std::uint32_t const only = given.number("--commands", 0u);
    if (only != 0) {
      std::erase_if(geometries, [&](geometry const& g) { return g.work.commands != only; });
      if (geometries.empty()) {
        geometries = {{fmt::format("{} reads a thread and round", only),
                       drives("emulated:size=1G,iops=2470000,latency_us=50,backing=hbm"),
                       {.rounds = 64, .commands = only},
                       quick ? evenly(1) : evenly(0.1)}};
      }
    }
    json document = {{"schema_version", 1},
                     {"benchmark", "library_ctc"},
                     {"machine", forebay::bench::machine()},
                     {"command", given.as_typed()}};
    bool good = true;
    for (geometry& g : geometries) {
      g.work.rounds = given.number("--rounds", g.work.rounds);
      g.work.block_bytes = given.number("--block-bytes", g.work.block_bytes);
      g.ratios = given.numbers("--ratios", g.ratios);
      if (g.work.rounds == 0) throw forebay::refused_input("--rounds", "0", "is at least 1");
      if (g.work.block_bytes == 0 || g.work.block_bytes % 512 != 0) {
        throw forebay::refused_input("--block-bytes", std::to_string(g.work.block_bytes), "is a multiple of 512");
      }
      document["results"].push_back(sweep(g, quick ? 1 : 5).run(good));
    }
    document["verified"] = good;
    given.write(document.dump(2));
    return good ? 0 : 1;
  } catch (forebay::refused_input const& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  } catch (std::exception const& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
