// SPDX-License-Identifier: Apache-2.0
//! \file
//! What frames in the GPU's memory are worth over a drive that does not reach it: random reads that all hit, and reads
//! that all miss, of a file, with the frames in the GPU's memory and in host memory; and the hits over a drive in the
//! GPU's memory, which needs no staging.
#include "library/staged_bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
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

constexpr std::uint32_t staging_pages = 4096;

struct program {
  bench::drive_options const& where;
  std::string file_uri;
  std::uint32_t sms = 0;  ///< of the client
  bool quick = false;
  bool good = true;
  json results = json::array();
  json kernels = json::object();

  std::uint64_t bytes() const { return std::uint64_t{quick ? 256u : 1024u} << 20; }

  forebay::storage_options options(std::string const& uri, std::uint64_t cache_bytes, bool staged) const {
    forebay::storage_options o;
    o.drives = {uri};
    o.device = "cuda:0";
    o.cache.size_bytes = cache_bytes;
    if (staged) o.cache.staging_pages = staging_pages;
    return o;
  }

  template <class Run>
  double repeat(std::string const& name, json extra, bench::cached_elements& of, Run&& once) {
    once(0);
    of.drives().reset_statistics();
    std::vector<double> rates;
    json list = json::array();
    double seconds = 0;
    bool right = true;
    for (int i = 1; i <= bench::runs_per_case; ++i) {
      cache_run const r = once(i);
      seconds += r.seconds;
      right = right && r.seen.wrong == 0 && r.seen.failed == 0;
      rates.push_back(static_cast<double>(r.seen.accesses) / r.seconds);
      list.push_back(
          {{"seconds", r.seconds}, {"accesses", r.seen.accesses}, {"wrong", r.seen.wrong}, {"failed", r.seen.failed}});
    }
    good = good && right;
    std::sort(rates.begin(), rates.end());
    double const rate = rates[rates.size() / 2];
    fmt::print("{:60} {:10.3f} M/s{}\n", name, rate / 1e6, right ? "" : "  WRONG");
    std::fflush(stdout);
    extra.update({{"name", name}, {"accesses_per_s", rate}, {"right", right}, {"runs", list}});
    bench::row_drives drives;
    drives.add(json::parse(of.drives().report()), seconds);
    drives.describe(extra);
    results.push_back(std::move(extra));
    return rate;
  }

  /// All hits, by threads of each multiprocessor: the rates, in that order.
  std::vector<double> hits(std::string const& frames, std::string const& uri, bool staged) {
    auto const of = bench::open_cached_elements(options(uri, bytes(), staged), sms);
    kernels[staged ? "staged_frames" : "direct_frames"] = json::parse(of->kernel_shapes());
    cache_run const written = of->write();
    good = good && written.seen.failed == 0;
    of->drives().flush();
    std::vector<double> rates;
    for (std::uint32_t const threads : {512u, 1024u, 2048u}) {
      rates.push_back(repeat(fmt::format("random 8 bytes, all hits, {}, {} threads an SM", frames, threads),
                             {{"group", "hits"}, {"frames", frames}, {"threads_per_sm", threads}}, *of,
                             [&](int i) { return of->random(threads, 256, static_cast<std::uint64_t>(i)); }));
    }
    return rates;
  }
  void misses(std::string const& frames, bool staged) {
    auto const of = bench::open_cached_elements(options(file_uri, bytes() / 16, staged), sms);
    std::uint64_t const count = bytes() / 4096 / 8;
    for (std::uint32_t const threads : {256u, 1024u}) {
      repeat(fmt::format("4 KiB pages, all misses, {}, {} threads an SM", frames, threads),
             {{"group", "misses"}, {"frames", frames}, {"threads_per_sm", threads}}, *of,
             [&](int i) { return of->each_page(threads, static_cast<std::uint64_t>(i) * count, count); });
    }
  }

  void measure() {
    std::string const in_hbm = "frames over a drive in GPU memory", staged = "staged frames over a file",
                      in_host = "frames in host memory over a file";
    std::vector<double> const best =
        hits(in_hbm, where.uri("emulated:size=" + std::to_string(bytes()) + ",queues=512"), false);
    std::vector<double> const ours = hits(staged, file_uri, true);
    hits(in_host, file_uri, false);
    misses(staged, true);
    misses(in_host, false);
    double least = 1e9;
    for (std::size_t i = 0; i < best.size(); ++i) least = std::min(least, ours[i] / best[i]);
    fmt::print("hits over a file reach at least {:.1f} % of those over a drive in GPU memory\n", 100 * least);
    of_hbm = least;
  }
  double of_hbm = 0;
};

int run(command_line const& given) {
  bench::drive_options const where(given, 1);
  program p{.where = where};
  p.quick = given.has("--quick");
  std::string const file = given.text("--file", "");
  if (file.empty()) throw forebay::refused_input("--file", "", "name a file that the benchmark makes, and removes");
  if (std::filesystem::exists(file)) throw forebay::refused_input("--file", file, "name a file that is not there yet");
  p.file_uri = "file:" + file;
  if (auto const status = where.run_as_client(given, 1)) return *status;
  p.sms = where.client_sms(1);
  struct remover {
    std::string const& file;
    ~remover() {
      std::error_code ignored;
      std::filesystem::remove(file, ignored);
    }
  } const at_the_end{file};
  {
    bench::open_cached_elements(p.options(p.file_uri + ",create=1,size=" + std::to_string(p.bytes()), 1 << 20, false),
                                1);
  }
  p.measure();
  json document = forebay::bench::document_of("library_staged", given.as_typed());
  document.update({{"client_sms", p.sms},
                   {"staging_pages", staging_pages},
                   {"least_of_hits_in_gpu_memory", p.of_hbm},
                   {"kernels", p.kernels},
                   {"results", p.results}});
  return forebay::bench::finish(given, std::move(document), p.good);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = drive_options::with_value({{"--file", "the file to make, measure and remove"}}),
    .switches = drive_options::switches({{"--quick", "a smaller file"}}),
    .environment = {},
    .run = run};
