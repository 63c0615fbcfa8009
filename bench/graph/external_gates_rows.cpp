// SPDX-License-Identifier: Apache-2.0
#include "graph/external_gates_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace forebay::bench {
namespace {

using json = nlohmann::json;
using memory::external_memory_options;
using memory::external_mode;

constexpr std::uint64_t mib = 1 << 20, gib = 1 << 30;

char const* name_of(gate_kind kind) {
  switch (kind) {
    case gate_kind::plain_chase:
      return "plain_chase";
    case gate_kind::plain_reads:
      return "plain_reads";
    case gate_kind::chase:
      return "chase";
    case gate_kind::reads:
      break;
  }
  return "reads";
}
char const* name_of(gate_reader reader) {
  return reader == gate_reader::thread ? "thread" : "warp";
}
char const* name_of(external_mode mode) {
  return mode == external_mode::pinned ? "pinned" : "device";
}

/// Requests of 16 bytes to 2 KiB, so that each read of a row is one.
external_memory_options options_of(double latency_us, std::uint32_t outstanding, double link) {
  external_memory_options options;
  options.latency_us = latency_us;
  options.outstanding = outstanding;
  options.link_bytes_per_second = link;
  options.alignment_bytes = 16;
  options.request_max_bytes = 2048;
  return options;
}

struct memory_set {
  char const* name;
  external_memory_options options;
};

std::vector<memory_set> sets() {
  external_memory_options flash = options_of(5, 0, 24e9);
  flash.devices = 16;
  flash.iops = 11e6;
  // Each part of each device needs clients enough to be busy always.
  flash.shards = 4;
  return {{"host memory, Gen4", options_of(1.2, 768, 24e9)},
          {"host memory, Gen3", options_of(1.2, 256, 12e9)},
          {"16 fast drives", flash},
          {"slope 192 M/s", options_of(4, 768, 24e9)},
          {"slope 48 M/s", options_of(16, 768, 24e9)}};
}

class row_list {
 public:
  explicit row_list(gate_choice const& choice) : choice_(choice) {}

  void machine() {
    for (bool const pinned : {false, true}) {
      for (std::uint64_t const bytes : regions({64 * mib, gib, 4 * gib, 8 * gib})) {
        gate_row row = row_of("machine", fmt::format("chase {} {}", pinned ? "pinned" : "device", text_of(bytes)));
        row.kind = gate_kind::plain_chase;
        row.data_pinned = pinned;
        row.region_bytes = bytes;
        add(row);
      }
    }
    for (std::uint64_t const region : regions({256 * mib, gib, 4 * gib, 8 * gib})) {
      for (std::uint32_t const bytes : {32u, 64u, 128u}) {
        gate_row row = row_of("machine", fmt::format("reads pinned {} of {} B", text_of(region), bytes));
        row.kind = gate_kind::plain_reads;
        row.data_pinned = true;
        row.region_bytes = region;
        row.bytes = bytes;
        add(row);
      }
    }
  }

  void chases() {
    for (double const latency_us : {1.2, 2.0, 4.0, 8.0, 16.0, 32.0}) {
      for (double const lead_us : {0.0, choice_.lead_us / 2, choice_.lead_us}) {
        gate_row row = row_of("chase", fmt::format("{} us, lead {} ns", latency_us, lead_us * 1e3));
        row.kind = gate_kind::chase;
        row.options = options_of(latency_us, 768, 24e9);
        row.options.lead_us = lead_us;
        add(row);
      }
    }
    for (double const latency_us : {4.0, 8.0, 16.0}) {
      gate_row row = row_of("chase", fmt::format("{} us, pinned", latency_us));
      row.kind = gate_kind::chase;
      row.options = options_of(latency_us, 768, 0);
      row.options.mode = external_mode::pinned;
      row.options.lead_us = choice_.lead_us;
      row.data_pinned = true;
      add(row);
    }
  }

  void reads() {
    for (memory_set const& set : sets()) {
      for (std::uint32_t const bytes : sizes()) {
        for (gate_reader const reader : {gate_reader::warp, gate_reader::thread}) {
          // A thread that reads more than this makes lines of its multiprocessor's cache wait for each other.
          if (reader == gate_reader::thread && bytes > 128) continue;
          gate_row row = row_of("reads", fmt::format("{}, {} B, by {}", set.name, bytes, name_of(reader)));
          row.options = set.options;
          row.options.lead_us = choice_.lead_us;
          row.bytes = bytes;
          row.reader = reader;
          add(row);
        }
      }
    }
  }

  void shards() {
    for (std::uint32_t const shards : {1u, 4u, 16u, 64u, 132u}) {
      for (gate_reader const reader : {gate_reader::warp, gate_reader::thread}) {
        for (std::uint32_t const bytes : {32u, 64u}) {
          gate_row row = row_of("shards", fmt::format("{} shards, {} B, by {}", shards, bytes, name_of(reader)));
          row.options = options_of(1.2, 768, 24e9);
          row.options.shards = shards;
          row.options.lead_us = choice_.lead_us;
          row.bytes = bytes;
          row.reader = reader;
          add(row);
        }
      }
    }
  }

  void modes() {
    for (double const latency_us : {8.0, 16.0, 32.0}) {
      for (std::uint32_t const bytes : {32u, 64u, 128u}) {
        for (gate_reader const reader : {gate_reader::warp, gate_reader::thread}) {
          for (external_mode const mode : {external_mode::device, external_mode::pinned}) {
            gate_row row = row_of(
                "modes", fmt::format("{}, {} us, {} B, by {}", name_of(mode), latency_us, bytes, name_of(reader)));
            row.options = options_of(latency_us, 768, 0);
            row.options.mode = mode;
            row.options.lead_us = choice_.lead_us;
            row.data_pinned = mode == external_mode::pinned;
            row.bytes = bytes;
            row.reader = reader;
            add(row);
          }
        }
      }
    }
  }

  std::vector<gate_row> rows;

 private:
  gate_row row_of(std::string group, std::string name) const {
    gate_row row;
    row.group = std::move(group);
    row.name = std::move(name);
    row.run_ns = choice_.run_ns;
    row.region_bytes = std::min(256 * mib, choice_.largest_bytes);
    return row;
  }
  void add(gate_row const& row) {
    if (row.group.find(choice_.only) != std::string::npos) rows.push_back(row);
  }
  std::vector<std::uint64_t> regions(std::vector<std::uint64_t> bytes) const {
    std::erase_if(bytes, [&](std::uint64_t b) { return b > choice_.largest_bytes || (choice_.quick && b > gib); });
    return bytes;
  }
  std::vector<std::uint32_t> sizes() const {
    if (choice_.quick) return {32, 128, 512};
    return {16, 32, 64, 128, 512, 2048};
  }
  static std::string text_of(std::uint64_t bytes) {
    return bytes >= gib ? fmt::format("{} GiB", bytes / gib) : fmt::format("{} MiB", bytes / mib);
  }

  gate_choice const& choice_;
};

}  // namespace

std::vector<gate_row> gate_rows(gate_choice const& choice) {
  row_list list(choice);
  list.machine();
  list.chases();
  list.reads();
  list.shards();
  list.modes();
  return list.rows;
}

std::uint32_t gate_row::hops() const {
  double const step_ns = kind == gate_kind::chase ? std::max(options.latency_us * 1e3, 100.0) : 1000.0;
  return std::max(10u, static_cast<std::uint32_t>(static_cast<double>(run_ns) / step_ns));
}

double gate_row::expected() const {
  if (is_plain()) return 0;
  if (chases()) return options.latency_us * 1e3;
  double least = std::numeric_limits<double>::infinity();
  if (options.iops != 0) least = std::min(least, options.iops * options.devices);
  if (options.outstanding != 0 && options.latency_us != 0) {
    least = std::min(least, options.outstanding / (options.latency_us * 1e-6));
  }
  if (options.link_bytes_per_second != 0) {
    double const bytes_read = std::max(bytes, options.alignment_bytes);
    least = std::min(least, options.link_bytes_per_second / bytes_read);
  }
  return least == std::numeric_limits<double>::infinity() ? 0 : least;
}

double gate_run::value(gate_row const& row) const {
  if (reads == 0 || seconds <= 0) return 0;
  return row.chases() ? seconds * 1e9 / static_cast<double>(reads) : static_cast<double>(reads) / seconds;
}

json describe(gate_row const& row, std::vector<gate_run> runs) {
  std::sort(runs.begin(), runs.end(),
            [&](gate_run const& a, gate_run const& b) { return a.value(row) < b.value(row); });
  gate_run const& median = runs.at(runs.size() / 2);
  json result = {{"group", row.group},
                 {"name", row.name},
                 {"kind", name_of(row.kind)},
                 {"data", row.data_pinned ? "pinned" : "device"},
                 {"region_bytes", row.region_bytes},
                 {"bytes", row.chases() ? 128 : row.bytes},
                 {"unit", row.chases() ? "ns" : "reads/s"},
                 {"measured", median.value(row)},
                 {"reads", median.reads},
                 {"seconds", median.seconds}};
  for (gate_run const& run : runs) result["runs"].push_back(run.value(row));
  if (!row.chases()) {
    result["reader"] = row.kind == gate_kind::plain_reads ? "lanes" : name_of(row.reader);
    result["bytes_per_second"] = median.value(row) * row.bytes;
  }
  bool verified = true;
  for (gate_run const& run : runs) verified = verified && run.wrong == 0 && run.reads != 0;
  result["verified"] = verified;
  if (row.is_plain()) return result;
  external_memory_options const& o = row.options;
  result["memory"] = {{"mode", name_of(o.mode)},
                      {"latency_us", o.latency_us},
                      {"alignment", o.alignment_bytes},
                      {"iops", o.iops},
                      {"devices", o.devices},
                      {"outstanding", o.outstanding},
                      {"link", o.link_bytes_per_second},
                      {"request_max", o.request_max_bytes},
                      {"shards", median.shards},
                      {"lead_us", o.lead_us.value_or(0)}};
  double const late = median.reads == 0 ? 0 : static_cast<double>(median.late) / static_cast<double>(median.reads);
  result["late_share"] = late;
  double const expected = row.expected();
  if (expected == 0) return result;
  double const ratio = median.value(row) / expected;
  result["expected"] = expected;
  result["ratio"] = ratio;
  result["tolerance"] = row.tolerance();
  result["within"] = ratio >= 1 - row.tolerance() && ratio <= 1 + row.tolerance() && late < 0.01;
  return result;
}

void compare(json& rows) {
  auto const other = [&](auto&& fits) {
    for (json const& row : rows) {
      if (fits(row)) return row["measured"].get<double>();
    }
    return 0.0;
  };
  for (json& row : rows) {
    if (row["kind"] == "plain_reads") {
      double const latency_ns = other([&](json const& chase) {
        return chase["kind"] == "plain_chase" && chase["data"] == row["data"] &&
               chase["region_bytes"] >= row["region_bytes"];
      });
      // Little's law: equation 3 with the rate that was measured.
      if (latency_ns != 0) row["outstanding"] = row["measured"].get<double>() * latency_ns * 1e-9;
    }
    if (row["group"] == "modes" && row["memory"]["mode"] == "pinned") {
      double const device = other([&](json const& r) {
        return r["group"] == "modes" && r["memory"]["mode"] == "device" && r["bytes"] == row["bytes"] &&
               r["reader"] == row["reader"] && r["memory"]["latency_us"] == row["memory"]["latency_us"];
      });
      if (device != 0) row["of_device"] = row["measured"].get<double>() / device;
    }
  }
}

std::string line_of(json const& row) {
  double const measured = row["measured"].get<double>();
  std::string text = fmt::format("{:8} {:42} ", row["group"].get<std::string>(), row["name"].get<std::string>());
  text += row["unit"] == "ns" ? fmt::format("{:9.1f} ns ", measured) : fmt::format("{:9.2f} M/s", measured * 1e-6);
  if (row.contains("ratio")) {
    text += fmt::format("  {:6.3f} of expected  late {:6.3f} %{}", row["ratio"].get<double>(),
                        100 * row["late_share"].get<double>(), row["within"].get<bool>() ? "" : "  MISSED");
  }
  if (row.contains("of_device")) text += fmt::format("  {:6.3f} of device", row["of_device"].get<double>());
  if (row.contains("outstanding")) text += fmt::format("  {:.0f} in flight", row["outstanding"].get<double>());
  return text + (row["verified"].get<bool>() ? "" : "  WRONG");
}

}  // namespace forebay::bench
