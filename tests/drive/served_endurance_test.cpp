// SPDX-License-Identifier: Apache-2.0
//! \file
//! A daemon among hostile clients, and one whose processes are killed at any point. FOREBAY_HOSTILE_SECONDS says how
//! long, FOREBAY_KILLS how often, FOREBAY_SEED from which seed on.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "drive/daemons.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "support/environment.hpp"

namespace forebay::drive {
namespace {

using nlohmann::json;
using simt::native;
using test::far_daemon;
using test::number_from_environment;
using test::process;

constexpr std::uint64_t patience_ns = 60'000'000'000;

std::uint64_t chosen_seed() {
  return number_from_environment("FOREBAY_SEED", std::random_device()());
}
std::string replay(std::uint64_t seed) {
  return "again: FOREBAY_SEED=" + std::to_string(seed) +
         " served_test --gtest_filter=" + testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() +
         "." + testing::UnitTest::GetInstance()->current_test_info()->name();
}

/// Writes and reads, and knows what data must be there.
class verifying_client {
 public:
  verifying_client(std::string const& uri, std::uint64_t seed)
      : storage_({.drives = {uri}, .device = "cpu"}), random_(seed), expected_(storage_.size_bytes()) {}

  void work() {
    std::uint64_t const bytes = 1 + random_() % 40'000;
    std::uint64_t const at = random_() % (expected_.size() - bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) expected_[at + i] = static_cast<char>(random_());
    storage_.pwrite(expected_.data() + at, bytes, at);
    std::uint64_t const from = random_() % (expected_.size() - bytes);
    std::vector<char> back(bytes);
    storage_.pread(back.data(), bytes, from);
    ASSERT_EQ(std::memcmp(back.data(), expected_.data() + from, bytes), 0) << "wrong bytes at " << from;
    if (random_() % 16 == 0) storage_.flush();
    ++rounds;
  }
  void compare_everything() {
    std::vector<char> back(expected_.size());
    storage_.pread(back.data(), back.size(), 0);
    ASSERT_EQ(back, expected_);
  }
  json report() { return json::parse(storage_.report())["drives"][0]; }
  std::uint64_t rounds = 0;

 private:
  storage storage_;
  std::mt19937_64 random_;
  std::vector<char> expected_;
};

TEST(served_endurance, a_client_among_hostile_ones_sees_no_wrong_byte_and_no_disconnection) {
  std::uint64_t const seed = chosen_seed();
  SCOPED_TRACE(replay(seed));
  std::uint64_t const seconds = number_from_environment("FOREBAY_HOSTILE_SECONDS", 3);
  std::string const file = test::temporary("hostile.img");
  create("emulated:backing=file,size=8M,path=" + file);
  std::string const in_memory = "emulated:size=8M,residency=served,queues=64,threads=2";
  std::string const in_file = "emulated:backing=file,residency=served,queues=40,path=" + file;
  std::string const prey = "emulated:size=4M,residency=served,queues=64,seed=1";
  std::mt19937_64 random(seed);
  far_daemon daemon({in_memory, in_file, prey});
  pid_t const engine = daemon.engine();
  verifying_client first(in_memory, random()), second(in_file, random());
  std::vector<std::unique_ptr<process>> hostile;
  std::uint64_t const until_ns = native::clock_ns() + seconds * 1'000'000'000;
  auto const unleash = [&] {
    std::uint64_t const now_ns = native::clock_ns();
    return std::make_unique<process>(
        std::vector<std::string>{"harm", daemon.socket.path, prey, in_memory, std::to_string(random()),
                                 std::to_string(now_ns < until_ns ? until_ns - now_ns : 0)});
  };
  for (int i = 0; i < 3; ++i) hostile.push_back(unleash());
  std::uint64_t ended = 0;
  while (native::clock_ns() < until_ns) {
    ASSERT_NO_FATAL_FAILURE(first.work());
    ASSERT_NO_FATAL_FAILURE(second.work());
    ASSERT_EQ(daemon.engine(), engine) << "the engine died";
    auto& one = hostile[random() % hostile.size()];
    if (random() % 100 == 0) one->kill_and_wait(SIGKILL);
    if (one->id() == 0 || one->wait_for(0)) {
      ++ended;
      one = unleash();
    }
  }
  hostile.clear();
  ASSERT_NO_FATAL_FAILURE(first.compare_everything());
  ASSERT_NO_FATAL_FAILURE(second.compare_everything());
  EXPECT_EQ(first.report()["restarts"], 0);
  std::printf("%llu rounds of two verifying clients; %llu hostile ones ended or were killed\n",
              static_cast<unsigned long long>(first.rounds), static_cast<unsigned long long>(ended));
  std::filesystem::remove(file);
}

/// How many processes say `word` in their command line, this one left out.
std::size_t processes_that_name(std::string const& word) {
  std::size_t count = 0;
  for (auto const& entry : std::filesystem::directory_iterator("/proc")) {
    std::string const id = entry.path().filename().string();
    if (id.find_first_not_of("0123456789") != std::string::npos || id == std::to_string(getpid())) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string const line((std::istreambuf_iterator<char>(file)), {});
    count += line.find(word) != std::string::npos;
  }
  return count;
}

enum class victim { supervisor, engine, client };

class killed_at_any_point : public testing::TestWithParam<victim> {};

TEST_P(killed_at_any_point, what_was_flushed_is_there_and_nothing_is_left_behind) {
  std::uint64_t const seed = chosen_seed();
  SCOPED_TRACE(replay(seed));
  std::uint64_t const kills = number_from_environment("FOREBAY_KILLS", 5);
  std::mt19937_64 random(seed);
  std::string const file = test::temporary("killed.img");
  std::string const uri = "emulated:backing=file,residency=served,queues=40,path=" + file;
  create("emulated:backing=file,size=8M,path=" + file);
  std::string const socket = test::temporary("far.sock");
  for (std::uint64_t round = 0; round < kills; ++round) {
    std::uint64_t flushed = 0;
    {
      far_daemon daemon({uri}, "serve_for_a_parent");
      pid_t const engine = daemon.engine();
      // Prints each number once it is durable on the drive.
      bool const serves_on = GetParam() == victim::client;
      process client({"count", uri, serves_on ? "60000000000" : "300000000"});
      auto const hear = [&] {
        std::string const line = client.line();
        if (line.empty() || line.find_first_not_of("0123456789") != std::string::npos) return false;
        flushed = std::max<std::uint64_t>(flushed, std::stoull(line));
        return true;
      };
      ASSERT_TRUE(hear()) << "round " << round << ": the client does not start";
      for (std::uint64_t const until_ns = native::clock_ns() + random() % 60'000'000; native::clock_ns() < until_ns;) {
        // On a busy machine a flush may take longer than the time limit of a client that must notice quickly.
        if (!hear()) break;
      }
      switch (GetParam()) {
        case victim::supervisor:
          daemon.daemon.kill_and_wait(SIGKILL);
          break;
        case victim::engine:
          kill(engine, SIGKILL);
          break;
        case victim::client:
          client.kill_and_wait(SIGKILL);
          break;
      }
      // What the client printed before it noticed.
      while (hear()) {
      }
      if (client.id() != 0) {
        ASSERT_TRUE(client.wait_for(patience_ns)) << "round " << round << ": the client hangs";
      }
      if (GetParam() != victim::supervisor) {
        // Still serving, or again.
        std::optional<storage> again;
        ASSERT_TRUE(native::wait_until(
            [&] {
              try {
                again.emplace(storage_options{.drives = {uri}, .device = "cpu"});
                return true;
              } catch (std::exception const&) {
                return false;
              }
            },
            native::clock_ns() + patience_ns))
            << "round " << round;
        std::uint64_t there = 0;
        again->pread(&there, sizeof there, 4096);
        ASSERT_GE(there, flushed) << "round " << round;
        again.reset();
        kill(daemon.daemon.id(), SIGTERM);
        ASSERT_TRUE(daemon.daemon.wait_for(patience_ns)) << "round " << round;
        ASSERT_FALSE(std::filesystem::exists(socket)) << "round " << round;
      }
      ASSERT_TRUE(
          native::wait_until([&] { return processes_that_name(socket) == 0; }, native::clock_ns() + patience_ns))
          << "round " << round << ": a process is left behind";
    }
    storage direct({.drives = {"file:" + file}, .device = "cpu"});
    std::uint64_t there = 0;
    direct.pread(&there, sizeof there, 4096);
    ASSERT_GE(there, flushed) << "round " << round;
    std::uint64_t const none = 0;
    direct.pwrite(&none, sizeof none, 4096);
    direct.flush();
  }
  std::filesystem::remove(file);
}
INSTANTIATE_TEST_SUITE_P(served, killed_at_any_point,
                         testing::Values(victim::supervisor, victim::engine, victim::client), [](auto const& about) {
                           switch (about.param) {
                             case victim::supervisor:
                               return "supervisor";
                             case victim::engine:
                               return "engine";
                             default:
                               return "client";
                           }
                         });

}  // namespace
}  // namespace forebay::drive
