// SPDX-License-Identifier: Apache-2.0
//! \file
//! A hostile host: strings of bytes become register writes, admin commands, I/O commands, doorbells and registrations
//! that break every rule. Memory that the controller must not touch faults when it is touched. After each round a host
//! that keeps to the rules checks the controller. docs/internals/build.md says how to replay an input and how to keep
//! one.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "emulator/fuzz_behaviour.hpp"
#include "emulator/fuzz_input.hpp"
#include "emulator/fuzz_session.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/environment.hpp"
#include "support/folders.hpp"

namespace forebay::emulator::testing {
namespace {

using simt::native;

/// Where the input lies that runs now, or that broke something.
std::filesystem::path current_path() {
  char const* const given = std::getenv("FOREBAY_FUZZ_CURRENT");
  return given != nullptr ? std::filesystem::path(given)
                          : std::filesystem::path(::testing::TempDir()) /
                                ("forebay-fuzz-input-" + std::to_string(getpid()) + ".bin");
}

std::string replay_command(std::filesystem::path const& path) {
  return "FOREBAY_FUZZ_INPUT=" + std::filesystem::absolute(path).string() + " " +
         ::testing::internal::GetArgvs().front() + " --gtest_filter=controller_fuzz.replay";
}

constexpr unsigned hang_seconds = 300;

extern "C" void say_that_it_hangs(int) {
  constexpr char text[] = "the input that runs has taken minutes: something hangs\n";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  std::abort();
}

/// Plays an input; each error that it finds is a failure of the test. `path`: where the input is stored, so that it
/// remains if the process dies.
bool play(fuzz_input const& input, std::filesystem::path const& path, behaviour& shown) {
  signal(SIGALRM, say_that_it_hangs);
  alarm(hang_seconds);
  bool good = true;
  try {
    session(input, shown).run();
  } catch (std::exception const& e) {
    ADD_FAILURE() << e.what() << "\nreplay with " << replay_command(path);
    good = false;
  }
  alarm(0);
  return good;
}

std::filesystem::path corpus_folder() {
  return test::source_path("tests/fuzz/corpus/controller");
}

TEST(controller_fuzz, corpus) {
  auto const paths = inputs_in(corpus_folder());
  ASSERT_FALSE(paths.empty());
  behaviour shown;
  for (auto const& path : paths) {
    std::cout << path.filename().string() << std::endl;  // the last one printed is the one that caused a crash
    if (!play(read_input(path), path, shown)) return;
  }
}

TEST(controller_fuzz, mutants) {
  std::uint64_t const seconds = test::number_from_environment("FOREBAY_FUZZ_SECONDS", 3);
  std::uint64_t const seed = test::number_from_environment("FOREBAY_FUZZ_SEED", std::random_device{}());
  char const* const keep = std::getenv("FOREBAY_FUZZ_KEEP");
  auto const current = current_path();
  std::cout << "FOREBAY_FUZZ_SEED=" << seed << "; after a crash replay with " << replay_command(current) << std::endl;

  choices pick(seed);
  behaviour shown;
  std::vector<fuzz_input> parents;
  for (auto const& path : inputs_in(corpus_folder())) parents.push_back(read_input(path));
  std::uint64_t const begin_ns = native::clock_ns();
  std::uint64_t const end_ns = begin_ns + seconds * 1'000'000'000;
  std::uint64_t played = 0, kept = 0;
  // What the corpus shows is known, if there is time to look at it.
  std::uint64_t const from_corpus = seconds < 10 && keep == nullptr ? 0 : parents.size();
  for (; native::clock_ns() < end_ns || played == 0; ++played) {
    bool const is_new = played >= from_corpus;
    fuzz_input const input = is_new ? mutate(parents, pick) : parents[played];
    write_input(current, input);
    std::size_t const before = shown.seen().size();
    if (!play(input, current, shown)) return;
    if (shown.seen().size() == before || !is_new) continue;
    parents.push_back(input);
    ++kept;
    if (keep != nullptr) write_input(std::filesystem::path(keep) / name_of(input), input);
  }
  std::filesystem::remove(current);
  double const took = static_cast<double>(native::clock_ns() - begin_ns) / 1e9;
  std::cout << played << " inputs, " << static_cast<double>(played) / took << " a second; " << kept
            << " showed something new; " << shown.seen().size() << " behaviours" << std::endl;
}

TEST(controller_fuzz, replay) {
  char const* const path = std::getenv("FOREBAY_FUZZ_INPUT");
  if (path == nullptr) GTEST_SKIP() << "FOREBAY_FUZZ_INPUT names no input";
  fuzz_input const input = read_input(path);
  ASSERT_FALSE(input.empty()) << path;
  // The threads interleave in another way each time.
  std::uint64_t const times = test::number_from_environment("FOREBAY_FUZZ_TIMES", 50);
  behaviour shown;
  for (std::uint64_t i = 0; i < times; ++i) {
    if (!play(input, path, shown)) return;
  }
}

}  // namespace
}  // namespace forebay::emulator::testing
