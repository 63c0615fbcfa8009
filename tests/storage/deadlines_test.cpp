// SPDX-License-Identifier: Apache-2.0
//! \file
//! The promises of deadlines, detached requests and recovery of a storage (docs/concepts/deadlines.md), on drives that
//! are slow and healthy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "support/drive_files.hpp"

namespace forebay {
namespace {

using native = simt::native;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t ms = 1'000'000;

storage_options options_of(std::string const& drive) {
  storage_options o;
  o.drives = {drive};
  o.device = "cpu";
  return o;
}

std::string recovered(storage const& st) {
  return nlohmann::json::parse(st.report()).at("recovery").dump();
}
constexpr char const* nothing_recovered = R"({"aborts":0,"controller_resets":0,"queues_deleted":0})";

/// Numbers every page of a storage through its cache, and leaves them there.
void write_pages(storage& st, std::uint64_t pages, std::uint64_t salt) {
  auto const ref = st.ref<native, cached>();
  registered_buffer const from = st.allocate_buffer(page_bytes);
  for (std::uint64_t p = 0; p < pages; ++p) {
    std::uint64_t const number = p + salt;
    std::memcpy(from.data(), &number, sizeof number);
    ASSERT_EQ(to_string(ref.write_async(from.ref(), p * page_bytes, page_bytes, write_until::cache).wait()), "success");
  }
}
/// How many of the numbers are not on the drive.
std::uint64_t missing_pages(std::string const& path, std::uint64_t pages, std::uint64_t salt) {
  storage st(options_of("file:" + path));
  std::vector<std::byte> all(pages * page_bytes);
  st.pread(all.data(), all.size(), 0);
  std::uint64_t missing = 0;
  for (std::uint64_t p = 0; p < pages; ++p) {
    std::uint64_t number = 0;
    std::memcpy(&number, all.data() + p * page_bytes, sizeof number);
    if (number != p + salt) ++missing;
  }
  return missing;
}

TEST(Deadlines, AWriteBackLongerThanTheTimeoutLosesNothing) {
  constexpr std::uint64_t pages = 1024;
  test::drive_files const files(1, pages * page_bytes);
  // 4000 commands a second: all of them take a quarter of a second, but no single command takes long. Mapped, so that
  // none takes as long as a busy disk does.
  storage_options o =
      options_of("emulated:backing=file,io=mmap,path=" + files.paths()[0] + ",iops=4000,latency_us=100");
  o.cache.size_bytes = pages * page_bytes;
  o.timeout_ns = 100 * ms;
  std::uint64_t salt = 1;
  {
    storage st(o);
    write_pages(st, pages, salt);
    // The destructor writes back.
  }
  EXPECT_EQ(missing_pages(files.paths()[0], pages, salt), 0u);
  {
    storage st(o);
    salt = 10'000;
    write_pages(st, pages, salt);
    st.flush();
    EXPECT_EQ(to_string(st.take_errors().first), "success");
    EXPECT_EQ(recovered(st), nothing_recovered);

    salt = 20'000;
    write_pages(st, pages, salt);
    std::vector<std::byte> all(pages * page_bytes);
    st.pread(all.data(), all.size(), 0);
    std::uint64_t last = 0;
    std::memcpy(&last, all.data() + (pages - 1) * page_bytes, sizeof last);
    EXPECT_EQ(last, pages - 1 + salt);

    // Forgetting pages writes them back too.
    salt = 30'000;
    write_pages(st, pages, salt);
    std::vector<std::byte> first(page_bytes * (pages - 1));
    for (std::uint64_t p = 0; p + 1 < pages; ++p) {
      std::uint64_t const number = p + salt;
      std::memcpy(first.data() + p * page_bytes, &number, sizeof number);
    }
    st.pwrite(first.data(), first.size(), 0);
  }
  EXPECT_EQ(missing_pages(files.paths()[0], pages, salt), 0u);
}

/// A storage's cache under other rules.
template <class Rules>
frames_ref<native, Rules> cache_with(storage const& st) {
  auto* const s = st.ref<native, cached>().cache().state();
  return {s, s->words, s->fingerprints, s->frame_memory.data(), s->mapping, s->page_shift};
}

struct one_deadline_for_all : cache_rules {
  static constexpr bool patient = false;
};
TEST(Deadlines, OneDeadlineForAllPagesIsCaught) {
  constexpr std::uint64_t pages = 512;
  test::drive_files const files(1, pages * page_bytes);
  storage_options o = options_of("emulated:backing=file,io=mmap,path=" + files.paths()[0] + ",iops=1000");
  o.cache.size_bytes = pages * page_bytes;
  o.timeout_ns = 100 * ms;
  storage st(o);
  write_pages(st, pages, 1);
  clean_result result;
  clean_kernel<native, one_deadline_for_all>{cache_with<one_deadline_for_all>(st), &result}();
  EXPECT_GT(result.drives[0].unwritten, 0u) << "it takes half a second to write them";
  result = {};
  clean_kernel<native>{cache_with<cache_rules>(st), &result}();
  EXPECT_EQ(result.drives[0].unwritten, 0u);
}

TEST(Deadlines, PagesThatADriveDoesNotTakeAreNamed) {
  constexpr std::uint64_t pages = 64;
  std::string drive;
  std::unique_ptr<storage> st;
  // Few of such drives can be opened.
  for (int seed = 0; st == nullptr && seed < 100; ++seed) {
    drive = "emulated:size=64M,errors_ppm=900000,seed=" + std::to_string(seed);
    storage_options o = options_of(drive);
    o.cache.size_bytes = pages * page_bytes;
    try {
      st = std::make_unique<storage>(o);
    } catch (operation_failed const&) {
      continue;
    }
  }
  ASSERT_NE(st, nullptr);
  write_pages(*st, pages, 1);
  EXPECT_THAT([&] { st->flush(); },
              ThrowsMessage<operation_failed>(
                  AllOf(HasSubstr("written pages of bytes "), HasSubstr(drive), HasSubstr("unrecovered read error"))));
  EXPECT_FALSE(st->take_errors().first.ok());
  testing::internal::CaptureStderr();
  st.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("what was written is lost"), HasSubstr(drive)));
}

TEST(FailingDrives, AFlushReachesTheOthers) {
  test::drive_files const files(1, 8 << 20);
  std::unique_ptr<storage> st;
  // Few of such drives can be opened.
  for (int seed = 0; st == nullptr && seed < 100; ++seed) {
    storage_options o = options_of("emulated:size=8M,errors_ppm=900000,seed=" + std::to_string(seed));
    o.drives.push_back("file:" + files.paths()[0]);
    o.stripe_bytes = 65536;
    o.cache.size_bytes = 64 * page_bytes;
    try {
      st = std::make_unique<storage>(o);
    } catch (operation_failed const&) {
      continue;
    }
  }
  ASSERT_NE(st, nullptr);
  write_pages(*st, 64, 1);
  auto const flushes = [&] {
    return nlohmann::json::parse(st->report())["drives"][1]["statistics"]["flush_commands"].get<std::uint64_t>();
  };
  std::uint64_t const before = flushes();
  EXPECT_THROW(st->flush(), operation_failed);
  EXPECT_GT(flushes(), before);
}

TEST(Deadlines, ADriveThatCannotBeOpenedIsNamedAndWhatForItWasRead) {
  EXPECT_THAT([] { storage(options_of("emulated:size=64M,errors_ppm=1000000")); },
              ThrowsMessage<operation_failed>(
                  AllOf(HasSubstr("catalogue"), HasSubstr("drive 'emulated:size=64M,errors_ppm=1000000'"))));
}

TEST(Deadlines, ASlowDriveCanBeOpened) {
  storage_options o = options_of("emulated:size=64M,latency_us=20000");
  o.timeout_ns = 1 * ms;
  storage st(o);
  EXPECT_EQ(st.extents().size(), 0u);
  EXPECT_EQ(recovered(st), nothing_recovered);
}

TEST(Deadlines, ADriveThatFailsNowAndThenCanBeOpened) {
  for (int seed = 0; seed < 20; ++seed) {
    EXPECT_NO_THROW(storage(options_of("emulated:size=64M,errors_ppm=300000,seed=" + std::to_string(seed))));
  }
}

/// This is no test of deadlines, but of drives like the one above.
TEST(FailingDrives, AChangeOfTheCatalogueThatFailsIsNotKept) {
  constexpr std::uint64_t bytes = 8 << 20;
  int failed = 0, done = 0;
  for (int seed = 0; seed < 60; ++seed) {
    test::drive_files const files(1, bytes);
    {
      storage(options_of("file:" + files.paths()[0])).create_extent("old", 5);
    }
    bool created = false;
    try {
      storage st(options_of("emulated:backing=file,path=" + files.paths()[0] +
                            ",errors_ppm=200000,seed=" + std::to_string(seed)));
      auto const flushes = [&] {
        return nlohmann::json::parse(st.report())["drives"][0]["statistics"]["flush_commands"].get<std::uint64_t>();
      };
      std::uint64_t const before = flushes();
      try {
        st.create_extent("new", 7);
        created = true;
        EXPECT_GT(flushes(), before) << "it is durable before anybody relies on it";
      } catch (operation_failed const&) {
        EXPECT_EQ(st.extents().size(), 1u) << "seed " << seed;
      }
    } catch (operation_failed const&) {
      continue;  // it could not be opened
    }
    (created ? done : failed) += 1;
    storage const again(options_of("file:" + files.paths()[0]));
    EXPECT_EQ(again.find_extent("old").size_bytes, 5u) << "seed " << seed;
    if (!created) continue;
    EXPECT_EQ(again.find_extent("new").size_bytes, 7u) << "seed " << seed;
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(done, 5);
}

TEST(Deadlines, PollingWithShortDeadlinesHarmsNothing) {
  {
    storage st(options_of("emulated:size=64M,latency_us=20000"));
    auto const ref = st.ref<native>();
    registered_buffer const one = st.allocate_buffer(page_bytes), two = st.allocate_buffer(page_bytes);
    auto other = ref.read_async(two.ref(), 8192, page_bytes);
    auto mine = ref.read_async(one.ref(), 0, page_bytes);
    status outcome = fault::timed_out;
    while (outcome.kind() == fault::timed_out) outcome = mine.wait(native::clock_ns() + ms);
    EXPECT_EQ(to_string(outcome), "success");
    EXPECT_EQ(to_string(other.wait()), "success");
    auto polled = ref.read_async(one.ref(), 0, page_bytes);
    while (!native::wait_until([&] { return polled.ready(); }, native::clock_ns() + ms)) {
    }
    EXPECT_EQ(to_string(polled.wait()), "success");
    EXPECT_EQ(recovered(st), nothing_recovered);
  }
  {
    storage_options o = options_of("emulated:size=64M,latency_us=20000");
    o.cache.size_bytes = 1 << 20;
    storage st(o);
    registered_buffer const from = st.allocate_buffer(page_bytes);
    auto write = st.ref<native, cached>().write_async(from.ref(), 0, page_bytes);
    status outcome = fault::timed_out;
    while (outcome.kind() == fault::timed_out) outcome = write.wait(native::clock_ns() + ms);
    EXPECT_EQ(to_string(outcome), "success");
    EXPECT_EQ(to_string(st.take_errors().first), "success");
    EXPECT_EQ(recovered(st), nothing_recovered);
  }
}

TEST(Deadlines, AFlushGivesTheBuffersOfDetachedRequestsBack) {
  constexpr std::uint64_t requests = 200, each = 256 << 10;
  for (bool const with_cache : {false, true}) {
    storage_options o = options_of("emulated:size=256M,threads=2");
    if (with_cache) o.cache.size_bytes = 1 << 20;
    storage st(o);
    registered_buffer const buffer = st.allocate_buffer(requests * each);
    for (std::uint64_t k = 0; k < requests; ++k) {
      if (with_cache) {
        st.ref<native, cached>().read_async(buffer.ref().subspan(k * each, each), k * each, each).detach();
      } else {
        st.ref<native>().read_async(buffer.ref().subspan(k * each, each), k * each, each).detach();
      }
    }
    st.flush();
    std::memset(buffer.data(), 0xab, requests * each);
    EXPECT_TRUE(st.drain(60'000 * ms));
    std::uint64_t overwritten = 0;
    for (std::uint64_t at = 0; at < requests * each; ++at) overwritten += buffer.data()[at] != std::byte{0xab};
    EXPECT_EQ(overwritten, 0u) << (with_cache ? "through a cache" : "past one");
  }
}

TEST(Deadlines, SynchronousCallsThatTimeOutGiveTheirRecordsBack) {
  storage_options o = options_of("emulated:size=64M,latency_us=20000");
  o.queues.records = 2;
  o.timeout_ns = 1 * ms;
  o.flush_timeout_ns = 10'000 * ms;
  storage st(o);
  auto const ref = st.ref<native>();
  registered_buffer const buffer = st.allocate_buffer(8 * page_bytes);
  for (int round = 0; round < 6; ++round) {
    // However slow the machine is, no read ends sooner than its drive allows; recovery may have aborted it.
    status const outcome = ref.read(buffer.ref().subspan(round * page_bytes, page_bytes), 0, page_bytes);
    EXPECT_TRUE(outcome.kind() == fault::timed_out || outcome.kind() == fault::cancelled) << to_string(outcome);
    st.flush();  // the buffer is the caller's again, and the record is free
  }
}

TEST(Deadlines, AWaiterSeesTheOverflowFrameThatIsUnpinned) {
  storage_options o = options_of("emulated:size=2M");
  o.cache.size_bytes = 16 * page_bytes;
  o.cache.overflow_frames = 1;
  o.timeout_ns = 60'000 * ms;
  storage st(o);
  auto const words = st.ref<native, cached>().array<std::uint64_t const>();
  using cursor = decltype(words.thread_page());
  constexpr std::uint64_t per_page = page_bytes / sizeof(std::uint64_t);
  std::vector<std::unique_ptr<cursor>> held;
  for (std::uint64_t p = 0; p < 17; ++p) {
    held.push_back(std::unique_ptr<cursor>(new cursor(words.thread_page())));
    EXPECT_EQ(to_string(held.back()->seek(p * per_page)), "success");
  }
  std::uint32_t waits = 0;
  status outcome;
  {
    std::jthread const other([&] {
      auto mine = words.thread_page();
      // Relaxed: that it is about to.
      simt::atomic<native>(waits).store(1, simt::order::relaxed);
      outcome = mine.seek(17 * per_page);
    });
    while (simt::atomic<native>(waits).load(simt::order::relaxed) == 0) std::this_thread::yield();
    held.pop_back();
  }
  EXPECT_EQ(to_string(outcome), "success");
}

}  // namespace
}  // namespace forebay
