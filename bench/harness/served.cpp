// SPDX-License-Identifier: Apache-2.0
#include "harness/served.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/error.hpp"

namespace forebay::bench {

using nlohmann::json;

namespace {

/// The process of the benchmark, for its daemon.
constexpr char const* parent_variable = "FOREBAY_BENCH_PARENT";
constexpr char const* percentage_variable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// Of this process, and of this daemon of it.
std::string new_socket() {
  static std::atomic<int> made = 0;
  return fmt::format("/tmp/forebay-bench-{}-{}.sock", getpid(), made++);
}

}  // namespace

int serve_drives(std::string const& uris, std::string const& socket) {
  // A benchmark that a time limit kills leaves no daemon behind.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The kernel tells nothing of a benchmark that has ended already.
  char const* const parent = std::getenv(parent_variable);
  if (parent != nullptr && std::to_string(getppid()) != parent) return 1;
  drive::serve_options serving;
  serving.socket = socket;
  std::istringstream words(uris);
  for (std::string uri; words >> uri;) serving.drives.push_back(uri);
  serving.ready = [] {
    fmt::print("ready\n");
    std::fflush(stdout);
  };
  serving.notice = [](std::string const& line) { fmt::print(stderr, "daemon: {}\n", line); };
  drive::serve(serving);
  return 0;
}

drive_daemon::drive_daemon(std::vector<std::string> const& uris)
    : socket_(new_socket()),
      // The drives may use all of the GPU, also where this process may not.
      process_({"--serve", fmt::format("{}", fmt::join(uris, " ")), "--socket", socket_},
               {{percentage_variable, "100"}, {parent_variable, std::to_string(getpid())}}, true) {
  if (process_.line() == "ready") return;
  throw operation_failed(fmt::format("the daemon of {} ended with status {}", fmt::join(uris, " "), process_.wait()));
}

bool under_mps() {
  if (std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr) return true;
  fmt::print(stderr, "no MPS here (CUDA_MPS_PIPE_DIRECTORY): client and drive take turns on the GPU\n");
  return false;
}

client_share share_beside(std::uint32_t drive_sms, std::uint32_t all_sms) {
  std::uint32_t const percentage = 100 * (all_sms - drive_sms) / all_sms;
  return {{percentage_variable, std::to_string(percentage)}, all_sms * percentage / 100};
}

bool measure_served(std::vector<served_drive> const& drives, std::string const& json_path,
                    std::vector<std::string> const& arguments, std::function<void(json const&)> const& store) {
  bool const shared = under_mps();
  std::string const part = json_path + ".part";
  json results = json::array();
  auto const measure = [&](served_drive const& drive) {
    drive_daemon const daemon({drive.uri});
    std::vector<std::pair<std::string, std::string>> variables{{"FOREBAY_DAEMON", daemon.socket()}};
    std::vector<std::string> all{"--json", part, "--residency", "served", "--drive", drive.uri};
    if (shared) {
      client_share const share = share_beside(drive.sms, emulator::multiprocessors(0));
      variables.push_back(share.variable);
      all.insert(all.end(), {"--client-sms", std::to_string(share.sms)});
    }
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::filesystem::remove(part);
    child_process client(all, variables, false);
    int const status = client.wait();
    if (status != 0) fmt::print(stderr, "{}: the client ended with status {}\n", drive.uri, status);
    if (std::ifstream file(part); file) {
      json const document = json::parse(file, nullptr, false);
      if (document.contains("results"))
        results.insert(results.end(), document["results"].begin(), document["results"].end());
    }
    store(results);
    return status == 0;
  };
  bool good = true;
  for (served_drive const& drive : drives) {
    try {
      good = measure(drive) && good;
    } catch (operation_failed const& failed) {
      fmt::print(stderr, "{}\n", failed.what());
      good = false;
    }
  }
  std::filesystem::remove(part);
  return good;
}

}  // namespace forebay::bench
