// SPDX-License-Identifier: Apache-2.0
//! \file
//! The shipped profiles' claims, compared with the published figures of the drives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "forebay/detail/drive/profile.hpp"
#include "forebay/detail/emulator/flash_state.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/folders.hpp"

namespace forebay::drive {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr double tolerance = 0.03;

/// Published of reads or of writes; 0: not published.
struct figures {
  double miops_512 = 0;
  double miops_4k = 0;
  double gb_per_s_128k = 0;
  double latency_us = 0;  ///< at most; of a lone small command
};

struct published {
  char const* profile;
  figures read;
  figures write;
};

// The profiles name where each comes from.
constexpr published drives[] = {
    {"d7-ps1010", {2.47, 2.47, 0, 50}, {}},
    {"p5800x", {4.9, 1.5, 7.2, 6}, {0, 0, 6.5, 6}},
    {"p4800x", {0, 0.55, 2.4, 10}, {0, 0.5, 2.0, 10}},
    {"990-pro", {0, 1.4, 7.45, 0}, {0, 1.55, 6.9, 0}},
    {"980-pro", {0, 1.0, 7.0, 45.5}, {0, 1.0, 5.0, 0}},
    {"sn740", {0, 0.65, 5.15, 0}, {0, 0.8, 4.85, 0}},
    {"pm1735", {0, 1.45, 8.0, 0}, {0, 0.26, 3.8, 0}},
    {"9550-max", {0, 3.3, 14.0, 60}, {0, 0.64, 10.0, 15}},
    {"970-pro", {0, 0.37, 3.5, 63}, {0, 0.5, 2.3, 5.7}},
    {"fl6", {0, 1.5, 6.2, 29}, {0, 0.4, 5.8, 8}},
    {"xlfdd", {0, 0, 3.94, 5}, {}},  // and 11 MIOPS below a block of NVMe
    {"gp-series-10m", {10, 0, 0, 5}, {}},
    {"storagenext-40m", {40, 0, 0, 50}, {}},
    {"storagenext-100m", {100, 0, 0, 50}, {}},
    {"future-200m", {200, 0, 0, 50}, {}},
};

double rate_at(emulator::operation_cost const& cost, std::uint64_t bytes) {
  return 1e12 / static_cast<double>(cost.cost_ps(bytes));
}

void expect_near(double found, double claimed, std::string const& what) {
  if (claimed == 0) return;
  EXPECT_NEAR(found, claimed, claimed * tolerance) << what;
}

void expect_meets(emulator::operation_cost const& cost, figures const& claimed, std::string const& what) {
  expect_near(rate_at(cost, 512) / 1e6, claimed.miops_512, what + " MIOPS at 512 B");
  expect_near(rate_at(cost, 4 * kib) / 1e6, claimed.miops_4k, what + " MIOPS at 4 KiB");
  expect_near(rate_at(cost, 128 * kib) * 128 * kib / 1e9, claimed.gb_per_s_128k, what + " GB/s at 128 KiB");
  if (claimed.latency_us > 0) {
    double const latency_us = static_cast<double>(cost.latency_min_ps) / 1e6;
    EXPECT_LE(latency_us, claimed.latency_us) << what;
    EXPECT_GE(latency_us, claimed.latency_us * 0.9) << what;
  }
}

TEST(shipped_profiles_test, each_meets_the_published_figures) {
  for (published const& drive : drives) {
    emulator::timing_parameters const timing = find_profile(drive.profile).timing;
    expect_meets(timing.read, drive.read, std::string(drive.profile) + " read");
    expect_meets(timing.write, drive.write, std::string(drive.profile) + " write");
  }
}

TEST(shipped_profiles_test, none_is_without_published_figures) {
  std::set<std::string> known = {"ideal"};
  for (published const& drive : drives) known.insert(drive.profile);
  std::set<std::string> shipped;
  for (auto const& entry : std::filesystem::directory_iterator(test::source_path("profiles"))) {
    shipped.insert(entry.path().stem().string());
  }
  EXPECT_EQ(shipped, known);
}

TEST(shipped_profiles_test, xlfdd_does_eleven_million_reads_a_second_up_to_256_bytes) {
  auto const read = find_profile("xlfdd").timing.read;
  EXPECT_NEAR(rate_at(read, 16), 11e6, 11e6 * tolerance);
  EXPECT_NEAR(rate_at(read, 256), 11e6, 11e6 * tolerance);
}

TEST(shipped_profiles_test, drives_that_do_not_exist_say_so) {
  for (char const* name : {"gp-series-10m", "storagenext-40m", "storagenext-100m", "future-200m"}) {
    profile const found = find_profile(name);
    EXPECT_NE(found.description.find("target"), std::string::npos) << name;
    bool said = false;
    for (auto const& [key, source] : found.sources) said |= source.starts_with("a target, not a product");
    EXPECT_TRUE(said) << name;
  }
}

/// A drive of 1 GiB, represented by its timing models alone.
class modelled_drive {
 public:
  explicit modelled_drive(emulator::timing_parameters const& timing)
      : flash_(timing.flash, drive_bytes, 0, memory::host()),
        next_free_ps_(emulator::timing_parameters::max_channels),
        scratch_(emulator::timing_parameters::max_channels),
        model_(timing, next_free_ps_.data(), nullptr, flash_.model(), flash_.geometry()) {}

  /// The rate of a client with `in_flight` commands always in flight, in units a second.
  double miops(emulator::operation op, std::uint64_t bytes, bool random, std::uint32_t in_flight) {
    std::mt19937_64 draw(1);
    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> clients;
    for (std::uint32_t i = 0; i < in_flight; ++i) clients.push(0);
    std::uint64_t const n = drive_bytes / bytes / (random ? 2 : 1);
    for (std::uint64_t i = 0; i < n; ++i) {
      emulator::timed_command command{.offset_bytes = (random ? draw() % (drive_bytes / bytes) : i) * bytes,
                                      .bytes = bytes,
                                      .sequence = i,
                                      .op = op};
      model_.assign(simt::team<simt::native>::here(), &command, 1, clients.top(), scratch_.data());
      clients.pop();
      clients.push(command.target_ps);
    }
    return static_cast<double>(n) * 1e6 / static_cast<double>(clients.top());
  }
  double amplification() const {
    emulator::flash_counters counts;
    flash_.collect<simt::native>(counts);
    return static_cast<double>(counts.pages_programmed) / static_cast<double>(counts.host_pages_written);
  }

  static constexpr std::uint64_t drive_bytes = std::uint64_t{1} << 30;

 private:
  emulator::flash_state<simt::native> flash_;
  std::vector<std::uint64_t> next_free_ps_, scratch_;
  emulator::timing_model<simt::native> model_;
};

class the_970_pro : public ::testing::Test {
 protected:
  static modelled_drive drive(emulator::preconditioning start) {
    emulator::timing_parameters timing = find_profile("970-pro").timing;
    timing.flash.start = start;
    return modelled_drive(timing);
  }
};

TEST_F(the_970_pro, is_what_was_published_with_its_flash_behind_it) {
  using emulator::operation;
  using emulator::preconditioning;
  EXPECT_NEAR(drive(preconditioning::fresh).miops(operation::write, 4 * kib, true, 128), 0.5, 0.5 * tolerance);
  EXPECT_NEAR(drive(preconditioning::full).miops(operation::read, 4 * kib, true, 128), 0.37, 0.37 * tolerance);
  double const mib128 = 128.0 * kib / 1e3;  // GB/s of a million a second
  EXPECT_NEAR(drive(preconditioning::full).miops(operation::read, 128 * kib, false, 32) * mib128, 3.5, 3.5 * tolerance);
  EXPECT_NEAR(drive(preconditioning::fresh).miops(operation::write, 128 * kib, false, 32) * mib128, 2.3,
              2.3 * tolerance);
}

TEST_F(the_970_pro, writes_at_random_more_slowly_once_it_is_in_steady_state) {
  using emulator::operation;
  using emulator::preconditioning;
  modelled_drive fresh = drive(preconditioning::fresh), steady = drive(preconditioning::random);
  double const fresh_miops = fresh.miops(operation::write, 4 * kib, true, 128);
  double const steady_miops = steady.miops(operation::write, 4 * kib, true, 128);
  std::printf("  4 KiB at random, 128 in flight: fresh %.0f k/s, steady %.0f k/s, write amplification %.2f\n",
              fresh_miops * 1e3, steady_miops * 1e3, steady.amplification());
  EXPECT_LT(steady_miops, fresh_miops / 4);
  EXPECT_GT(steady_miops, fresh_miops / 20);
  EXPECT_NEAR(fresh.amplification(), 1.0, 0.01);
  // Greedy collection of uniformly random writes: about (1 + spare) / (2 spare), which is 7.6 for 7 %.
  EXPECT_NEAR(steady.amplification(), 7.6, 0.8);
}

}  // namespace
}  // namespace forebay::drive
