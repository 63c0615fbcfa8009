// SPDX-License-Identifier: Apache-2.0
// What `forebay drive export-nbd` is made of: threads that wait together, errno of a status, and a drive for many
// threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/nbd/error_number.hpp"
#include "apps/nbd/exported_drive.hpp"
#include "apps/nbd/shared_wait.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
#include "forebay/status_text.hpp"

namespace forebay::nbd {
namespace {

using native = simt::native;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(error_number, is_what_linux_calls_the_failure) {
  auto const of = [](auto code) { return error_number(status::from_nvme(nvme::status_field(code))); };
  EXPECT_EQ(of(nvme::media_status::unrecovered_read_error), EIO);
  EXPECT_EQ(of(nvme::media_status::write_fault), EIO);
  EXPECT_EQ(of(nvme::generic_status::internal_error), EIO);
  EXPECT_EQ(of(nvme::generic_status::lba_out_of_range), EINVAL);
  EXPECT_EQ(of(nvme::generic_status::invalid_field_in_command), EINVAL);
  EXPECT_EQ(of(nvme::generic_status::invalid_command_opcode), EOPNOTSUPP);
  EXPECT_EQ(of(nvme::generic_status::capacity_exceeded), ENOSPC);
  EXPECT_EQ(of(nvme::command_specific_status::namespace_insufficient_capacity), ENOSPC);
  EXPECT_EQ(of(nvme::generic_status::namespace_is_write_protected), EROFS);
  EXPECT_EQ(of(nvme::command_specific_status::attempted_write_to_read_only_range), EROFS);
  // Retry hints change nothing.
  EXPECT_EQ(error_number(status::from_nvme(nvme::status_field(nvme::generic_status::lba_out_of_range) |
                                           nvme::do_not_retry | nvme::more_information)),
            EINVAL);
  EXPECT_EQ(error_number(fault::out_of_range), EINVAL);
  EXPECT_EQ(error_number(fault::bad_alignment), EINVAL);
  EXPECT_EQ(error_number(fault::read_only), EROFS);
  EXPECT_EQ(error_number(fault::timed_out), EIO);
  EXPECT_EQ(error_number(fault::cancelled), EIO);
  EXPECT_EQ(error_number(fault::busy), EIO);
}

/// A request that the test ends.
struct fake_request {
  std::atomic<bool> ended = false;
  std::atomic<std::uint32_t> asked = 0;  ///< waits in vain, each of which asks for recovery
  std::atomic<bool> detached = false;
  status outcome;
};

struct fake_token {
  fake_request* of = nullptr;
  // Acquire pairs with the release of the test, which has set the outcome.
  bool ready() const { return of->ended.load(std::memory_order_acquire); }
  status wait(std::uint64_t) {
    if (ready()) return of->outcome;
    ++of->asked;
    return fault::timed_out;
  }
  void detach() { of->detached = true; }
};

using fake_wait = shared_wait<native, fake_token>;
constexpr std::uint64_t hour_ns = 3'600'000'000'000;

/// A status that no other request has.
status outcome_of(std::size_t number) {
  return status::from_bits(static_cast<std::uint32_t>(number & 0x7ff) + 1);
}

TEST(shared_wait, each_thread_goes_on_when_its_own_request_has_ended) {
  constexpr std::size_t count = 12;
  std::uint64_t const seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    fake_wait waiting;
    std::vector<fake_request> requests(count);
    std::vector<std::thread> threads;
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) {
      order[i] = i;
      requests[i].outcome = outcome_of(i);
      threads.emplace_back([&, i] { EXPECT_EQ(waiting.wait({&requests[i]}, hour_ns).bits(), outcome_of(i).bits()); });
    }
    // Joined one by one: a thread that waited for another request than its own would never end.
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t const i : order) {
      requests[i].ended.store(true, std::memory_order_release);  // release: see `ready`
      threads[i].join();
    }
  }
}

/// Threads come and go while others wait: each gets the outcome of its own request, and leaders change all the time.
TEST(shared_wait, serves_threads_that_come_and_go) {
  constexpr std::size_t threads_count = 8, rounds = 2000;
  fake_wait waiting;
  std::mutex mutex;
  std::vector<fake_request*> open;
  std::atomic<std::size_t> wrong = 0, done = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < threads_count; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t round = 0; round < rounds; ++round) {
        fake_request request;
        request.outcome = outcome_of(t * rounds + round);
        {
          std::lock_guard const lock(mutex);
          open.push_back(&request);
        }
        if (waiting.wait({&request}, hour_ns).bits() != outcome_of(t * rounds + round).bits()) ++wrong;
        ++done;
      }
    });
  }
  std::uint64_t const seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  while (done != threads_count * rounds) {
    std::lock_guard const lock(mutex);
    if (open.empty() || random() % 4 == 0) continue;
    std::swap(open[random() % open.size()], open.back());
    open.back()->ended.store(true, std::memory_order_release);  // release: see `ready`
    open.pop_back();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(shared_wait, a_request_that_never_ends_is_given_up_after_recovery_was_asked_for) {
  fake_wait waiting;
  fake_request lost;
  EXPECT_EQ(waiting.wait({&lost}, 1).kind(), fault::timed_out);
  EXPECT_EQ(lost.asked, fake_wait::patience);
  EXPECT_TRUE(lost.detached);
  // The next one is served all the same.
  fake_request other;
  other.outcome = outcome_of(5);
  other.ended = true;
  EXPECT_EQ(waiting.wait({&other}, 1).bits(), outcome_of(5).bits());
}

std::vector<std::byte> random_bytes(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::uint64_t counted(exported_drive const& drive, char const* counter) {
  return nlohmann::json::parse(drive.report())["drives"][0]["statistics"][counter].get<std::uint64_t>();
}

TEST(exported_drive, requests_of_any_length_reach_the_drive) {
  exported_drive drive({.uri = "emulated:size=16M"});
  EXPECT_EQ(drive.size_bytes(), 16u << 20);
  EXPECT_EQ(drive.block_bytes(), 512u);
  EXPECT_TRUE(drive.writable());
  std::uint64_t at = 0;
  for (std::uint64_t const bytes : {512u, 4096u, (1u << 20) + 512, (4u << 20), (9u << 20) + 1024}) {
    std::vector<std::byte> const data = random_bytes(bytes, bytes);
    ASSERT_TRUE(drive.write(data.data(), bytes, at));
    std::vector<std::byte> got(bytes);
    ASSERT_TRUE(drive.read(got.data(), bytes, at));
    EXPECT_EQ(got, data) << bytes;
    at += bytes;
  }
  EXPECT_GE(counted(drive, "write_commands"), 5u + 8) << "none carries more than 1 MiB";
}

TEST(exported_drive, zeroes_deallocates_and_flushes) {
  exported_drive drive({.uri = "emulated:size=8M"});
  std::vector<std::byte> expected = random_bytes(8 << 20, 1), got(8 << 20);
  ASSERT_TRUE(drive.write(expected.data(), expected.size(), 0));
  ASSERT_TRUE(drive.write_zeroes(3 << 20, 512));
  std::fill_n(expected.begin() + 512, 3 << 20, std::byte{});
  ASSERT_TRUE(drive.deallocate(2 << 20, 5 << 20));
  std::fill_n(expected.begin() + (5 << 20), 2 << 20, std::byte{});
  ASSERT_TRUE(drive.flush());
  ASSERT_TRUE(drive.read(got.data(), got.size(), 0));
  EXPECT_EQ(got, expected);
  EXPECT_EQ(counted(drive, "flush_commands"), 1u);
  EXPECT_EQ(counted(drive, "other_commands"), 3u + 1);
}

TEST(exported_drive, what_it_cannot_do_is_a_status) {
  exported_drive drive({.uri = "emulated:size=1M,lba_bytes=4096"});
  std::vector<std::byte> data(8192);
  EXPECT_EQ(drive.read(data.data(), 512, 0).kind(), fault::bad_alignment);
  EXPECT_EQ(drive.write(data.data(), 4096, 512).kind(), fault::bad_alignment);
  EXPECT_EQ(drive.write_zeroes(512, 0).kind(), fault::bad_alignment);
  EXPECT_EQ(drive.deallocate(512, 0).kind(), fault::bad_alignment);
  EXPECT_EQ(drive.read(data.data(), 8192, (1 << 20) - 4096).kind(), fault::out_of_range);
}

TEST(exported_drive, an_error_of_the_drive_ends_its_request_alone) {
  exported_drive drive({.uri = "emulated:size=1M,errors_ppm=300000"});
  std::vector<std::byte> data(512);
  std::uint64_t failures = 0;
  for (int i = 0; i < 100; ++i) {
    status const outcome = drive.read(data.data(), 512, 0);
    if (outcome.ok()) continue;
    ++failures;
    EXPECT_EQ(to_string(outcome),
              to_string(status::from_nvme(nvme::status_field(nvme::media_status::unrecovered_read_error))));
  }
  EXPECT_EQ(failures, counted(drive, "injected_errors"));
  EXPECT_GT(failures, 0u);
  EXPECT_LT(failures, 100u);
}

TEST(exported_drive, what_may_not_be_written_is_not) {
  exported_drive drive({.uri = "emulated:size=1M", .read_only = true});
  std::vector<std::byte> data(512);
  EXPECT_FALSE(drive.writable());
  EXPECT_EQ(drive.write(data.data(), 512, 0).kind(), fault::read_only);
  EXPECT_EQ(drive.write_zeroes(512, 0).kind(), fault::read_only);
  EXPECT_EQ(drive.deallocate(512, 0).kind(), fault::read_only);
  EXPECT_TRUE(drive.read(data.data(), 512, 0));
  EXPECT_THAT([] { exported_drive({.uri = "emulated:size=9"}); }, ThrowsMessage<refused_input>(HasSubstr("size: '9'")));
}

/// Several threads for each processor, each of which writes and reads blocks of its own.
TEST(exported_drive, many_threads_use_it_at_once) {
  exported_drive drive({.uri = "emulated:size=8M,latency_us=100,iops=50000,threads=2"});
  constexpr std::uint64_t threads_count = 24, blocks = 40;
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> wrong = 0;
  for (std::uint64_t t = 0; t < threads_count; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < blocks; ++i) {
        std::uint64_t const at = (i * threads_count + t) * 4096;
        std::vector<std::byte> const data = random_bytes(4096, at);
        std::vector<std::byte> got(4096);
        if (!drive.write(data.data(), 4096, at) || !drive.read(got.data(), 4096, at) || got != data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(counted(drive, "read_commands"), threads_count * blocks);
}

}  // namespace
}  // namespace forebay::nbd
