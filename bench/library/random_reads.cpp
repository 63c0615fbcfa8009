// SPDX-License-Identifier: Apache-2.0
//! \file
//! Random reads through the library, beside a client that is written only for this, on drives of the same kind in one
//! run.
//!
//! Each drive is written, and every byte of a part is read back; then each case runs five times. Timed runs look at the
//! first word of every block.
#include "library/random_reads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emulator/cases.hpp"
#include "emulator/measure_cases.hpp"
#include "emulator/rig.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/native.hpp"
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
using forebay::bench::kernel_shape;
using forebay::bench::library_result;
using forebay::bench::raw_result;
using forebay::bench::raw_workload;
using forebay::bench::rig;
using forebay::bench::runs_per_case;
using nlohmann::json;
namespace memory = forebay::memory;

constexpr std::uint32_t threads_per_block = 256;

struct reads_case {
  bench_case drive;  ///< and, where it is the raw client's, what that does
  bool raw = false;
  std::uint32_t threads_per_sm = 1024;  ///< of the library's client
  forebay::bench::reader_kind kind;

  /// The host has a queue of a storage to itself.
  std::string drive_uri(std::string const& residency) const {
    bench_case d = drive;
    if (!raw) ++d.queues;
    return d.drive_uri(residency);
  }
  std::uint32_t drive_sms() const { return drive.sms; }
  std::string title() const { return drive.title(); }
};

/// Threads of the raw client with a queue for each warp.
bench_case with_own_queues(bench_case c) {
  c.own_queues = true;
  c.blocks = 128;
  c.threads_per_block = c.queues / c.blocks * 32;
  return c;
}

void add(std::vector<reads_case>& list, bench_case const& base, std::vector<std::uint32_t> const& queue_counts) {
  bench_case c = base;
  c.queues = 512;
  c.name = "raw, shared queues";
  list.push_back({.drive = c, .raw = true});
  c = with_own_queues(c);
  c.name = "raw, a queue a warp";
  list.push_back({.drive = c, .raw = true});
  for (std::uint32_t const queues : queue_counts) {
    for (std::uint32_t const threads : {256u, 512u, 1024u}) {
      for (std::uint32_t const open : {1u, 2u, 4u}) {
        reads_case it{.drive = base, .threads_per_sm = threads, .kind = {.open = open}};
        it.drive.queues = queues;
        it.drive.name = fmt::format("library, {} queues, {} threads an SM, {} open", queues, threads, open);
        list.push_back(it);
      }
      reads_case it{.drive = base, .threads_per_sm = threads, .kind = {.serviced = true}};
      it.drive.queues = queues;
      it.drive.name = fmt::format("library, {} queues, {} threads an SM, service", queues, threads);
      list.push_back(it);
    }
  }
}

std::vector<reads_case> cases_of(std::string const& group) {
  std::vector<reads_case> list;
  bench_case c{.group = "512", .uri = "emulated:size=8G"};
  add(list, c, {32, 64, 128, 256, 511});
  c.group = "4k";
  c.block_bytes = 4096;
  add(list, c, {64, 256, 511});
  c = {.group = "target", .uri = "emulated:size=1G,iops=100000k,latency_us=50", .expected_iops = 100e6};
  add(list, c, {64, 256, 511});
  if (group.empty()) return list;
  std::erase_if(list, [&](reads_case const& r) { return r.drive.group != group; });
  if (list.empty()) throw forebay::refused_input("--group", group, "use 512, 4k or target");
  return list;
}

json describe(std::uint64_t commands, std::uint64_t failed, std::uint64_t wrong, double seconds,
              std::uint32_t block_bytes) {
  double const iops = static_cast<double>(commands) / seconds;
  return {{"seconds", seconds}, {"commands", commands}, {"iops", iops}, {"bw_bytes", iops * block_bytes},
          {"failed", failed},   {"wrong_words", wrong}};
}

/// A drive behind the library, written.
class library_rig {
 public:
  library_rig(reads_case const& c, std::string const& uri, std::uint32_t sms)
      : uri_(uri), sms_(sms), drives_(options(c, uri, sms)) {
    constexpr std::uint32_t open_max = 4, block_bytes_max = 4096;
    buffers_ = drives_.allocate_device_buffer(std::uint64_t{sms} * 1024 * open_max * block_bytes_max);
    running_ = drives_.lease();
    std::uint32_t const blocks = sms_ * 1024 / threads_per_block;
    seconds([&] { launch_library_writer(grid(blocks), drives_, buffers_.ref(), result(), stream_.get()); });
    bool const written = right();
    reads_case check = c;
    check.kind = {};
    raw_workload work = workload(c);
    work.check_all = true;
    work.rounds = 4;
    run(check, work);
    checked_ = {{"commands", seen_.commands}, {"wrong_words", seen_.wrong}, {"right", written && right()}};
  }

  std::string const& uri() const { return uri_; }
  json const& checked() const { return checked_; }
  library_result const& seen() const { return seen_; }
  bool right() const { return seen_.failed == 0 && seen_.wrong == 0; }
  json report() { return json::parse(drives_.report()); }
  void reset_statistics() { drives_.reset_statistics(); }
  /// The client has fewer multiprocessors than it was told.
  bool leave_a_multiprocessor() { return --sms_ > 1; }

  raw_workload workload(reads_case const& c) const {
    raw_workload work;
    work.blocks = drives_.size_bytes() / c.drive.block_bytes;
    work.block_bytes = c.drive.block_bytes;
    return work;
  }
  std::uint32_t blocks(reads_case const& c) const {
    std::uint32_t const fit = forebay::bench::library_reader_shape(c.kind, threads_per_block).threads_per_sm;
    // Where the service runs there is room for one block less.
    return std::min(c.threads_per_sm, fit) / threads_per_block * sms_ - (c.kind.serviced ? service_blocks : 0);
  }
  double run(reads_case const& c, raw_workload const& work) {
    if (c.kind.serviced) set_stop(0);
    if (c.kind.serviced) {
      forebay::bench::launch_library_service({.blocks = service_blocks, .threads_per_block = service_threads}, drives_,
                                             stop_.as<std::uint32_t>(), service_stream_.get());
    }
    double const took = seconds([&] {
      launch_library_reader(grid(blocks(c)), drives_, buffers_.ref(), work, c.kind, result(), stream_.get());
    });
    if (c.kind.serviced) {
      set_stop(1);
      service_stream_.synchronize();
    }
    return took;
  }

 private:
  static constexpr std::uint32_t service_blocks = 16, service_threads = 256;

  void set_stop(std::uint32_t value) const {
    // Release pairs with the acquire of the service.
    forebay::simt::atomic<forebay::simt::native, forebay::simt::scope::system>(*stop_.as<std::uint32_t>())
        .store(value, forebay::simt::order::release);
  }
  static forebay::storage_options options(reads_case const& c, std::string const& uri, std::uint32_t sms) {
    forebay::storage_options o;
    o.drives = {uri};
    o.device = "cuda:0";
    o.queues.per_drive = c.drive.queue_count();
    o.queues.depth = c.drive.depth;
    o.queues.records = sms * 1024 * 8;
    return o;
  }
  static forebay::simt::grid grid(std::uint32_t blocks) {
    return {.blocks = blocks, .threads_per_block = threads_per_block};
  }
  library_result* result() const { return result_.as<library_result>(); }
  template <class Launch>
  double seconds(Launch&& launch) {
    seen_ = {};
    result_.from().copy_in(result_.data(), &seen_, sizeof seen_);
    double const took = forebay::bench::seconds_of(stream_, launch);
    result_.from().copy_out(&seen_, result_.data(), sizeof seen_);
    return took;
  }

  std::string const uri_;
  std::uint32_t sms_;
  forebay::storage drives_;
  memory::allocation result_{memory::device(0), sizeof(library_result), 128};
  memory::allocation stop_{memory::pinned(), sizeof(std::uint32_t), 128};
  memory::cuda_stream stream_{0}, service_stream_{0};
  forebay::registered_buffer buffers_;
  std::optional<forebay::storage_lease> running_;  ///< last: what is above is freed when the engine may leave
  library_result seen_;
  json checked_;
};

class bench {
 public:
  /// `client_sms`: multiprocessors that the client may use; 0: all but those of the drive.
  bench(std::string residency, std::uint32_t client_sms) : residency_(std::move(residency)), client_sms_(client_sms) {}

  void forget() {
    raw_.reset();
    library_.reset();
  }

  /// Returns whether all data that was read was right; adds to `results`.
  bool run(reads_case const& c, json& results) {
    bool good = open(c);
    json document = {{"group", c.drive.group},
                     {"name", c.drive.name},
                     {"client", c.raw ? "raw" : "library"},
                     {"drive", c.drive_uri(residency_)},
                     {"residency", residency_},
                     {"queues", c.drive.queues},
                     {"queue_depth", c.drive.depth},
                     {"block_bytes", c.drive.block_bytes}};
    json runs = json::array();
    if (c.raw) {
      good = run_raw(c.drive, document, runs) && good;
    } else {
      good = run_library(c, document, runs) && good;
    }
    std::sort(runs.begin(), runs.end(), [](json const& a, json const& b) { return a["iops"] < b["iops"]; });
    double const iops = runs[runs_per_case / 2]["iops"].get<double>();
    document["median"] = runs_per_case / 2;
    document["runs"] = runs;
    document["right"] = good;
    double seconds = 0;
    for (json const& r : runs) seconds += r["seconds"].get<double>();
    forebay::bench::row_drives drives;
    drives.add(document["report"], seconds);
    drives.describe(document);
    std::string compared;
    if (c.drive.expected_iops != 0) {
      document["expected_iops"] = c.drive.expected_iops;
      document["of_expected"] = iops / c.drive.expected_iops;
      compared = fmt::format(" {:6.2f}% of the target", 100 * iops / c.drive.expected_iops);
    }
    fmt::print("{:7} {:50} {:8.2f} MIOPS{}{}\n", c.drive.group, c.drive.name, iops / 1e6, compared,
               good ? "" : " WRONG");
    std::fflush(stdout);
    results.push_back(std::move(document));
    return good;
  }

 private:
  std::uint32_t client_sms(bench_case const& c) const {
    std::uint32_t const all = forebay::bench::multiprocessors();
    if (client_sms_ != 0) return std::min(client_sms_, all);
    return residency_ == "peer" ? all : all - std::min(c.sms, all - 1);
  }

  /// Opens and writes the drive of `c`, if it is not open. Returns whether that went well.
  bool open(reads_case const& c) {
    if (c.raw) {
      std::string const key = c.drive.drive_key(residency_);
      if (raw_ && raw_->key() == key) return true;
      forget();
      raw_ = std::make_unique<rig>(c.drive, residency_, client_sms(c.drive));
      auto seen = std::make_unique<raw_result>();
      bool const right = raw_->fill(c.drive, *seen);
      checked_ = {{"commands", seen->commands}, {"wrong_words", seen->wrong}, {"right", right}};
      return right;
    }
    if (!library_ || library_->uri() != c.drive_uri(residency_)) {
      forget();
      library_ = std::make_unique<library_rig>(c, c.drive_uri(residency_), client_sms(c.drive));
    }
    checked_ = library_->checked();
    return checked_["right"].get<bool>();
  }

  bool run_raw(bench_case const& c, json& document, json& runs) {
    auto seen = std::make_unique<raw_result>();
    raw_workload work = raw_->workload(c);
    document["client_threads"] = raw_->threads(c);
    document["every_byte_checked"] = checked_;
    bool good = true;
    set_time(c, work);
    if (residency_ == "served" && c.blocks == 0) {
      raw_workload probe = work;
      forebay::bench::make_fit(
          [&](std::uint64_t ns) {
            probe.run_ns = ns;
            return raw_->run(c, probe, *seen);
          },
          [&] {
            if (raw_->blocks(c) == 1) return false;
            raw_->leave_a_multiprocessor();
            return true;
          });
      document["client_threads"] = raw_->threads(c);
    }
    raw_->reset_statistics();
    for (int i = 0; i < runs_per_case; ++i) {
      work.seed = static_cast<std::uint64_t>(100 + i);
      double const seconds = raw_->run(c, work, *seen);
      if (seen->timed_out != 0) throw forebay::operation_failed("completions did not come in time");
      good = good && clean(*seen);
      runs.push_back(describe(seen->commands, seen->failed, seen->wrong, seconds, c.block_bytes));
    }
    document["report"] = raw_->report();
    return good;
  }

  bool run_library(reads_case const& c, json& document, json& runs) {
    raw_workload work = library_->workload(c);
    kernel_shape const shape = forebay::bench::library_reader_shape(c.kind, threads_per_block);
    document["client_threads"] = library_->blocks(c) * threads_per_block;
    document["open_per_thread"] = c.kind.open;
    document["completion"] = c.kind.serviced ? "service" : "helping";
    document["registers_per_thread"] = shape.registers;
    document["local_bytes_per_thread"] = shape.local_bytes;
    document["every_byte_checked"] = checked_;
    bool good = true;
    set_time(c.drive, work);
    if (residency_ == "served") {
      raw_workload probe = work;
      forebay::bench::make_fit(
          [&](std::uint64_t ns) {
            probe.run_ns = ns;
            return library_->run(c, probe);
          },
          [&] { return library_->leave_a_multiprocessor(); });
      document["client_threads"] = library_->blocks(c) * threads_per_block;
    }
    library_->reset_statistics();
    for (int i = 0; i < runs_per_case; ++i) {
      work.seed = static_cast<std::uint64_t>(100 + i);
      double const seconds = library_->run(c, work);
      library_result const& seen = library_->seen();
      good = good && library_->right();
      runs.push_back(describe(seen.commands, seen.failed, seen.wrong, seconds, c.drive.block_bytes));
    }
    document["report"] = library_->report();
    return good;
  }

  static void set_time(bench_case const& c, raw_workload& work) {
    work.rounds = std::numeric_limits<std::uint32_t>::max();
    work.run_ns = static_cast<std::uint64_t>(c.seconds * 1e9);
  }

  std::string const residency_;
  std::uint32_t const client_sms_;
  std::unique_ptr<rig> raw_;
  std::unique_ptr<library_rig> library_;
  json checked_;
};

double median_iops(json const& result) {
  return result["runs"][result["median"].get<std::size_t>()]["iops"].get<double>();
}

/// Each result of the library in proportion to the raw client's best in its group.
void compare(json& results) {
  std::map<std::string, double> raw;
  for (json const& r : results) {
    double& best = raw[r["group"]];
    if (r["client"] == "raw") best = std::max(best, median_iops(r));
  }
  for (json& r : results) {
    if (r["client"] != "raw" && raw[r["group"]] != 0) r["of_raw"] = median_iops(r) / raw[r["group"]];
  }
}

/// The best of each client, by group.
void print_best(json const& results) {
  std::map<std::string, std::map<std::string, json>> best;
  for (json const& r : results) {
    json& b = best[r["group"]][r["client"]];
    if (b.is_null() || median_iops(r) > median_iops(b)) b = r;
  }
  for (auto const& [group, clients] : best) {
    for (auto const& [client, r] : clients) {
      fmt::print("best of {:6} {:8.2f} MIOPS  {}\n", group, median_iops(r) / 1e6, r["name"].get<std::string>());
    }
    if (!clients.contains("raw") || !clients.contains("library")) continue;
    fmt::print("        {:6} {:8.2f} % of the raw client\n", group,
               100 * median_iops(clients.at("library")) / median_iops(clients.at("raw")));
  }
}

/// The raw client's cases, and those whose name has `only` in it.
bool wanted(std::string const& only, reads_case const& c) {
  return c.raw || c.drive.name.find(only) != std::string::npos;
}

int measure(drives_asked const& o, std::string const& only, std::vector<reads_case> cases, command_line const& given) {
  o.check();
  std::erase_if(cases, [&](reads_case const& c) { return !wanted(only, c); });
  std::string const& residency = o.where.residency();
  std::string const sms = std::to_string(o.where.sms());
  json document;
  auto const store = [&](json results) {
    compare(results);
    document = o.document("random_reads", " --sms " + sms + (only.empty() ? "" : " --only '" + only + "'"),
                          std::move(results));
    given.write(document.dump(2));
  };
  bool good = true;
  if (residency == "served" && o.drive.empty()) {
    std::vector<std::string> arguments = o.passed_on();
    arguments.insert(arguments.end(), {"--sms", sms});
    if (!only.empty()) arguments.insert(arguments.end(), {"--only", only});
    good = forebay::bench::measure_served(forebay::bench::drives_of(cases, residency), o.json_path, arguments, store);
  } else {
    std::erase_if(cases, [&](reads_case const& c) { return !o.drive.empty() && c.drive_uri(residency) != o.drive; });
    good = forebay::bench::measure_each(cases, bench(residency, o.client_sms), store);
  }
  if (o.drive.empty() && document.contains("results")) print_best(document["results"]);
  return forebay::bench::exit_status(given, document, good);
}

int run(command_line const& given) {
  drives_asked const o(given);
  std::vector<reads_case> cases = cases_of(o.group);
  for (reads_case& c : cases) {
    o.choose(c.drive);
    c.drive.sms = o.where.sms();
  }
  if (given.has("--list")) {
    for (reads_case const& c : cases) {
      fmt::print("{}\t{}\t{}\n", c.drive.group, c.drive.name, c.drive_uri(o.where.residency()));
    }
    return 0;
  }
  return measure(o, given.text("--only", ""), cases, given);
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = joined(drive_options::with_value(drives_asked::with_value()),
                         {{"--only", "measure the raw client, and the cases that have this in their names"}}),
    .switches = drive_options::switches({{"--list", "print the cases and measure nothing"}}),
    .environment = {},
    .run = run};
