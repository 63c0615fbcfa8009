// SPDX-License-Identifier: Apache-2.0
#include "emulator/served.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "emulator/child_process.hpp"
#include "emulator/rig.hpp"
#include "forebay/detail/drive/served.hpp"

namespace forebay::bench {

using nlohmann::json;

int serve_drive(std::string const& uri, std::string const& socket) {
  drive::serve_options serving;
  serving.socket = socket;
  serving.drives = {uri};
  serving.ready = [] {
    fmt::print("ready\n");
    std::fflush(stdout);
  };
  serving.notice = [](std::string const& line) { fmt::print(stderr, "daemon: {}\n", line); };
  drive::serve(serving);
  return 0;
}

bool measure_served(std::vector<served_drive> const& drives, std::string const& json_path,
                    std::vector<std::string> const& arguments, std::function<void(json const&)> const& store) {
  bool const under_mps = std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  if (!under_mps) fmt::print(stderr, "no MPS here (CUDA_MPS_PIPE_DIRECTORY): client and drive take turns on the GPU\n");
  std::uint32_t const all_sms = multiprocessors();
  std::string const part = json_path + ".part";
  std::string const socket = fmt::format("/tmp/forebay-bench-{}.sock", getpid());
  json results = json::array();
  bool good = true;
  for (auto const& [uri, sms] : drives) {
    child_process daemon({"--serve", uri, "--socket", socket}, {}, true);
    if (daemon.line() != "ready") {
      fmt::print(stderr, "{}: the drive daemon ended with status {}\n", uri, daemon.wait());
      good = false;
      continue;
    }
    std::vector<std::pair<std::string, std::string>> variables{{"FOREBAY_DAEMON", socket}};
    std::vector<std::string> all{"--json", part, "--residency", "served", "--drive", uri};
    if (under_mps) {
      std::uint32_t const percentage = 100 * (all_sms - sms) / all_sms;
      variables.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(percentage));
      all.insert(all.end(), {"--client-sms", std::to_string(all_sms * percentage / 100)});
    }
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::filesystem::remove(part);
    child_process client(all, variables, false);
    int const status = client.wait();
    good = good && status == 0;
    if (status != 0) fmt::print(stderr, "{}: the client ended with status {}\n", uri, status);
    if (std::ifstream file(part); file) {
      json const document = json::parse(file, nullptr, false);
      if (document.contains("results"))
        results.insert(results.end(), document["results"].begin(), document["results"].end());
    }
    store(results);
  }
  std::filesystem::remove(part);
  return good;
}

}  // namespace forebay::bench
