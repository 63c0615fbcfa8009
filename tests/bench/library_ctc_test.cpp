// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/storage.hpp"
#include "library/ctc.hpp"
#include "support/memory_storage.hpp"

namespace forebay::bench {
namespace {

using testing::memory_buffer;
using testing::memory_drive;
using testing::memory_storage_ref;
using testing::memory_token;
using kernel = ctc_kernel<simt::native, memory_storage_ref, memory_buffer>;

class library_ctc : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  library_ctc() {
    work.rounds = 9;
    work.commands = 3;
    work.block_bytes = 512;
    work.blocks = 40;
    work.steps = 5;
    work.ahead = GetParam();
    drive.contents.resize(work.blocks * work.block_bytes);
    for (std::uint64_t w = 0; w < drive.contents.size() / 8; ++w) {
      std::uint64_t const value = ctc_word(w);
      std::memcpy(drive.contents.data() + w * 8, &value, 8);
    }
  }
  ctc_result run() {
    std::vector<std::byte> memory(std::size_t{work.slots()} * work.block_bytes);
    std::vector<memory_token> tokens(work.slots());
    ctc_result result;
    kernel{memory_storage_ref(drive), {memory.data(), memory.size()}, work, tokens.data(), &result}();
    return result;
  }
  memory_drive drive;
  ctc_work work;
};

TEST_P(library_ctc, reads_every_round_once) {
  drive.looks = [](std::size_t) { return 2u; };
  ctc_result const result = run();
  EXPECT_EQ(result.reads, 27u);
  EXPECT_EQ(result.failed, 0u);
  EXPECT_EQ(result.wrong, 0u);
  EXPECT_EQ(drive.requests.size(), 27u);
  EXPECT_EQ(drive.in_flight, 0u);
  std::uint32_t const rounds = std::min(std::max(GetParam(), 1u), work.rounds);
  EXPECT_EQ(drive.most_in_flight, 3u * rounds) << "a round is waited for before one more is started";
  std::set<std::uint64_t> offsets;
  for (auto const& r : drive.requests) offsets.insert(r.offset_bytes);
  EXPECT_GT(offsets.size(), 15u) << "of 40 blocks at random";
}

TEST_P(library_ctc, both_ways_read_the_same_and_compute_the_same) {
  ctc_result const one = run();
  auto const first = drive.requests;
  drive.requests.clear();
  work.ahead = work.ahead == 0 ? 1 : 0;
  ctc_result const other = run();
  EXPECT_EQ(one.computed, other.computed);
  ASSERT_EQ(first.size(), drive.requests.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].offset_bytes, drive.requests[i].offset_bytes);
}

TEST_P(library_ctc, counts_reads_that_fail_and_reads_that_bring_something_else) {
  drive.outcome = [](std::size_t n) { return n % 9 == 4 ? status::from_nvme(0x281) : status(); };
  drive.tamper = [](auto const& request, std::span<std::byte> data) {
    if (request.offset_bytes % 1024 == 0) data.back() ^= std::byte{1};
  };
  std::uint64_t even = 0;
  ctc_result const result = run();
  for (std::size_t n = 0; n < drive.requests.size(); ++n) {
    if (n % 9 != 4 && drive.requests[n].offset_bytes % 1024 == 0) ++even;
  }
  EXPECT_EQ(result.failed, 3u);
  EXPECT_EQ(result.wrong, even);
  EXPECT_GT(even, 0u);
}

TEST_P(library_ctc, on_a_storage_that_its_own_kernel_filled) {
  storage_options options;
  options.drives = {"emulated:size=1M"};
  options.device = "cpu";
  storage drives(options);
  constexpr std::uint32_t threads = 64;
  work.blocks = drives.size_bytes() / work.block_bytes;
  work.commands = 4;
  registered_buffer const buffer =
      drives.allocate_device_buffer(std::size_t{threads} * work.slots() * work.block_bytes);
  auto const ref = drives.ref<simt::fiber>();
  using storage_type = storage_ref<simt::fiber>;
  ctc_result result;
  simt::launch<simt::fiber>({.blocks = 1, .threads_per_block = threads},
                            ctc_fill<simt::fiber, storage_type, buffer_ref>{ref, buffer.ref(), work, &result});
  ASSERT_EQ(result.failed, 0u);
  std::vector<ctc_token<storage_type, buffer_ref>> tokens(std::size_t{threads} * work.slots());
  simt::launch<simt::fiber>(
      {.blocks = 1, .threads_per_block = threads},
      ctc_kernel<simt::fiber, storage_type, buffer_ref>{ref, buffer.ref(), work, tokens.data(), &result});
  EXPECT_EQ(result.reads, threads * 9u * 4u);
  EXPECT_EQ(result.failed, 0u);
  EXPECT_EQ(result.wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(in_turn_and_ahead, library_ctc, ::testing::Values(0u, 1u, 2u, 20u));

/// Reads that take a while, and that note whether a thread goes on too early: how many reads of a round were still open
/// when a thread started the round after it.
struct round_notes {
  std::uint64_t ended = 0;
  std::uint64_t early = 0;  ///< reads started while reads of the round before were open
};
struct slow_token {
  round_notes* notes = nullptr;
  std::uint64_t due_ns = 0;
  status wait() {
    (void)simt::fiber::wait_until([] { return false; }, due_ns);
    // Relaxed: a counter.
    simt::atomic<simt::fiber>(notes->ended).fetch_add(1, simt::order::relaxed);
    return {};
  }
};
struct slow_storage {
  static constexpr std::uint32_t threads = 64;
  round_notes* notes;
  std::uint32_t* started;  ///< of each thread
  slow_token read_async(memory_buffer buffer, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    std::uint64_t const value = ctc_word((offset_bytes + bytes) / 8 - 1);
    simt::fiber::st(reinterpret_cast<std::uint64_t*>(buffer.data() + bytes) - 1, value);
    std::uint32_t const thread = simt::fiber::thread_rank();
    std::uint64_t const before = std::uint64_t{started[thread]++} * threads;
    // Relaxed, both: counters.
    std::uint64_t const ended = simt::atomic<simt::fiber>(notes->ended).load(simt::order::relaxed);
    if (ended < before) simt::atomic<simt::fiber>(notes->early).fetch_add(1, simt::order::relaxed);
    // The second warp's reads take longer.
    return {notes, simt::fiber::clock_ns() + 1000 * (1 + thread / 32)};
  }
};

std::uint64_t reads_started_early(bool together) {
  ctc_work work;
  work.rounds = 6;
  work.block_bytes = 512;
  work.blocks = 40;
  work.together = together;
  std::vector<std::byte> memory(std::size_t{slow_storage::threads} * work.slots() * work.block_bytes);
  std::vector<slow_token> tokens(slow_storage::threads * work.slots());
  std::vector<std::uint32_t> started(slow_storage::threads);
  round_notes notes;
  ctc_result result;
  simt::run_result const run =
      simt::run({}, simt::round_robin{}, {.blocks = 1, .threads_per_block = slow_storage::threads},
                ctc_kernel<simt::fiber, slow_storage, memory_buffer>{
                    {&notes, started.data()}, {memory.data(), memory.size()}, work, tokens.data(), &result});
  EXPECT_TRUE(run.ok) << run.what;
  EXPECT_EQ(result.reads, 6u * slow_storage::threads);
  EXPECT_EQ(result.wrong, 0u);
  return notes.early;
}

TEST(library_ctc_rounds, end_for_all_threads_before_the_next_one_begins) {
  EXPECT_EQ(reads_started_early(true), 0u);
}
TEST(library_ctc_rounds, end_for_each_warp_by_itself_where_that_is_asked_for) {
  EXPECT_GT(reads_started_early(false), 0u);
}

TEST(library_ctc_ideal, is_that_of_a_pipeline_with_its_ends) {
  EXPECT_DOUBLE_EQ(ctc_ideal_ratio(0, 64), 1);
  EXPECT_DOUBLE_EQ(ctc_ideal_ratio(1, 1), 1);
  EXPECT_DOUBLE_EQ(ctc_ideal_ratio(1, 64), 128.0 / 65);
  EXPECT_NEAR(ctc_ideal_ratio(0.5, 1'000'000), 1.5, 1e-5);
  EXPECT_NEAR(ctc_ideal_ratio(2, 1'000'000), 1.5, 1e-5);
}

}  // namespace
}  // namespace forebay::bench
