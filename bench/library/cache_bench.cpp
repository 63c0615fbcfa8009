// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the cache costs if all accesses hit, and the rate that it reaches if all miss. Also that no write is lost when
//! four times as much is written and read as the cache holds.
#include "library/cache_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/repeated.hpp"
#include "harness/row_drives.hpp"

namespace {

using forebay::bench::command_line;
using nlohmann::json;
namespace bench = forebay::bench;
using bench::cache_run;
using bench::runs_per_case;

struct program {
  bench::drive_options const& where;
  json results = json::array();
  bool good = true;
  bool quick = false;
  std::vector<std::uint32_t> windows{1, 4, 8, 16, 32};  ///< pages that a streaming warp holds
  std::uint32_t sms = 0;                                ///< of the client

  forebay::storage_options options(std::uint64_t drive_bytes, std::uint64_t cache_bytes) const {
    forebay::storage_options o;
    o.drives = where.uris("emulated:size=" + std::to_string(drive_bytes) + ",queues=512", 1);
    o.device = "cuda:0";
    o.queues.per_drive = 511;
    o.cache.size_bytes = cache_bytes;
    return o;
  }

  /// `of_drives`: the storage's report, on these runs alone.
  void report(std::string const& name, json extra, std::string const& of_drives, std::vector<cache_run> runs) {
    std::sort(runs.begin(), runs.end(), [](auto const& a, auto const& b) {
      return static_cast<double>(a.seen.accesses) / a.seconds < static_cast<double>(b.seen.accesses) / b.seconds;
    });
    cache_run const& median = runs[runs.size() / 2];
    double const rate = static_cast<double>(median.seen.accesses) / median.seconds;
    json list = json::array();
    bool right = true;
    double seconds = 0;
    for (cache_run const& r : runs) {
      seconds += r.seconds;
      right = right && r.seen.wrong == 0 && r.seen.failed == 0;
      list.push_back(
          {{"seconds", r.seconds}, {"accesses", r.seen.accesses}, {"wrong", r.seen.wrong}, {"failed", r.seen.failed}});
    }
    good = good && right;
    fmt::print("{:44} {:10.2f} M/s {:8.1f} GB/s of elements{}\n", name, rate / 1e6, rate * 8 / 1e9,
               right ? "" : "  WRONG");
    std::fflush(stdout);
    extra.update({{"name", name}, {"accesses_per_s", rate}, {"bw_bytes", rate * 8}, {"right", right}, {"runs", list}});
    bench::row_drives drives;
    drives.add(json::parse(of_drives), seconds);
    drives.describe(extra);
    results.push_back(std::move(extra));
  }
  template <class Run>
  void repeat(std::string const& name, json const& extra, bench::cache_rig& rig, Run&& once) {
    once(0);
    rig.drives().reset_statistics();
    std::vector<cache_run> runs;
    for (int i = 1; i <= runs_per_case; ++i) runs.push_back(once(i));
    report(name, extra, rig.drives().report(), std::move(runs));
  }

  void hits() {
    std::uint64_t const bytes = std::uint64_t{quick ? 1u : 4u} << 30;
    forebay::storage_options const o = options(bytes, bytes);
    auto const daemon = where.serve(o.drives);
    bench::cache_rig rig(o, sms, bytes / 8);
    shapes = json::parse(rig.kernel_shapes());
    cache_run const written = rig.write();
    good = good && written.seen.failed == 0;
    for (bool const memory : {true, false}) {
      std::string const elements_in = memory ? "memory" : "view, all hits";
      for (std::uint32_t const threads : {512u, 1024u, 2048u}) {
        // For memory a warp goes on to the next stretch as a warp with one page does.
        for (std::uint32_t const pages : memory ? std::vector<std::uint32_t>{1} : windows) {
          repeat(fmt::format("stream, {}, {} threads an SM, {} pages a warp", elements_in, threads, pages),
                 {{"group", "hits"}, {"pages", pages}, {"threads_per_sm", threads}}, rig,
                 [&](int) { return rig.stream(memory, threads, pages); });
        }
        repeat(fmt::format("random 8 bytes, {}, {} threads an SM", elements_in, threads), {{"group", "hits"}}, rig,
               [&](int i) { return rig.random(memory, threads, 256, static_cast<std::uint64_t>(i)); });
      }
    }
  }
  void misses() {
    std::uint64_t const bytes = std::uint64_t{quick ? 8u : 16u} << 30;
    forebay::storage_options const o = options(bytes, std::uint64_t{2} << 30);
    auto const daemon = where.serve(o.drives);
    bench::cache_rig rig(o, sms, 0);
    good = rig.write().seen.failed == 0 && good;
    rig.drives().flush();
    std::uint64_t const count = std::uint64_t{1} << 20;
    for (std::uint32_t const threads : {256u, 512u, 1024u}) {
      repeat(fmt::format("4 KiB pages, all misses, {} threads an SM", threads), {{"group", "misses"}}, rig,
             [&](int i) { return rig.each_page(threads, static_cast<std::uint64_t>(i) * count, count); });
    }
  }
  void mixed() {
    std::uint64_t const bytes = std::uint64_t{1} << 30;
    forebay::storage_options const o = options(bytes, bytes / 4);
    auto const daemon = where.serve(o.drives);
    bench::cache_rig rig(o, sms, 0);
    good = rig.write().seen.failed == 0 && good;
    std::uint32_t const threads = sms * 512;
    std::uint64_t const operations = quick ? 20'000'000 : 1'000'000'000;
    auto const rounds = static_cast<std::uint32_t>(operations / runs_per_case / threads + 1);
    std::vector<cache_run> runs;
    std::uint64_t added = 0;
    rig.drives().reset_statistics();
    for (int i = 0; i < runs_per_case; ++i) {
      runs.push_back(rig.read_and_add(512, rounds, 30, static_cast<std::uint64_t>(i)));
      added += runs.back().seen.added;
    }
    std::string const of_drives = rig.drives().report();
    // Checks through the cache, then what the drive has.
    std::uint64_t const through_cache = rig.stream(false, 1024, 8).seen.sum;
    rig.drives().flush();
    std::vector<std::uint64_t> words(1 << 20);
    std::uint64_t on_drive = 0, wrong = 0;
    for (std::uint64_t at = 0; at < bytes; at += words.size() * 8) {
      rig.drives().pread(words.data(), words.size() * 8, at);
      for (std::size_t i = 0; i < words.size(); ++i) {
        wrong += words[i] >> bench::count_bits_of_element != at / 8 + i;
        on_drive += words[i] & ((1u << bench::count_bits_of_element) - 1);
      }
    }
    bool const none_lost = through_cache == added && on_drive == added && wrong == 0;
    good = good && none_lost;
    fmt::print("  {} added, {} found through the cache, {} on the drive, {} wrong elements{}\n", added, through_cache,
               on_drive, wrong, none_lost ? "" : "  LOST");
    report("70 % read, 30 % added, 4 times the cache",
           {{"group", "mixed"},
            {"added", added},
            {"found_through_cache", through_cache},
            {"found_on_drive", on_drive},
            {"wrong_on_drive", wrong}},
           of_drives, std::move(runs));
  }

  json shapes;
};

int run(command_line const& given) {
  bench::drive_options const where(given, 1);
  program p{.where = where};
  p.quick = given.has("--quick");
  p.windows = given.numbers("--pages", p.windows);
  for (std::uint32_t const pages : p.windows) {
    if (pages == 0 || pages > 32) throw forebay::refused_input("--pages", std::to_string(pages), "use 1 to 32");
  }
  std::string const group = given.text("--group", "");
  if (!group.empty() && group != "hits" && group != "misses" && group != "mixed") {
    throw forebay::refused_input("--group", group, "use hits, misses or mixed");
  }
  if (auto const status = where.run_as_client(given, 1)) return *status;
  p.sms = where.client_sms(1);
  if (group.empty() || group == "hits") p.hits();
  if (group.empty() || group == "misses") p.misses();
  if (group.empty() || group == "mixed") p.mixed();
  json document = forebay::bench::document_of("library_cache", given.as_typed());
  document.update({{"client_sms", p.sms}, {"kernels", p.shapes}, {"results", p.results}});
  return forebay::bench::finish(given, std::move(document), p.good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value =
        drive_options::with_value({{"--group", "hits, misses or mixed; default: all three"},
                                   {"--pages", "pages that a warp holds, with commas; default: 1,4,8,16,32"}}),
    .switches = drive_options::switches({{"--quick", "smaller drives, and fewer accesses"}}),
    .environment = {},
    .run = run};
