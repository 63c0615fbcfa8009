// SPDX-License-Identifier: Apache-2.0
//! \file
//! The client of a drive on a disk with faults. It takes steps from a file: requests that it starts and waits for, and
//! commands that change the disk meanwhile. It writes down with which status each request ended
//! (test_faulty_disks.py).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/random.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "harness/command_line.hpp"

namespace forebay::faulty_disk {
namespace {

using M = simt::fiber;
using nlohmann::json;

/// An emulated processor is slow: no wait but one that has a deadline of its own is meant to end before the drive
/// answers.
constexpr std::uint64_t patience_ns = 60'000'000'000;

/// The requests of one step, one for each unit of the drive that it names. All are in flight at once.
struct group {
  std::string writer;  ///< the group that wrote what a read should find; empty: unknown
  bool reads = false;
  std::vector<std::uint64_t> units;  ///< of a Flush: one that means nothing
  std::vector<token<M>> requests;
  std::size_t first_slot = 0;
};

/// Runs the steps in one thread of a kernel, over one queue.
class client {
 public:
  client(storage& drives, json const& plan)
      : drives_(drives),
        drive_(drives.ref<M>()),
        plan_(plan),
        unit_bytes_(plan.at("unit_bytes").get<std::uint64_t>()),
        buffer_(drives.allocate_buffer(slots(plan) * unit_bytes_)) {}

  void run() {
    for (json const& step : plan_.at("steps")) {
      if (step.contains("write")) {
        start(step.at("write"), step, false);
      } else if (step.contains("read")) {
        start(step.at("read"), step, true);
      } else if (step.contains("flush")) {
        groups_[step.at("flush")] = {.units = {0}, .requests = {drive_.flush_async()}};
      } else if (step.contains("wait")) {
        wait(step.at("wait"), step);
      } else if (step.contains("aborts")) {
        wait_for_aborts(step.at("aborts"));
      } else {
        shell(step.at("run"));
      }
    }
  }
  /// What each `wait` has seen.
  json const& outcomes() const { return outcomes_; }

 private:
  static std::size_t slots(json const& plan) {
    std::size_t count = 1;
    for (json const& step : plan.at("steps")) count += step.contains("units") ? step.at("units").size() : 0;
    return count;
  }

  /// No two units, and no two writes of one, have the same words.
  std::uint64_t word(std::string const& writer, std::uint64_t unit, std::uint64_t index) const {
    return apps::mix64(apps::mix64(apps::mix64(std::hash<std::string>()(writer)) ^ unit) ^ index);
  }
  buffer_ref slot(std::size_t number) const { return buffer_.ref().subspan(number * unit_bytes_, unit_bytes_); }
  std::uint64_t* words(std::size_t number) const { return reinterpret_cast<std::uint64_t*>(slot(number).data()); }

  void start(std::string const& name, json const& step, bool reads) {
    group& mine = groups_[name];
    mine = {.writer = step.value("holds", ""),
            .reads = reads,
            .units = step.at("units").get<std::vector<std::uint64_t>>(),
            .first_slot = used_slots_};
    used_slots_ += mine.units.size();
    for (std::size_t i = 0; i < mine.units.size(); ++i) {
      std::size_t const at = mine.first_slot + i;
      std::uint64_t const offset = mine.units[i] * unit_bytes_;
      for (std::uint64_t w = 0; w < unit_bytes_ / sizeof(std::uint64_t); ++w) {
        words(at)[w] = reads ? 0 : word(name, mine.units[i], w);
      }
      mine.requests.push_back(reads ? drive_.read_async(slot(at), offset, unit_bytes_)
                                    : drive_.write_async(slot(at), offset, unit_bytes_));
    }
  }

  /// With `ms`, each request is waited for until that deadline. Else until it has ended, and recovery is not asked for.
  void wait(std::string const& name, json const& step) {
    group& mine = groups_.at(name);
    std::map<std::string, std::vector<std::uint64_t>> statuses;
    std::vector<std::uint64_t> wrong;
    for (std::size_t i = 0; i < mine.units.size(); ++i) {
      token<M>& request = mine.requests[i];
      if (!step.contains("ms") && !M::wait_until([&] { return request.ready(); }, M::clock_ns() + patience_ns)) {
        fail("a request of '" + name + "' does not end");
      }
      status const outcome = request.wait(M::clock_ns() + step.value("ms", std::uint64_t{0}) * 1'000'000);
      statuses[to_string(outcome)].push_back(mine.units[i]);
      if (outcome.ok() && mine.reads && !mine.writer.empty() && !holds(mine, i)) wrong.push_back(mine.units[i]);
    }
    outcomes_.push_back({{"group", name}, {"statuses", statuses}, {"wrong", wrong}});
  }
  bool holds(group const& read, std::size_t i) const {
    for (std::uint64_t w = 0; w < unit_bytes_ / sizeof(std::uint64_t); ++w) {
      if (words(read.first_slot + i)[w] != word(read.writer, read.units[i], w)) return false;
    }
    return true;
  }

  void wait_for_aborts(std::uint64_t count) {
    auto const aborted = [&] {
      return json::parse(drives_.report()).at("recovery").at("aborts").get<std::uint64_t>() >= count;
    };
    if (!M::wait_until(aborted, M::clock_ns() + patience_ns)) fail("recovery does not abort");
  }
  /// A disk that goes on hanging would never let the drive be closed.
  [[noreturn]] void fail(std::string const& why) const {
    if (plan_.contains("rescue")) shell(plan_.at("rescue"));
    throw operation_failed(why);
  }
  static void shell(std::string const& command) {
    if (std::system(command.c_str()) != 0) throw operation_failed("'" + command + "' failed");
  }

  storage& drives_;
  storage_ref<M> drive_;
  json const& plan_;
  std::uint64_t unit_bytes_;
  registered_buffer buffer_;
  std::map<std::string, group> groups_;
  std::size_t used_slots_ = 0;
  json outcomes_ = json::array();
};

struct kernel {
  client* one;
  FOREBAY_DEVICE void operator()() const { one->run(); }
};

std::vector<bench::option> const values = {{"--plan", "a file with the drive, the size of a unit and the steps"}};

void run(bench::command_line const& given) {
  json const plan = json::parse(std::ifstream(given.text("--plan", "")));
  given.check_json();
  json document;
  {
    storage_options options;
    options.drives = {plan.at("drive").get<std::string>()};
    options.device = "cpu";
    options.queues.per_drive = 1;
    options.timeout_ns = plan.value("timeout_ms", patience_ns / 1'000'000) * 1'000'000;
    options.flush_timeout_ns = patience_ns;
    storage drives(options);
    client one(drives, plan);
    simt::launch<M>({.blocks = 1, .threads_per_block = 1}, kernel{&one});
    document = {{"outcomes", one.outcomes()}, {"report", json::parse(drives.report())}};
  }
  // Only once the drive has been closed.
  given.write(document.dump());
}

}  // namespace
}  // namespace forebay::faulty_disk

int main(int argc, char** argv) try {
  using namespace forebay;
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(bench::usage("faulty_disk_client", faulty_disk::values, {}).c_str(), stdout);
    return 0;
  }
  faulty_disk::run(bench::command_line(argc, argv, faulty_disk::values, {}));
  return 0;
} catch (forebay::refused_input const& refused) {
  std::fprintf(stderr, "faulty_disk_client: %s\n", refused.what());
  return 2;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "faulty_disk_client: %s\n", failed.what());
  return 1;
}
