// SPDX-License-Identifier: Apache-2.0
#include "harness/drive_options.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/error.hpp"

namespace forebay::bench {
namespace {

command_line parse(std::initializer_list<char const*> arguments) {
  std::vector<char const*> all{"program"};
  all.insert(all.end(), arguments);
  return {static_cast<int>(all.size()), all.data(), drive_options::with_value({}), drive_options::switches({})};
}
drive_options options(std::initializer_list<char const*> arguments, std::uint32_t sharing_drives = 1) {
  return {parse(arguments), sharing_drives};
}

/// What a refusal says; empty if `of` throws none.
template <class Of>
std::string refusal(Of&& of) {
  try {
    of();
  } catch (refused_input const& error) {
    return error.what();
  }
  return "";
}

TEST(drive_options, are_in_the_client_without_a_link_unless_they_say_otherwise) {
  EXPECT_EQ(options({}).uri("emulated:size=1G"), "emulated:size=1G,backing=hbm,residency=in_process,sms=32");
  EXPECT_EQ(options({"--link", "none"}).link(), "none");
}

TEST(drive_options, share_thirty_two_multiprocessors) {
  EXPECT_EQ(options({}, 2).sms(), 16u);
  EXPECT_EQ(options({}, 4).sms(), 8u);
  EXPECT_EQ(options({}, 64).sms(), 1u);
  EXPECT_EQ(options({"--sms", "5"}, 4).sms(), 5u);
}

TEST(drive_options, are_in_the_uri) {
  EXPECT_EQ(options({"--link", "gen5x16", "--sms", "48"}).uri("emulated:size=1G"),
            "emulated:size=1G,backing=hbm,residency=in_process,sms=48,link=gen5x16");
  EXPECT_EQ(options({"--residency", "peer"}).uri("emulated:size=1G"),
            "emulated:size=1G,backing=peer:1,residency=peer,sms=32");
  EXPECT_EQ(options({"--residency", "served"}).uri("emulated:size=1G"),
            "emulated:size=1G,backing=hbm,residency=served,sms=32");
}

TEST(drive_options, the_time_on_the_link) {
  EXPECT_EQ(options({}).link_seconds(1e9), 0);
  EXPECT_NEAR(options({"--link", "gen3x4"}).link_seconds(3.938e9), 1, 1e-3);
  EXPECT_NEAR(options({"--link", "gen5x16"}).link_seconds(63.015e9), 1, 1e-3);
}

TEST(drive_options, leave_to_a_uri_what_it_says) {
  EXPECT_EQ(options({}).uri("emulated:size=1G,backing=peer:1,link=gen4x4,sms=3"),
            "emulated:size=1G,backing=peer:1,link=gen4x4,sms=3");
  EXPECT_EQ(options({"--residency", "served"}).uri("emulated:size=1G,backing=host,sms=3"),
            "emulated:size=1G,backing=host,sms=3,residency=served");
  EXPECT_EQ(options({}).uri("file:a.img"), "file:a.img");
}

TEST(drive_options, are_said_in_one_place) {
  EXPECT_EQ(refusal([] { options({"--link", "gen5x16"}).uri("emulated:size=1G,link=gen4x4"); }),
            "--link: 'gen5x16': the drive URI says link=gen4x4; say it in one place");
  EXPECT_EQ(refusal([] { options({"--sms", "4"}).uri("emulated:size=1G,sms=8"); }),
            "--sms: '4': the drive URI says sms=8; say it in one place");
  EXPECT_EQ(refusal([] { options({"--residency", "peer"}).uri("emulated:size=1G,backing=hbm"); }),
            "--residency: 'peer': the drive URI says backing=hbm; say it in one place");
  EXPECT_EQ(refusal([] { options({"--residency", "served"}).uri("emulated:size=1G,residency=in_process"); }),
            "--residency: 'served': the drive URI says residency=in_process; say it in one place");
  EXPECT_EQ(refusal([] { options({"--link", "gen5x16"}).uri("file:a.img"); }),
            "--link: 'gen5x16': only emulated: drives have it, and the drive is file:a.img; leave it out");
}

TEST(drive_options, refuse_values_that_no_drive_takes) {
  EXPECT_EQ(refusal([] { options({"--link", "gen5"}); }),
            "--link: 'gen5': use one of none, gen3x4, gen3x8, gen3x16, gen4x4, gen4x8, gen4x16, gen5x4, gen5x8, "
            "gen5x16, gen6x4, gen6x8, gen6x16");
  EXPECT_EQ(refusal([] { options({"--residency", "threads"}); }),
            "--residency: 'threads': use in_process, peer or served");
  EXPECT_EQ(refusal([] { options({"--sms", "0"}); }), "--sms: '0': give each drive at least 1 multiprocessor");
  EXPECT_NE(refusal([] { options({"--sms", "many"}); }), "");
}

TEST(drive_options, served_drives_of_one_storage_are_different_drives) {
  auto const served = options({"--residency", "served"}).uris("emulated:size=1G", 4);
  EXPECT_EQ(std::set<std::string>(served.begin(), served.end()).size(), 4u);
  auto const here = options({}).uris("emulated:size=1G", 4);
  EXPECT_EQ(std::set<std::string>(here.begin(), here.end()).size(), 1u);
}

TEST(drive_options, room_on_the_gpu) {
  auto const refused = [](std::initializer_list<char const*> arguments, std::uint32_t drives, std::uint32_t gpus) {
    return refusal([&] { options(arguments).refuse_without_room(drives, gpus, 132); });
  };
  EXPECT_EQ(refused({"--sms", "32"}, 4, 1), "");
  EXPECT_EQ(refused({"--sms", "33"}, 4, 1),
            "--sms: '33': 4 drives of so many multiprocessors do not fit beside a client on a GPU of 132; give less");
  EXPECT_EQ(refused({"--sms", "131", "--residency", "peer"}, 1, 2), "");
  EXPECT_NE(refused({"--sms", "132", "--residency", "peer"}, 1, 2), "");
  EXPECT_EQ(refused({"--residency", "peer"}, 1, 1),
            "--residency: 'peer': the drives need a second GPU, and this machine has 1; use in_process or served");
}

TEST(drive_options, explain_themselves_with_their_defaults) {
  for (option const& o : drive_options::with_value({})) EXPECT_NE(o.help, "") << o.name;
  std::string const text = usage("program", drive_options::with_value({}), drive_options::switches({}));
  EXPECT_NE(text.find("none (default)"), std::string::npos);
  EXPECT_NE(text.find("in_process (default)"), std::string::npos);
  EXPECT_NE(text.find("default: 32 over the number of drives"), std::string::npos);
  EXPECT_NE(text.find("--require-ok"), std::string::npos);
}

TEST(served, a_client_gets_what_the_drives_leave) {
  client_share const share = share_beside(32, 132);
  EXPECT_EQ(share.variable.second, "75");
  EXPECT_EQ(share.sms, 99u);
}

constexpr char const* two_drives = "emulated:size=1M,residency=served,seed=1 emulated:size=2M,residency=served,seed=2";

/// As the daemon of `drive_daemon`, which a test program has no `--serve` for.
TEST(served, DISABLED_serves) {
  serve_drives(two_drives, std::getenv("FOREBAY_TEST_SOCKET"));
  std::_Exit(0);
}

TEST(served, all_drives_of_a_daemon_can_be_opened) {
  std::string const socket = "/tmp/forebay-bench-test-" + std::to_string(::getpid()) + ".sock";
  child_process daemon({"--gtest_also_run_disabled_tests", "--gtest_filter=served.DISABLED_serves"},
                       {{"FOREBAY_TEST_SOCKET", socket}}, true);
  std::string line = daemon.line();
  while (!line.empty() && line != "ready") line = daemon.line();
  ASSERT_EQ(line, "ready");
  ::setenv("FOREBAY_DAEMON", socket.c_str(), 1);
  for (std::uint32_t const mebibytes : {1u, 2u}) {
    std::string const uri =
        "emulated:size=" + std::to_string(mebibytes) + "M,residency=served,seed=" + std::to_string(mebibytes);
    auto const drive = drive::open(uri, {});
    EXPECT_EQ(drive->report()["residency"], "served");
    EXPECT_EQ(drive->report()["size_bytes"], mebibytes << 20);
  }
  ::unsetenv("FOREBAY_DAEMON");
}

}  // namespace
}  // namespace forebay::bench
