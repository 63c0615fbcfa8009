// SPDX-License-Identifier: Apache-2.0
//! \file
//! The benchmarks whose cases have drives: their options, and the loop over the cases.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cases.hpp"
#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/drive_options.hpp"
#include "harness/served.hpp"

namespace forebay::bench {

/// The options that each of them has.
struct drives_asked {
  std::string json_path, group, drive;
  drive_options where;
  std::uint32_t client_sms = 0;

  explicit drives_asked(command_line const& given)
      : json_path(given.text("--json", "")),
        group(given.text("--group", "")),
        drive(given.text("--drive", "")),
        where(given, 1),
        client_sms(given.number("--client-sms", 0u)) {}

  /// Beside those of `drive_options`.
  static std::vector<option> with_value() {
    return {{"--group", "measure the cases of this group alone; default: all"},
            {"--drive", "measure the cases of this drive URI alone; default: those of all drives"},
            {"--client-sms", "multiprocessors that the client uses; default: all but those of the drive"},
            {"--json", "the file of the JSON document, which is written after each case; required"}};
  }
  /// Sets what the options say of the drive of a case.
  void choose(bench_case& c) const {
    if (where.link() != "none") c.link = where.link();
  }
  /// For a client that measures some of the cases.
  std::vector<std::string> passed_on() const {
    std::vector<std::string> arguments{"--link", where.link()};
    if (!group.empty()) arguments.insert(arguments.end(), {"--group", group});
    return arguments;
  }
  /// Refuses, before anything is measured, a missing file and drives without room.
  void check() const {
    if (json_path.empty() || json_path == "-") {
      throw refused_input("--json", json_path, "name a file: it is written after each case");
    }
    // With `--drive` this may be a client that sees its own share of the multiprocessors alone.
    if (drive.empty()) where.refuse_without_room(1);
  }
  nlohmann::json document(std::string const& benchmark, std::string const& more, nlohmann::json results) const {
    nlohmann::json all = document_of(
        benchmark, fmt::format("{}_bench --json {}{}{} --residency {} --link {}", benchmark,
                               std::filesystem::path(json_path).filename().string(),
                               group.empty() ? "" : " --group " + group, more, where.residency(), where.link()));
    all["residency"] = where.residency();
    all["results"] = std::move(results);
    return all;
  }
};

/// A case that takes longer hangs: SIGALRM ends the process, and earlier results are in its file.
inline constexpr unsigned case_limit_s = 90;

/// Returns whether all went well. A case that fails does not keep the others from being measured. After each case
/// `store` gets all results so far, so that a later case that hangs loses none of them.
template <class Bench, class Case, class Store>
bool measure_each(std::vector<Case> const& cases, Bench&& all, Store&& store) {
  nlohmann::json results = nlohmann::json::array();
  bool good = true;
  for (Case const& c : cases) {
    ::alarm(case_limit_s);
    bool right = false;
    try {
      right = all.run(c, results);
    } catch (std::exception const& error) {
      fmt::print(stderr, "{}: {}\n", c.title(), error.what());
    }
    if (!right) {
      good = false;
      all.forget();
    }
    store(results);
  }
  return good;
}

/// The drives of `cases`, each once.
template <class Case>
std::vector<served_drive> drives_of(std::vector<Case> const& cases, std::string const& residency) {
  std::vector<served_drive> drives;
  for (Case const& c : cases) {
    served_drive const drive{c.drive_uri(residency), c.drive_sms()};
    if (std::find(drives.begin(), drives.end(), drive) == drives.end()) drives.push_back(drive);
  }
  return drives;
}

}  // namespace forebay::bench
