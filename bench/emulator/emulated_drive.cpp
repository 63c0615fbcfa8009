// SPDX-License-Identifier: Apache-2.0
//! \file
//! What an emulated drive whose engine is on a GPU does, as a client sees it that only submits and waits.
//!
//! Each case opens a drive by its URI, writes the whole of it, reads every byte of a part back, and then runs five
//! times; timed runs look at one word of every block.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emulator/raw_launch.hpp"
#include "event_timer.hpp"
#include "forebay/drive/drive.hpp"
#include "forebay/driver/controller.hpp"
#include "forebay/error.hpp"
#include "forebay/memory/cuda_stream.hpp"
#include "forebay/memory/resource.hpp"
#include "machine.hpp"

namespace {

using forebay::bench::raw_queue;
using forebay::bench::raw_result;
using forebay::bench::raw_workload;
using forebay::bench::seconds_of;
using nlohmann::json;
namespace memory = forebay::memory;
namespace driver = forebay::driver;
namespace simt = forebay::simt;

constexpr int runs_per_case = 5;
constexpr std::uint32_t client_threads_per_block = 1024;
constexpr double pcie5_x16_bytes_per_second = 63.0e9;  // 32 GT/s x 16 lanes x 128/130

struct bench_case {
  std::string group;
  std::string name;
  std::string uri;  ///< without backing, sms and queues
  std::string backing = "hbm";
  std::uint32_t sms = 32;
  std::uint32_t queues = 0;  ///< 0: one for each dispatcher
  std::uint32_t depth = 1024;
  std::uint32_t blocks = 0;  ///< of client threads; 0: all multiprocessors that the drive leaves
  std::uint32_t threads_per_block = client_threads_per_block;
  std::uint32_t lanes = 32;
  std::uint32_t block_bytes = 512;
  std::uint32_t write_percent = 0;
  double seconds = 0.1;          ///< of each run, about
  double expected_iops = 0;      ///< 0: as many as it does
  std::uint64_t host_bytes = 0;  ///< of `backing=host`: the size; what the GPU reads there by itself is expected
  bool moves_data = true;
  forebay::emulator::frontend_techniques frontend;
};

template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count) : memory_(memory::device(0), count * sizeof(T), 4096) {}
  T* data() const { return memory_.template as<T>(); }
  void put(T const* from, std::size_t count) { memory_.from().copy_in(memory_.data(), from, count * sizeof(T)); }
  void get(T* to, std::size_t count) const { memory_.from().copy_out(to, memory_.data(), count * sizeof(T)); }

 private:
  memory::allocation memory_;
};

std::uint32_t multiprocessors() {
  int count = 0;
  memory::check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  return static_cast<std::uint32_t>(count);
}

/// A drive with its queues, and the client's side of them.
class rig {
 public:
  explicit rig(bench_case const& c) : case_(c) {
    queues_ = c.queues != 0 ? c.queues : c.sms * 16;
    blocks_ = c.blocks != 0 ? c.blocks : multiprocessors() - c.sms;
    threads_ = std::uint64_t{blocks_} * c.threads_per_block;
    uri_ = fmt::format("{},backing={},sms={},queues={}{}", c.uri, c.backing, c.sms, queues_,
                       c.moves_data ? "" : ",data=none");
    forebay::drive::open_options options;
    options.client_memory = &memory::pinned();
    options.frontend = c.frontend;
    source_ = forebay::drive::open(uri_, options);
    driver::controller_options wanted;
    wanted.io_queue_pairs = queues_;
    controller_ = std::make_unique<driver::controller>(source_->registers(), source_->dma(), wanted);
    done_.emplace(std::size_t{queues_} * c.depth);
    std::vector<raw_queue> queues(queues_);
    for (std::uint32_t q = 0; q < queues_; ++q) {
      rings_.push_back(controller_->create_io_queue_pair({.entries = c.depth, .driven_by_gpu = true}));
      driver::io_queue const& rings = rings_.back();
      queues[q].sq = rings.submission_ring();
      queues[q].cq = rings.completion_ring();
      queues[q].tail_doorbell = rings.sq_tail_doorbell();
      queues[q].head_doorbell = rings.cq_head_doorbell();
      queues[q].done = done_->data() + std::size_t{q} * c.depth;
      queues[q].entries = c.depth;
    }
    queue_states_.emplace(queues_);
    queue_states_->put(queues.data(), queues_);
    result_.emplace(1);
    fill_blocks_ = multiprocessors() - c.sms;
    std::uint64_t const most = std::max<std::uint64_t>(threads_, std::uint64_t{fill_blocks_} * fill_threads_per_block);
    buffers_ = driver::dma_buffer(source_->dma(), most * c.block_bytes, true);
    source_->hold();
  }
  ~rig() { source_->release(); }
  rig(rig const&) = delete;
  rig& operator=(rig const&) = delete;

  std::string const& uri() const { return uri_; }
  std::uint32_t queues() const { return queues_; }
  std::uint64_t threads() const { return threads_ * case_.lanes / 32; }
  std::uint64_t drive_blocks() const { return controller_->identity().bytes() / case_.block_bytes; }
  json report() { return source_->report(); }
  void reset_statistics() { source_->reset_statistics(); }

  raw_workload workload() const {
    raw_workload work;
    work.blocks = drive_blocks();
    work.block_bytes = case_.block_bytes;
    work.lba_bytes = controller_->identity().block_bytes;
    work.lanes = case_.lanes;
    return work;
  }

  /// Writes the whole drive, and reads blocks of it back, every byte of them. Whether all was right.
  bool fill(raw_result& seen) {
    raw_workload work = workload();
    std::uint64_t const threads = std::uint64_t{fill_blocks_} * fill_threads_per_block;
    work.lanes = 32;
    work.in_order = work.check_all = true;
    work.write_percent = 100;
    work.rounds = static_cast<std::uint32_t>((drive_blocks() + threads - 1) / threads);
    run(work, seen, fill_blocks_, fill_threads_per_block);
    bool const written = clean(seen);
    work.write_percent = 0;
    work.rounds = std::min(work.rounds, 4u);
    run(work, seen, fill_blocks_, fill_threads_per_block);
    return written && clean(seen);
  }

  /// Runs the client; returns the seconds that it took.
  double run(raw_workload const& work, raw_result& seen) { return run(work, seen, blocks_, case_.threads_per_block); }

 private:
  static constexpr std::uint32_t fill_threads_per_block = 1024;

  static bool clean(raw_result const& seen) { return seen.failed == 0 && seen.wrong == 0 && seen.timed_out == 0; }

  double run(raw_workload const& work, raw_result& seen, std::uint32_t blocks, std::uint32_t threads_per_block) {
    seen = {};
    result_->put(&seen, 1);
    double const seconds = seconds_of(stream_, [&] {
      forebay::bench::launch_raw_client(
          {.blocks = blocks, .threads_per_block = threads_per_block},
          {queue_states_->data(), queues_, buffers_.data(), bus_offset(), work, result_->data()}, stream_.get());
    });
    result_->get(&seen, 1);
    return seconds;
  }

  std::int64_t bus_offset() const {
    return static_cast<std::int64_t>(source_->dma().bus_address(buffers_.data())) -
           reinterpret_cast<std::int64_t>(buffers_.data());
  }

  bench_case const& case_;
  std::string uri_;
  std::uint32_t queues_ = 0;
  std::uint32_t blocks_ = 0;
  std::uint32_t fill_blocks_ = 0;
  std::uint64_t threads_ = 0;
  std::unique_ptr<forebay::drive::device> source_;
  std::unique_ptr<driver::controller> controller_;
  std::optional<device_array<std::uint32_t>> done_;
  std::vector<driver::io_queue> rings_;
  std::optional<device_array<raw_queue>> queue_states_;
  std::optional<device_array<raw_result>> result_;
  driver::dma_buffer buffers_;
  memory::cuda_stream stream_{0};
};

double percentile_us(raw_result const& seen, double fraction) {
  std::uint64_t const wanted = static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(seen.commands)));
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < raw_result::bins; ++i) {
    sum += seen.latency_bin[i];
    if (sum >= wanted) return (i + 1) * 0.032;
  }
  return static_cast<double>(seen.latency_max_ns) / 1e3;
}

bool clean(raw_result const& seen) {
  return seen.failed == 0 && seen.wrong == 0 && seen.timed_out == 0;
}

json describe(raw_result const& seen, double seconds, std::uint32_t block_bytes) {
  double const iops = static_cast<double>(seen.commands) / seconds;
  return {{"seconds", seconds},
          {"commands", seen.commands},
          {"writes", seen.writes},
          {"iops", iops},
          {"bw_bytes", iops * block_bytes},
          {"latency_us",
           {{"min", static_cast<double>(seen.latency_min_ns) / 1e3},
            {"mean", static_cast<double>(seen.latency_sum_ns) / 1e3 / static_cast<double>(seen.commands)},
            {"p50", percentile_us(seen, 0.5)},
            {"p99", percentile_us(seen, 0.99)},
            {"p99.9", percentile_us(seen, 0.999)},
            {"max", static_cast<double>(seen.latency_max_ns) / 1e3}}},
          {"failed", seen.failed},
          {"wrong_words", seen.wrong},
          {"timed_out_warps", seen.timed_out}};
}

/// Reads blocks of 512 bytes that the GPU makes from anywhere in page-locked memory of that size, by itself.
json raw_host_reads(std::uint64_t bytes) {
  // Given back before the drive is opened, which then has the very same memory.
  memory::allocation const region(memory::pinned(), bytes, std::size_t{2} << 20);
  device_array<std::uint32_t> sink(1);
  memory::cuda_stream const stream(0);
  std::uint32_t const blocks = multiprocessors() * 2;
  constexpr std::uint32_t rounds = 100;
  std::vector<double> rates;
  for (int i = 0; i <= runs_per_case; ++i) {
    double const seconds = seconds_of(stream, [&] {
      forebay::bench::launch_raw_reads({.blocks = blocks, .threads_per_block = 512}, region.as<std::byte>(), bytes,
                                       rounds, sink.data(), stream.get());
    });
    if (i != 0) rates.push_back(blocks * 16.0 * rounds * 8 / seconds);
  }
  std::sort(rates.begin(), rates.end());
  return {{"reads_per_second", rates}, {"median", rates[rates.size() / 2]}};
}

json run(bench_case c, bool& good) {
  json raw;
  if (c.host_bytes != 0) {
    raw = raw_host_reads(c.host_bytes);
    c.expected_iops = raw["median"].get<double>();
  }
  rig drive(c);
  auto seen = std::make_unique<raw_result>();
  json document = {{"group", c.group},
                   {"name", c.name},
                   {"drive", drive.uri()},
                   {"queues", drive.queues()},
                   {"queue_depth", c.depth},
                   {"client_threads", drive.threads()},
                   {"client_blocks", c.blocks != 0 ? c.blocks : multiprocessors() - c.sms},
                   {"block_bytes", c.block_bytes},
                   {"write_percent", c.write_percent}};
  raw_workload work = drive.workload();
  if (c.moves_data) {
    bool const right = drive.fill(*seen);
    document["every_byte_checked"] = {{"commands", seen->commands}, {"wrong_words", seen->wrong}, {"right", right}};
    good = good && right;
  }
  work.write_percent = c.write_percent;
  // How long a run takes is known from a short one.
  work.rounds = 2;
  double const short_s = drive.run(work, *seen);
  double const rate = static_cast<double>(seen->commands) / short_s;
  double const rounds = c.seconds * rate / static_cast<double>(drive.threads());
  work.rounds = static_cast<std::uint32_t>(std::clamp(rounds, 2.0, 100'000.0));
  drive.reset_statistics();
  json runs = json::array();
  for (int i = 0; i < runs_per_case; ++i) {
    work.seed = static_cast<std::uint64_t>(100 + i);
    double const seconds = drive.run(work, *seen);
    if (!c.moves_data) seen->wrong = 0;
    good = good && clean(*seen);
    runs.push_back(describe(*seen, seconds, c.block_bytes));
  }
  std::sort(runs.begin(), runs.end(), [](json const& a, json const& b) { return a["iops"] < b["iops"]; });
  json const median = runs[runs_per_case / 2];
  document["median"] = runs_per_case / 2;
  document["runs"] = runs;
  document["report"] = drive.report();
  json const& report = document["report"];
  double const iops = median["iops"].get<double>();
  if (median["bw_bytes"].get<double>() > pcie5_x16_bytes_per_second) {
    document["note"] = "more than a PCIe 5.0 x16 link carries (63.0 GB/s each way): no drive behind one link does this";
  }
  if (!raw.is_null()) document["raw_reads"] = raw;
  if (c.expected_iops != 0) document["of_expected"] = iops / c.expected_iops;
  fmt::print(
      "{:10} {:28} {:8.2f} MIOPS{} lat p50 {:8.2f} mean {:8.2f} min {:7.2f} | late p50 {:5} p99.9 {:6} max {:7} gap "
      "{:5} {}\n",
      c.group, c.name, iops / 1e6,
      c.expected_iops != 0 ? fmt::format(" {:6.2f}%", 100 * iops / c.expected_iops) : std::string(8, ' '),
      median["latency_us"]["p50"].get<double>(), median["latency_us"]["mean"].get<double>(),
      median["latency_us"]["min"].get<double>(), report["lateness"]["p50_ns"].get<std::uint64_t>(),
      report["lateness"]["p99.9_ns"].get<std::uint64_t>(), report["lateness"]["max_ns"].get<std::uint64_t>(),
      report["poll_gap"]["p50_ns"].get<std::uint64_t>(), report["fidelity"].get<std::string>());
  std::fflush(stdout);
  return document;
}

std::vector<bench_case> cases() {
  std::vector<bench_case> list;
  auto const add = [&](bench_case c) { list.push_back(std::move(c)); };
  std::string const ideal = "emulated:size=8G";
  for (std::uint32_t const sms : {8u, 16u, 32u, 64u}) {
    add({.group = "unthrottled", .name = fmt::format("reads 512 B, {} SMs", sms), .uri = ideal, .sms = sms});
  }
  add({.group = "unthrottled", .name = "reads 4 KiB", .uri = ideal, .block_bytes = 4096});
  add({.group = "unthrottled", .name = "writes 512 B", .uri = ideal, .write_percent = 100});
  add({.group = "unthrottled", .name = "70/30 512 B", .uri = ideal, .write_percent = 30});
  for (std::uint32_t const queues : {32u, 128u, 2048u}) {
    add({.group = "unthrottled",
         .name = fmt::format("reads 512 B, {} queues", queues),
         .uri = ideal,
         .queues = queues});
  }
  // The techniques of the frontend, one by one; "distributed" is more than one unit.
  auto const timed = [](double miops, double latency_us) {
    // A slow drive is small, so that it is written in seconds.
    return fmt::format("emulated:size={},iops={}k,latency_us={}", miops < 20 ? "256M" : "8G", miops * 1000, latency_us);
  };
  std::string const fast = timed(2000, 1);
  add({.group = "frontend", .name = "all three", .uri = fast, .moves_data = false});
  add({.group = "frontend",
       .name = "not coalesced",
       .uri = fast,
       .moves_data = false,
       .frontend = {.coalesced_fetch = false}});
  add({.group = "frontend",
       .name = "not aggregated",
       .uri = fast,
       .moves_data = false,
       .frontend = {.aggregated_timing = false}});
  add({.group = "frontend", .name = "not distributed", .uri = fast, .sms = 1, .moves_data = false});
  add({.group = "frontend",
       .name = "none of them",
       .uri = fast,
       .sms = 1,
       .seconds = 0.05,
       .moves_data = false,
       .frontend = {.coalesced_fetch = false, .aggregated_timing = false}});
  add({.group = "frontend", .name = "no timing model", .uri = ideal, .moves_data = false});
  for (double const miops : {1.0, 2.47, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0, 200.0, 300.0}) {
    // Enough in flight to hide what the client itself takes.
    auto const warps = static_cast<std::uint32_t>(std::max(32.0, 4 * miops * 50 / 32));
    add({.group = "target",
         .name = fmt::format("{} MIOPS, 50 us", miops),
         .uri = timed(miops, 50),
         .blocks = (warps + 7) / 8,
         .threads_per_block = 256,
         .expected_iops = miops * 1e6});
  }
  for (std::uint32_t const sms : {16u, 8u}) {
    add({.group = "target",
         .name = fmt::format("100 MIOPS, {} SMs", sms),
         .uri = timed(100, 50),
         .sms = sms,
         .expected_iops = 100e6});
  }
  for (double const miops : {2.47, 40.0, 100.0}) {
    for (double const load : {0.25, 0.5, 0.75, 0.9, 1.25, 2.0, 4.0}) {
      auto const warps = static_cast<std::uint32_t>(std::max(1.0, std::round(load * miops * 50 / 32)));
      double const threads = warps * 32.0;
      add({.group = "sweep",
           .name = fmt::format("{} MIOPS, {} threads", miops, warps * 32),
           .uri = timed(miops, 50),
           .blocks = warps,
           .threads_per_block = 32,
           .seconds = 0.05,
           .expected_iops = std::min(miops * 1e6, threads / 50e-6)});
    }
  }
  add({.group = "light", .name = "64 threads, 2 warps", .uri = timed(2.47, 50), .blocks = 2, .threads_per_block = 32});
  add({.group = "light",
       .name = "64 threads, 64 warps",
       .uri = timed(2.47, 50),
       .blocks = 64,
       .threads_per_block = 32,
       .lanes = 1});
  add({.group = "skew",
       .name = "one queue, 50 us",
       .uri = timed(40, 50),
       .queues = 1,
       .blocks = 32,
       .threads_per_block = 32,
       .expected_iops = 1023 / 50e-6});
  for (std::uint32_t const queues : {2048u, 4096u}) {
    add({.group = "queues",
         .name = fmt::format("{} queues, 2 M threads", queues),
         .uri = timed(40, 50),
         .queues = queues,
         .blocks = 2048,
         .seconds = 0.2,
         .expected_iops = 40e6});
  }
  std::string const p5800x = "emulated:profile=p5800x,size=1G";
  add({.group = "p5800x",
       .name = "512 B",
       .uri = p5800x,
       .blocks = 16,
       .threads_per_block = 128,
       .expected_iops = 4.9e6});
  add({.group = "p5800x",
       .name = "4 KiB",
       .uri = p5800x,
       .blocks = 16,
       .threads_per_block = 128,
       .block_bytes = 4096,
       .expected_iops = 1.5e6});
  for (std::uint64_t const gib : {1u, 32u}) {
    add({.group = "host",
         .name = fmt::format("reads 512 B, {} GiB", gib),
         .uri = fmt::format("emulated:size={}G", gib),
         .backing = "host",
         .host_bytes = gib << 30});
  }
  if (memory::device_count() > 1) {
    add({.group = "peer",
         .name = "reads 512 B, 64 SMs",
         .uri = ideal,
         .backing = "peer:1",
         .sms = 64,
         .blocks = multiprocessors()});
    add({.group = "peer",
         .name = "100 MIOPS, 50 us",
         .uri = timed(100, 50),
         .backing = "peer:1",
         .sms = 64,
         .blocks = multiprocessors(),
         .expected_iops = 100e6});
  }
  add({.group = "overload", .name = "2 GIOPS asked of 4 SMs", .uri = timed(2000, 50), .sms = 4});
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path, only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) path = argv[i + 1];
    if (std::strcmp(argv[i], "--group") == 0) only = argv[i + 1];
  }
  if (path.empty()) {
    fmt::print(stderr, "usage: {} --json FILE [--group NAME]\n", argv[0]);
    return 2;
  }
  try {
    json document = {{"schema_version", 1}, {"benchmark", "emulated_drive"}, {"machine", forebay::bench::machine()}};
    std::string command = std::filesystem::path(argv[0]).filename().string();
    for (int i = 1; i < argc; ++i) {
      command += ' ' + (i == 2 ? std::filesystem::path(argv[i]).filename().string() : std::string(argv[i]));
    }
    document["command"] = command;
    bool good = true;
    for (bench_case const& c : cases()) {
      if (!only.empty() && c.group != only) continue;
      document["results"].push_back(run(c, good));
    }
    std::ofstream(path) << document.dump(1) << '\n';
    return good ? 0 : 1;
  } catch (std::exception const& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
