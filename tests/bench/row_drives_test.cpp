// SPDX-License-Identifier: Apache-2.0
#include "harness/row_drives.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"

namespace forebay::bench {
namespace {

using nlohmann::json;

struct said {
  std::string fidelity = "ok", link = "none";
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t commands = 1;
};

json of_drive(said const& d) {
  return {{"fidelity", d.fidelity},
          {"link", d.link},
          {"residency", "in_process"},
          {"statistics",
           {{"bytes_read", d.read_bytes},
            {"bytes_written", d.written_bytes},
            {"read_commands", d.commands},
            {"write_commands", 0}}}};
}
json of_storage(std::vector<said> const& drives) {
  json all = {{"drives", json::array()}};
  for (said const& d : drives) all["drives"].push_back(of_drive(d));
  return all;
}
said const exceeded{.fidelity = "exceeded"}, ok, idle{.commands = 0};

/// A row whose drives made these reports, each on so many seconds.
json row_of(std::vector<json> const& reports, double seconds = 1) {
  row_drives drives;
  for (json const& r : reports) drives.add(r, seconds);
  json row = {{"iops", 5}};
  drives.describe(row);
  return row;
}

TEST(row_drives, a_row_without_drives_says_none) {
  json const expected = {
      {"iops", 5}, {"fidelity", "none"}, {"link", "none"}, {"residency", "none"}, {"beyond_link", false}};
  EXPECT_EQ(row_of({}), expected);
}

TEST(row_drives, idle_drives_do_not_vouch) {
  said d = idle;
  d.link = "gen5x16";
  json const row = row_of({of_storage({d})});
  EXPECT_EQ(row["fidelity"], "none");
  EXPECT_EQ(row["link"], "gen5x16");
  EXPECT_EQ(row["residency"], "in_process");
}

TEST(row_drives, the_worst_drive_counts) {
  EXPECT_EQ(row_of({of_storage({ok, idle})})["fidelity"], "ok");
  EXPECT_EQ(row_of({of_storage({exceeded, ok})})["fidelity"], "exceeded");
  EXPECT_EQ(row_of({of_storage({exceeded}), of_storage({ok})})["fidelity"], "exceeded");
  EXPECT_EQ(row_of({of_drive(exceeded)})["fidelity"], "exceeded");
}

TEST(row_drives, more_than_the_link_carries) {
  constexpr std::uint64_t gb = 1'000'000'000;
  auto const beyond = [](std::vector<said> const& drives, double seconds = 1) {
    return row_of({of_storage(drives)}, seconds)["beyond_link"].get<bool>();
  };
  // 3.94 GB/s.
  EXPECT_FALSE(beyond({{.link = "gen3x4", .read_bytes = 39 * gb / 10}}));
  EXPECT_TRUE(beyond({{.link = "gen3x4", .read_bytes = 4 * gb}}));
  EXPECT_FALSE(beyond({{.link = "gen3x4", .read_bytes = 4 * gb}}, 2));
  // Drives share it, and each direction has it to itself.
  EXPECT_TRUE(beyond({{.link = "gen3x4", .read_bytes = 2 * gb}, {.link = "gen3x4", .read_bytes = 2 * gb}}));
  EXPECT_FALSE(beyond({{.link = "gen3x4", .read_bytes = 2 * gb, .written_bytes = 2 * gb}}));
  EXPECT_TRUE(beyond({{.link = "gen3x4", .written_bytes = 4 * gb}}));
  // Without one, what PCI Express 5.0 x16 carries: 63.0 GB/s.
  EXPECT_FALSE(beyond({{.read_bytes = 63 * gb}}));
  EXPECT_TRUE(beyond({{.read_bytes = 64 * gb}}));
}

TEST(row_drives, one_run_beyond_the_link_is_enough) {
  json const quick = of_storage({{.read_bytes = 64'000'000'000}});
  EXPECT_EQ(row_of({quick, of_storage({idle})})["beyond_link"], true);
}

TEST(row_drives, read_what_a_drive_reports) {
  auto const drive = drive::open("emulated:size=1M,link=gen4x8", {});
  json const row = row_of({drive->report()});
  EXPECT_EQ(row["link"], "gen4x8");
  EXPECT_EQ(row["residency"], "threads");
  EXPECT_EQ(row["fidelity"], "none");
}

TEST(rows_not_ok, are_named_with_the_way_to_them) {
  json const late = row_of({of_drive(exceeded)}), good = row_of({of_drive(ok)});
  json named = late;
  named["name"] = "random reads";
  json document;
  document["results"] = json::array({good, named, row_of({})});
  document["results"][2]["storage"]["cold"] = late;
  document["report"] = of_storage({exceeded});
  EXPECT_EQ(rows_not_ok(document), (std::vector<std::string>{"results[1] (random reads): fidelity exceeded",
                                                             "results[2].storage.cold: fidelity exceeded"}));
  EXPECT_FALSE(all_rows_ok(document));
  EXPECT_EQ(rows_not_ok(late), std::vector<std::string>{"the document: fidelity exceeded"});
  EXPECT_TRUE(all_rows_ok(good));
}

}  // namespace
}  // namespace forebay::bench
