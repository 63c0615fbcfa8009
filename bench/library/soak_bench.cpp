// SPDX-License-Identifier: Apache-2.0
//! \file
//! For `--seconds`: kernels in four streams read and write four drives by every path of the library, while the host
//! flushes, and while one of the drives fails some commands. Every error status that a thread gets must be the one that
//! this drive gives, and of a page that lies there. Every transfer that ended well must be right. In the end the drives
//! are compared byte by byte with what was written.
#include "library/soak_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "forebay/status_text.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/row_drives.hpp"

namespace {

using forebay::bench::command_line;
using nlohmann::json;
namespace bench = forebay::bench;
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

int run(command_line const& given) {
  double const seconds = given.number("--seconds", 60.0);
  auto const seed = given.number("--seed", std::uint64_t{1});
  auto const errors_ppm = given.number("--errors-ppm", 10u);
  auto const launch_ms = given.number("--launch-ms", 500u);
  auto const threads = given.number("--threads", 2048u);
  if (threads == 0 || threads % 128 != 0) {
    throw forebay::refused_input("--threads", std::to_string(threads), "is a multiple of 128");
  }
  constexpr std::uint32_t streams = 4, drives = 4, failing = drives - 1;
  bench::drive_options const where(given, drives);
  std::string const uri = given.text("--drive", "emulated:size=64M,latency_us=20,iops=2M");
  forebay::storage_options o;
  o.drives = where.uris(uri, failing);
  o.drives.push_back(where.uri(fmt::format("{},errors_ppm={},seed={}", uri, errors_ppm, seed)));
  o.device = "cuda:0";
  o.cache.page_bytes = 4096;
  o.stripe_bytes = o.cache.page_bytes;
  o.cache.size_bytes = given.number("--cache-mb", std::uint64_t{32}) << 20;
  o.cache.user_frames = 1024;
  if (auto const status = where.run_as_client(given, drives)) return *status;
  fmt::print("seed {}: {} streams of {} threads for {} s on {} drives such as {}\n", seed, streams, threads, seconds,
             drives, o.drives[failing]);
  auto const daemon = where.serve(o.drives);
  bench::soak_work work;
  work.drives = drives;
  work.failing_drive = failing;
  bench::soak_on_gpu on(o, streams, threads, work);
  on.drives().reset_statistics();

  std::uint64_t launches = 0, flushes = 0, failed_flushes = 0;
  auto const begin = clock_type::now();
  double told = 0;
  while (seconds_since(begin) < seconds) {
    on.start(std::uint64_t{launch_ms} * 1'000'000, seed + launches * 1'000'003);
    ++launches;
    // While they run.
    do {
      failed_flushes += bench::in_spite_of_failures([&] { on.drives().flush(); }, 1);
      ++flushes;
    } while (on.running());
    on.finish();
    double const now = seconds_since(begin);
    if (now - told >= 10) {
      told = now;
      bench::soak_result const seen = on.seen();
      std::uint64_t done = 0, failed = 0;
      for (std::uint32_t s = 0; s < bench::soak_steps; ++s) done += seen.done[s], failed += seen.failed[s];
      fmt::print(stderr, "  {:5.0f} s: {} steps, {} failed, {} wrong, {} strange, {} flushes\n", now, done, failed,
                 seen.wrong, seen.strange, flushes);
    }
  }
  double const took = seconds_since(begin);
  bench::soak_result const seen = on.seen();
  std::uint64_t const wrong_words = bench::soak_wrong_words(on.drives(), on.written(), &failed_flushes);
  json const report = json::parse(on.drives().report());
  std::uint64_t const injected = report["drives"][failing]["statistics"]["injected_errors"].get<std::uint64_t>();

  json steps = json::object();
  std::uint64_t done = 0, failed = 0;
  for (std::uint32_t s = 0; s < bench::soak_steps; ++s) {
    steps[bench::soak_step_names[s]] = {{"done", seen.done[s]}, {"failed", seen.failed[s]}};
    done += seen.done[s];
    failed += seen.failed[s];
    fmt::print("  {:20} {:12} done, {:8} failed\n", bench::soak_step_names[s], seen.done[s], seen.failed[s]);
  }
  bool const good = seen.wrong == 0 && seen.strange == 0 && seen.unsettled == 0 && wrong_words == 0 && done != 0 &&
                    (errors_ppm == 0 || injected == 0 || failed + failed_flushes != 0);
  fmt::print(
      "{} steps in {:.0f} s, {} failed, {} of them strange{}; {} injected errors; {} flushes, {} failed; {} wrong "
      "words while it ran, {} on the drives; {} unsettled: {}\n",
      done, took, failed, seen.strange,
      seen.strange == 0 ? "" : " (" + to_string(forebay::status::from_bits(seen.first_strange)) + ")", injected,
      flushes, failed_flushes, seen.wrong, wrong_words, seen.unsettled, good ? "good" : "WRONG");
  json document = forebay::bench::document_of("library_soak", given.as_typed());
  document.update({{"seed", seed},
                   {"seconds", took},
                   {"streams", streams},
                   {"threads_of_stream", threads},
                   {"drives", o.drives},
                   {"cache_bytes", o.cache.size_bytes},
                   {"user_frames", o.cache.user_frames},
                   {"launches", launches},
                   {"steps", steps},
                   {"steps_done", done},
                   {"steps_failed", failed},
                   {"strange_statuses", seen.strange},
                   {"refused_prefetches", seen.refused_prefetches},
                   {"injected_errors", injected},
                   {"flushes", flushes},
                   {"failed_flushes", failed_flushes},
                   {"wrong_while_running", seen.wrong},
                   {"wrong_words_on_drives", wrong_words},
                   {"unsettled", seen.unsettled},
                   {"report", report}});
  bench::row_drives of_all;
  of_all.add(report, took);
  of_all.describe(document);
  return forebay::bench::finish(given, std::move(document), good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = drive_options::with_value(
        {{"--seconds", "default: 60"},
         {"--seed", "default: 1"},
         {"--drive", "URI of each of the four drives; default: an emulated drive of 64 MiB and 2 MIOPS"},
         {"--errors-ppm", "of a million commands, how many fail on one drive; default: 10"},
         {"--cache-mb", "MiB of the cache; default: 32"},
         {"--threads", "of each of four streams; default: 2048"},
         {"--launch-ms", "milliseconds of each launch; default: 500"}}),
    .switches = drive_options::switches({}),
    .environment = {load_all_code},
    .run = run};
