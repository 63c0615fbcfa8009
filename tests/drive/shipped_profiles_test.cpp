// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the shipped profiles claim, against what was published of the drives.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "forebay/drive/profile.hpp"

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
  for (auto const& entry : std::filesystem::directory_iterator(FOREBAY_PROFILE_SOURCE_DIR)) {
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

}  // namespace
}  // namespace forebay::drive
