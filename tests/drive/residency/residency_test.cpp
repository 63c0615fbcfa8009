// SPDX-License-Identifier: Apache-2.0
//! \file
//! The residency proof on the CPU: its claims hold for drives on threads, served and not, and it finds planted errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "drive/residency/client.hpp"
#include "forebay/error.hpp"
#include "support/folders.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::residency {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char const* small = "emulated:size=4M,queues=40";

struct outcome {
  int status;
  json document;
  json claim(char const* name) const { return document.at("claims").at(name); }
};

/// Runs the program as one would run it for a proof.
outcome soak(std::string const& arguments) {
  std::string const file =
      (std::filesystem::path(testing::TempDir()) / ("residency-" + std::to_string(::getpid()) + ".json")).string();
  std::string const command = test::built_program("residency_soak") + " " + arguments +
                              " --device cpu --threads 160 --limit 110 --settled 0.2 --json " + file + " >&2";
  int const status = std::system(command.c_str());
  std::ifstream in(file);
  outcome o{WEXITSTATUS(status), in ? json::parse(in) : json::object()};
  std::filesystem::remove(file);
  return o;
}

client_options options(std::uint32_t threads = 64) {
  client_options o;
  o.drive = small;
  o.device = "cpu";
  o.threads = threads;
  return o;
}

class proof {
 public:
  watchdog dog{std::chrono::seconds(100), std::chrono::seconds(100)};
  watchdog::watched me{dog, "test"};
  client one;
  explicit proof(client_options const& o = options()) : one(o, dog) {
    lay_down_common(one.drive(), one.work(), me);
    one.drive().reset_statistics();
    one.lay_down();
  }
  void run(std::uint32_t waves) {
    one.run(0, waves, [](std::string const&) {});
  }
};

TEST(residency, plans_do_not_overlap) {
  client_options o = options();
  o.clients = 3;
  std::uint64_t end = 0;
  for (o.client = 0; o.client < 3; ++o.client) {
    plan const p = make_plan(o, 1 << 20, 512, 7);
    EXPECT_GE(p.own_first, end == 0 ? p.common_bytes : end);
    EXPECT_EQ(p.common_first, 0u);
    end = p.own_first + p.own_bytes();
    EXPECT_LE(end, 1u << 20);
    EXPECT_GT(p.own_bytes(), (1u << 20) / 8 * 7 / 3 - 7 * 512 - 512);
  }
  EXPECT_THROW(make_plan(o, 1 << 12, 512, 64), refused_input);
}

TEST(residency, counts_what_the_drive_counts) {
  proof p;
  p.run(2);
  traffic expected = p.one.kernel_traffic();
  EXPECT_GT(expected.read_commands, 0u);
  EXPECT_GT(expected.write_commands, p.one.work().threads);
  EXPECT_EQ(to_json(p.one.drive_traffic()), to_json(expected));
  EXPECT_EQ(p.one.wrong_blocks_at_rest(expected), 0u);
  EXPECT_EQ(to_json(p.one.drive_traffic()), to_json(expected));
  EXPECT_EQ(p.one.counted().wrong_blocks, 0u);
}

TEST(residency, finds_a_wrong_block_of_its_own) {
  proof p;
  p.run(1);
  plan const& work = p.one.work();
  std::vector<std::byte> bytes(work.own_bytes());
  p.one.drive().pread(bytes.data(), bytes.size(), work.own_first);
  // The last byte of every block, and all of a block with the previous version: the result of a lost write.
  for (std::uint64_t at = 511; at < bytes.size(); at += 512) bytes[at] ^= std::byte{1};
  p.one.drive().pwrite(bytes.data(), bytes.size(), work.own_first);
  p.run(2);
  EXPECT_GT(p.one.counted().wrong_blocks, 0u);
  EXPECT_GE(p.one.counted().first_wrong_byte, work.own_first);
  traffic unused;
  EXPECT_GT(p.one.wrong_blocks_at_rest(unused), 0u);
  EXPECT_NE(p.one.drive_traffic(), p.one.kernel_traffic()) << "what others do is counted by the drive alone";
}

TEST(residency, finds_a_lost_write_and_a_wrong_common_block) {
  proof p;
  plan const& work = p.one.work();
  std::vector<std::byte> before(work.own_bytes());
  p.one.drive().pread(before.data(), before.size(), work.own_first);
  p.run(2);
  p.one.drive().pwrite(before.data(), before.size(), work.own_first);
  traffic unused;
  EXPECT_GT(p.one.wrong_blocks_at_rest(unused), 0u);
  EXPECT_EQ(wrong_common_blocks(p.one.drive(), work, p.me), 0u);
  p.one.drive().pwrite("x", 1, work.common_bytes - 1);
  EXPECT_EQ(wrong_common_blocks(p.one.drive(), work, p.me), 1u);
}

TEST(residency, soak_in_process) {
  outcome const o = soak(std::string("soak --waves 3 --drive ") + small);
  EXPECT_EQ(o.status, 0);
  EXPECT_TRUE(o.claim("client and drive count the same"));
  EXPECT_TRUE(o.claim("the drive holds what was written"));
  EXPECT_EQ(o.document["waves"], 3);
}

/// What a controller counts that this project did not write.
TEST(residency, soak_on_qemu) {
  FOREBAY_NEEDS_QEMU();
  for (std::string const keys : {"lba_bytes=4096,size=8M", "mdts=1,nsid=2,size=4M"}) {
    outcome const o = soak("soak --waves 3 --drive qemu:" + keys);
    EXPECT_EQ(o.status, 0);
    EXPECT_TRUE(o.claim("client and drive count the same"));
    EXPECT_TRUE(o.claim("the drive holds what was written"));
  }
}

TEST(residency, soak_served) {
  outcome const o = soak(std::string("soak --serve --waves 2 --drive ") + small + ",residency=served");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.document["daemon"]["restarts"], 0);
  EXPECT_EQ(o.document["report"]["drives"][0]["residency"], "served");
}

TEST(residency, two_clients_share) {
  outcome const o = soak(std::string("share --serve --waves 2 --drive ") + small + ",residency=served");
  EXPECT_EQ(o.status, 0);
  EXPECT_TRUE(o.claim("both clients together and the drive count the same"));
  EXPECT_TRUE(o.claim("client 0 is content"));
  EXPECT_TRUE(o.claim("client 1 is content"));
}

class death : public testing::TestWithParam<std::string> {};
TEST_P(death, leaves_the_data) {
  outcome const o = soak(GetParam() + " --serve --waves 2 --drive " + small + ",residency=served");
  EXPECT_EQ(o.status, 0);
  EXPECT_TRUE(o.claim("the flushed data is intact"));
  EXPECT_TRUE(o.claim("another client does its work"));
  EXPECT_EQ(o.document["restarts"], GetParam() == "restart" ? 1 : 0);
  EXPECT_GE(o.document["back_after_s"], 0);
}
INSTANTIATE_TEST_SUITE_P(residency, death, testing::Values("kill", "exit", "restart"),
                         [](auto const& about) { return about.param; });

TEST(residency, refuses_what_it_cannot_do) {
  EXPECT_EQ(soak("soak").status, 2);
  EXPECT_EQ(soak("melt --drive emulated:size=4M").status, 2);
  EXPECT_EQ(soak("share --drive emulated:size=4M").status, 2);
  EXPECT_EQ(soak("restart --drive emulated:size=4M,residency=served").status, 2);
  EXPECT_EQ(soak("soak --waves 1 --drive emulated:size=64K").status, 2);
}

TEST(watchdog_test, ends_a_program_that_hangs) {
  EXPECT_EXIT(
      {
        watchdog dog(std::chrono::seconds(100), std::chrono::seconds(0));
        watchdog::watched me(dog, "some thread");
        me.now("waits for ever");
        for (;;) ::pause();
      },
      testing::ExitedWithCode(hung_status), HasSubstr("some thread: waits for ever"));
  EXPECT_EXIT(
      {
        watchdog dog(std::chrono::seconds(0), std::chrono::seconds(100));
        for (;;) ::pause();
      },
      testing::ExitedWithCode(hung_status), HasSubstr("no end after 0 s"));
}

}  // namespace
}  // namespace forebay::residency
