// SPDX-License-Identifier: Apache-2.0
#include "harness/row_drives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "forebay/detail/memory/link_speed.hpp"

namespace forebay::bench {

using nlohmann::json;

namespace {

constexpr char const* usual_link = "gen5x16";
/// A link on a GPU makes up for 2 us in which it was idle, which is this part of a run of 2 ms.
constexpr double tolerance = 1e-3;

void find_rows(json const& at, std::string const& way, std::vector<std::string>& found) {
  if (at.is_array()) {
    for (std::size_t i = 0; i < at.size(); ++i) find_rows(at[i], fmt::format("{}[{}]", way, i), found);
  }
  if (!at.is_object()) return;
  // Reports have a fidelity too, and are no rows.
  if (at.contains("fidelity") && at.contains("beyond_link") && at["fidelity"] != "ok" && at["fidelity"] != "none") {
    std::string const name = at.value("name", "");
    found.push_back(fmt::format("{}{}: fidelity {}", way.empty() ? "the document" : way,
                                name.empty() ? "" : " (" + name + ")", at["fidelity"].get<std::string>()));
  }
  for (auto const& [key, value] : at.items()) find_rows(value, way.empty() ? key : way + '.' + key, found);
}

}  // namespace

void row_drives::add(json const& report, double seconds) {
  json const drives = report.contains("drives") ? report["drives"] : json::array({report});
  std::uint64_t read = 0, written = 0;
  for (json const& d : drives) {
    json const& counts = d["statistics"];
    read += counts["bytes_read"].get<std::uint64_t>();
    written += counts["bytes_written"].get<std::uint64_t>();
    link_ = d.value("link", "none");
    residency_ = d.value("residency", "none");
    if (counts["read_commands"].get<std::uint64_t>() + counts["write_commands"].get<std::uint64_t>() == 0) continue;
    used_ = true;
    if (std::string const said = d.value("fidelity", "ok"); said != "ok") worst_ = said;
  }
  double const carries = memory::find_link_speed(link_ == "none" ? usual_link : link_).bytes_per_second;
  double const moved = static_cast<double>(std::max(read, written));
  beyond_link_ = beyond_link_ || moved > carries * (1 + tolerance) * seconds;
}

void row_drives::describe(json& row) const {
  row["fidelity"] = used_ ? worst_ : "none";
  row["link"] = link_;
  row["residency"] = residency_;
  row["beyond_link"] = beyond_link_;
}

std::vector<std::string> rows_not_ok(json const& document) {
  std::vector<std::string> found;
  find_rows(document, "", found);
  return found;
}

bool all_rows_ok(json const& document) {
  std::vector<std::string> const found = rows_not_ok(document);
  for (std::string const& row : found) fmt::print(stderr, "--require-ok: {}\n", row);
  if (!found.empty()) {
    fmt::print(
        stderr,
        "--require-ok: in these rows the drives could not keep their times: give each more multiprocessors, or ask "
        "for a lower rate\n");
  }
  return found.empty();
}

}  // namespace forebay::bench
