// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the host reports about a cached storage: options and refs that are refused, and a drive that accepts no writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/s3_fifo.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "support/traits.hpp"

namespace forebay {
namespace {

using M = simt::fiber;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

storage_options with_cache(std::uint64_t cache_bytes = 16 * 4096) {
  storage_options o;
  o.drives = {"emulated:size=2M"};
  o.device = "cpu";
  o.cache.size_bytes = cache_bytes;
  return o;
}

TEST(UnpinnedWait, FindsTheOneOverflowFrameOfManyThatIsNotPinned) {
  storage_options o = with_cache();
  o.cache.overflow_frames = 100;  // more than one look for a spare one visits
  storage st(o);
  auto const cache = st.ref<simt::native, cached>().cache();
  std::vector<std::uint32_t> held;
  for (std::uint64_t page = 0; page < 16 + o.cache.overflow_frames; ++page) {
    page_pin const pinned = cache.pin(page, access::read);
    ASSERT_TRUE(pinned.outcome.ok()) << page;
    held.push_back(pinned.frame);
  }
  auto const last = std::max_element(held.begin(), held.end());
  std::uint32_t const free = *last;
  held.erase(last);
  cache.unpin(free);
  page_pin const pinned = cache.pin(200, access::read, when_full::wait);
  EXPECT_TRUE(pinned.outcome.ok()) << to_string(pinned.outcome);
  EXPECT_EQ(pinned.frame, free);
  cache.unpin(pinned.frame);
  for (std::uint32_t const frame : held) cache.unpin(frame);
}

TEST(CacheOptions, BadOnesAreRefusedByName) {
  auto const refuses = [](auto change, char const* field_and_value, char const* remedy) {
    storage_options o = with_cache();
    change(o);
    EXPECT_THAT([&] { storage st(o); },
                ThrowsMessage<refused_input>(AllOf(HasSubstr(field_and_value), HasSubstr(remedy))));
  };
  refuses([](auto& o) { o.cache.size_bytes = 100; }, "cache.size_bytes: '100'", "65536 bytes: that is the least");
  refuses([](auto& o) { o.cache.size_bytes = 100'000; }, "cache.size_bytes: '100000'", "65536 is the nearest");
  refuses([](auto& o) { o.cache.page_bytes = 0; }, "page_bytes: '0'", "power of two");
  refuses([](auto& o) { o.cache.page_bytes = 3000; }, "page_bytes: '3000'", "power of two");
  refuses([](auto& o) { o.cache.page_bytes = 256; }, "page_bytes: '256'", "512 to 65536");
  refuses([](auto& o) { o.cache.page_bytes = 1 << 17; }, "page_bytes: '131072'", "512 to 65536");
  refuses(
      [](auto& o) {
        o.drives = {"emulated:size=2M,lba_bytes=4096"};
        o.cache.page_bytes = 512;
      },
      "page_bytes: '512'", "4096");
  refuses(
      [](auto& o) {
        o.drives.push_back(o.drives[0]);
        o.stripe_bytes = 2048;
      },
      "stripe_bytes: '2048'", "multiple of the page");
  refuses([](auto& o) { o.cache.size_bytes = std::uint64_t{1} << 41; }, "cache.size_bytes: '2199023255552'", "2^28");
  refuses([](auto& o) { o.cache.overflow_frames = ~0u; }, "overflow_frames: '4294967295'", "at most 268435440");
  refuses([](auto& o) { o.cache.user_frames = 1u << 28; }, "user_frames: '268435456'", "at most 268435184");
  refuses([](auto& o) { o.cache.staging_pages = (1u << 28) + 1; }, "staging_pages: '268435457'", "at most 2^28");
  refuses(
      [](auto& o) {
        o.cache.size_bytes = 0;
        o.cache.staging_pages = 8;
      },
      "cache.size_bytes: '0'", "staging_pages");
  // Without a cache too, although then nothing else would check them.
  refuses(
      [](auto& o) {
        o.cache.size_bytes = 0;
        o.cache.page_bytes = 3000;
      },
      "page_bytes: '3000'", "power of two");
  refuses(
      [](auto& o) {
        o.cache.size_bytes = 0;
        o.cache.statistics = true;
      },
      "cache.size_bytes: '0'", "statistics");
  refuses([](auto& o) { o.drives = {"emulated:size=8T,data=none"}; }, "cache.size_bytes: '65536'", "at least 524288");
}

TEST(CacheOptions, RefsMustFitTheCache) {
  storage plain(with_cache(0));
  EXPECT_THAT([&] { (plain.ref<M, cached>()); },
              ThrowsMessage<refused_input>(
                  AllOf(HasSubstr("cache.size_bytes: '0'"), HasSubstr("use traits that are `uncached`"))));
  EXPECT_TRUE(plain.take_errors().first.ok());
  EXPECT_EQ(plain.cache_statistics().hits, 0u);

  storage st(with_cache());
  EXPECT_THAT([&] { st.ref<M>(); }, ThrowsMessage<refused_input>(AllOf(HasSubstr("cache.size_bytes: '65536'"),
                                                                       HasSubstr("use traits that are `cached`"))));
  EXPECT_THAT([&] { st.service<M>(nullptr); }, ThrowsMessage<refused_input>(HasSubstr("use traits that are `cached`")));
  EXPECT_THAT([&] { (plain.service<M, cached>(nullptr)); },
              ThrowsMessage<refused_input>(HasSubstr("cache.size_bytes: '0'")));
  using staged = test::traits<replacement::clock, false, frame_pools<no_sharing, replacement::no_policy, staged_frames>,
                              service_rules>;
  EXPECT_THAT([&] { (st.service<M, staged>(nullptr)); },
              ThrowsMessage<refused_input>(HasSubstr("open the storage with cache.staging_pages")));
  EXPECT_THAT([&] { st.ref<M>(extent{"part", 0, 4096}); },
              ThrowsMessage<refused_input>(HasSubstr("use traits that are `cached`")));
  EXPECT_THAT([&] { (st.ref<M, test::traits<replacement::s3_fifo>>()); },
              ThrowsMessage<refused_input>(AllOf(HasSubstr("policy: 's3_fifo'"), HasSubstr("'clock'"))));
  EXPECT_THAT(
      [&] { (st.ref<M, test::traits<replacement::clock, true>>()); },
      ThrowsMessage<refused_input>(AllOf(HasSubstr("cache.statistics: 'false'"), HasSubstr("`counted` = false"))));
  EXPECT_NO_THROW((st.ref<M, cached>()));

  auto options = with_cache();
  options.cache.statistics = true;
  storage counted(options);
  EXPECT_THAT(
      [&] { (counted.ref<M, cached>()); },
      ThrowsMessage<refused_input>(AllOf(HasSubstr("cache.statistics: 'true'"), HasSubstr("`counted` = true"))));
}

TEST(CacheOptions, PoolsMustFitTheRef) {
  using sharing = frame_pools<share_all>;
  using hosted = frame_pools<no_sharing, replacement::clock>;
  auto options = with_cache();
  options.cache.user_frames = 2;
  storage shares(options);
  EXPECT_THAT([&] { (shares.ref<M, cached>()); }, ThrowsMessage<refused_input>(HasSubstr("user_frames: '2'")));
  options = with_cache();
  options.cache.host_size_bytes = options.cache.size_bytes;
  storage hosts(options);
  EXPECT_THAT([&] { (hosts.ref<M, cached>()); },
              ThrowsMessage<refused_input>(HasSubstr("cache.host_size_bytes: '65536'")));
  EXPECT_NO_THROW((hosts.ref<M, test::traits<replacement::clock, false, hosted>>()));
  using staged = frame_pools<no_sharing, replacement::no_policy, staged_frames>;
  options = with_cache();
  options.cache.staging_pages = 8;
  storage stages(options);
  EXPECT_THAT([&] { (stages.ref<M, cached>()); },
              ThrowsMessage<refused_input>(AllOf(HasSubstr("cache.staging_pages: '8'"), HasSubstr("`staged_frames`"))));
  EXPECT_NO_THROW((stages.ref<M, test::traits<replacement::clock, false, staged>>()));
  storage plain(with_cache());
  EXPECT_THAT([&] { (plain.ref<M, test::traits<replacement::clock, false, staged>>()); },
              ThrowsMessage<refused_input>(HasSubstr("cache.staging_pages: '0'")));
  EXPECT_THAT([&] { (plain.ref<M, test::traits<replacement::clock, false, sharing>>()); },
              ThrowsMessage<refused_input>(HasSubstr("user_frames: '0'")));
  EXPECT_THAT([&] { (plain.ref<M, test::traits<replacement::clock, false, hosted>>()); },
              ThrowsMessage<refused_input>(HasSubstr("cache.host_size_bytes: '0'")));
  options = with_cache();
  options.cache.host_size_bytes = options.cache.size_bytes + 4096;
  EXPECT_THAT([&] { storage st(options); }, ThrowsMessage<refused_input>(HasSubstr("multiple of cache.size_bytes")));
}

TEST(SharedPage, OfAStorageThatIsOnlyReadIsNotWritten) {
  using native = simt::native;
  for (bool const read_only : {true, false}) {
    auto options = with_cache();
    options.cache.user_frames = 2;
    options.read_only = read_only;
    storage st(options);
    registered_buffer const buffer = st.allocate_buffer(2 * 4096);
    auto const ref = st.ref<native, test::traits<replacement::clock, false, frame_pools<share_all>>>();
    auto page = ref.share(buffer.ref().subspan(0, 4096), 4096, sharing_use::read);
    ASSERT_TRUE(page.wait().ok());
    EXPECT_TRUE(page.is_own());
    EXPECT_EQ(page.will_write(), read_only ? status(fault::read_only) : status());
    EXPECT_TRUE(page.take_back().ok());
    EXPECT_EQ(ref.share(buffer.ref().subspan(0, 4096), 0, sharing_use::overwrite).outcome().kind(),
              read_only ? fault::read_only : fault::none);
    st.take_back(buffer);
    // Through views of other types, accesses would reach elements that are not aligned.
    EXPECT_EQ(ref.share(buffer.ref().subspan(4, 4096), 4096, sharing_use::read).outcome(), fault::bad_alignment);
    EXPECT_EQ(ref.share(buffer.ref().subspan(0, 512), 4096, sharing_use::read).outcome(), fault::out_of_range);
    EXPECT_EQ(ref.share(buffer_ref(), 4096, sharing_use::read).outcome(), fault::not_registered);
  }
}

TEST(CacheReport, SaysWhatTheCacheIsAndDid) {
  using native = simt::native;
  auto const report_of = [](storage const& st) { return nlohmann::json::parse(st.report()).at("cache"); };
  EXPECT_TRUE(report_of(storage(with_cache(0))).is_null());

  auto options = with_cache(32 * 8192);
  options.cache.page_bytes = 8192;
  options.cache.overflow_frames = 7;
  options.cache.policy = replacement_policy::of<replacement::s3_fifo>();
  nlohmann::json const fresh = report_of(storage(options));
  EXPECT_EQ(fresh["bytes"], 32 * 8192);
  EXPECT_EQ(fresh["page_bytes"], 8192);
  EXPECT_EQ(fresh["policy"], "s3_fifo");
  EXPECT_EQ(fresh["overflow_frames"], 7);
  EXPECT_EQ(fresh["user_frames"], 0);
  EXPECT_EQ(fresh["staging_pages"], 0);
  EXPECT_EQ(fresh["host_bytes"], 0);
  EXPECT_TRUE(fresh.at("host_policy").is_null());
  EXPECT_TRUE(fresh.at("counters").is_null());
  EXPECT_TRUE(fresh.at("first_error").is_null());
  EXPECT_EQ(fresh["failed_write_backs"], 0);

  options.cache.statistics = true;
  storage st(options);
  auto const words = st.ref<native, test::traits<replacement::s3_fifo, true>>().array<std::uint64_t>();
  for (std::uint64_t i = 0; i < words.size(); i += 512) words[i] = words[i] + 1;
  (void)words.load(words.size());
  nlohmann::json const used = report_of(st);
  cache_counters const counted = st.cache_statistics();
  EXPECT_EQ(counted.misses, 256u);
  EXPECT_EQ(used["counters"], (nlohmann::json{{"hits", counted.hits},
                                              {"misses", counted.misses},
                                              {"merged", counted.merged},
                                              {"prefetches", counted.prefetches},
                                              {"refused_prefetches", counted.refused_prefetches},
                                              {"evictions", counted.evictions},
                                              {"write_backs", counted.write_backs},
                                              {"overflow_frames", counted.overflow_frames},
                                              {"shared", 0},
                                              {"from_host", 0},
                                              {"to_host", 0}}));
  EXPECT_EQ(used["first_error"], to_string(status(fault::out_of_range)));
  st.reset_statistics();
  EXPECT_EQ(report_of(st)["counters"]["misses"], 0);

  options.cache.user_frames = 3;
  options.cache.staging_pages = 5;
  options.cache.host_size_bytes = 2 * options.cache.size_bytes;
  nlohmann::json const pools = report_of(storage(options));
  EXPECT_EQ(pools["user_frames"], 3);
  EXPECT_EQ(pools["staging_pages"], 5);
  EXPECT_EQ(pools["host_bytes"], 2 * 32 * 8192);
  EXPECT_EQ(pools["host_policy"], "clock");
}

TEST(CachePrefetch, APrefetchedPageSurvivesAScanAndAgesOutLater) {
  storage_options options;
  options.drives = {"emulated:size=4M"};
  options.device = "cpu";
  options.cache.size_bytes = 16 * 4096;  // one set
  options.cache.overflow_frames = 0;
  options.cache.statistics = true;
  storage st(options);
  auto const words = st.ref<simt::native, test::traits<replacement::clock, true>>().array<std::uint64_t const>();
  constexpr std::uint64_t per_page = 512;
  auto const misses_of = [&](std::uint64_t page) {
    std::uint64_t const before = st.cache_statistics().misses;
    (void)words.load(page * per_page);
    return st.cache_statistics().misses - before;
  };
  ASSERT_TRUE(words.prefetch(0));
  ASSERT_TRUE(st.drain(10'000'000'000));
  for (std::uint64_t page = 1; page <= 40; ++page) EXPECT_EQ(misses_of(page), 1u);
  EXPECT_EQ(misses_of(0), 0u) << "40 pages came since: fewer than 64";

  ASSERT_TRUE(words.prefetch(100));
  ASSERT_TRUE(st.drain(10'000'000'000));
  for (std::uint64_t page = 101; page <= 300; ++page) EXPECT_EQ(misses_of(page), 1u);
  EXPECT_EQ(misses_of(100), 1u) << "nobody came for it, while 200 others did";
}

TEST(CacheService, ThreadsThatWaitOnlyLook) {
  auto options = with_cache();
  options.timeout_ns = 300'000'000;
  storage st(options);
  std::uint64_t const written = 77;
  st.pwrite(&written, sizeof written, 0);
  auto const words = st.ref<simt::native, test::traits<replacement::clock, false, frame_pools<>, service_rules>>()
                         .array<std::uint64_t>();
  // No thread consumes the completion.
  std::uint64_t value = 0;
  EXPECT_EQ(to_string(words.try_load(0, value)), to_string(status(fault::timed_out)));
  EXPECT_TRUE(st.drain(10'000'000'000));
  EXPECT_EQ(to_string(words.try_load(0, value)), to_string(status()));
  EXPECT_EQ(value, written);
}

/// A drive that reads zeroes, and accepts writes, which it forgets, or refuses them.
class writes_refused {
 public:
  explicit writes_refused(std::uint32_t entries) : sq_(entries), cq_(entries), thread_([this] { serve(); }) {}
  ~writes_refused() { simt::atomic<machine>(stop_).store(1, simt::order::relaxed); }
  writes_refused(writes_refused const&) = delete;
  writes_refused& operator=(writes_refused const&) = delete;

  queue_pair_rings rings() {
    queue_pair_rings r;
    r.sq = sq_.data();
    r.cq = cq_.data();
    r.sq_doorbell = &sq_doorbell_;
    r.cq_doorbell = &cq_doorbell_;
    r.sq_entries = r.cq_entries = static_cast<std::uint32_t>(sq_.size());
    r.queue_id = 1;
    return r;
  }
  void refuse(bool writes) { simt::atomic<machine>(refuses_).store(writes ? 1 : 0, simt::order::relaxed); }

 private:
  using machine = simt::native;

  void serve() {
    auto const entries = static_cast<std::uint32_t>(sq_.size());
    std::uint32_t head = 0, tail = 0, phase = 1;
    for (;;) {
      // Acquire pairs with the release of the doorbell's write: the entries.
      auto doorbell = simt::atomic<machine, simt::scope::system>(sq_doorbell_);
      bool const told = machine::wait_until(
          [&] {
            return doorbell.load(simt::order::acquire) != head ||
                   simt::atomic<machine>(stop_).load(simt::order::relaxed) != 0;
          },
          simt::no_deadline);
      if (!told || doorbell.load(simt::order::acquire) == head) return;
      nvme::submission_entry const& command = sq_[head];
      head = (head + 1) % entries;
      bool const write = (command.cdw0 & 0xff) == static_cast<std::uint32_t>(nvme::io_opcode::write);
      std::uint32_t const status = write && simt::atomic<machine>(refuses_).load(simt::order::relaxed) != 0
                                       ? nvme::status_field(nvme::media_status::write_fault)
                                       : 0;
      nvme::completion_entry& done = cq_[tail];
      done.dw2 = head | 1u << 16;
      // Release pairs with the acquire of the thread that polls.
      simt::atomic<machine, simt::scope::system>(done.dw3).store(command.cdw0 >> 16 | phase << 16 | status << 17,
                                                                 simt::order::release);
      tail = (tail + 1) % entries;
      if (tail == 0) phase ^= 1;
    }
  }

  std::vector<nvme::submission_entry> sq_;
  std::vector<nvme::completion_entry> cq_;
  std::uint32_t sq_doorbell_ = 0, cq_doorbell_ = 0, stop_ = 0, refuses_ = 0;
  std::jthread thread_;
};

TEST(CacheOverADriveThatTakesNoWrites, SaysSoAndLosesNothing) {
  using native = simt::native;
  writes_refused drive(32);
  queue_pair_rings const rings = drive.rings();
  io_queues const queues(std::span(&rings, 1), {}, memory::host(), memory::host());
  storage_layout layout;
  layout.drive_count = layout.pairs_per_drive = 1;
  layout.block_shift = 9;
  layout.stripe_bytes = 4096;
  layout.command_bytes_max = 4096;
  layout.size_bytes = 64 * 4096;
  cache_options options;
  options.size_bytes = 16 * 4096;
  options.overflow_frames = 2;
  memory::allocation const frames(memory::host(), options.frame_memory_bytes(), 4096);
  cache pages(options, layout, queues,
              buffer_ref(frames.as<std::byte>(), frames.size_bytes(), reinterpret_cast<std::uint64_t>(frames.data())),
              memory::host(), memory::host());
  storage_ref<native, cached> const storage(pages.ref<native, cached>(), 0, layout.size_bytes, true);
  auto const words = storage.array<std::uint64_t>();
  constexpr std::uint64_t per_page = 512;
  std::uint64_t const room = 16 + 2;
  status const write_fault = status::from_nvme(nvme::status_field(nvme::media_status::write_fault));

  // What an access left behind is not told of a write-back.
  EXPECT_EQ(words.load(words.size() + 5), 0u);
  EXPECT_EQ(pages.take_errors().first_offset_bytes, (words.size() + 5) * 8);

  drive.refuse(true);
  for (std::uint64_t page = 0; page < room; ++page) {
    ASSERT_EQ(to_string(words.try_store(page * per_page, page + 1)), to_string(status())) << "page " << page;
  }
  // No page can make room; the cache must not try for ever.
  EXPECT_EQ(to_string(words.try_store(room * per_page, 1)), to_string(write_fault));
  EXPECT_EQ(words.load(room * per_page), 0u);
  EXPECT_EQ(to_string(pages.first_error()), to_string(write_fault));
  EXPECT_GE(pages.failed_write_backs(), 16u);
  clean_result result;
  clean_kernel<native>{pages.frames_ref<native>(), &result}();
  EXPECT_EQ(to_string(status::from_bits(result.drives[0].first_failure)), to_string(write_fault));
  EXPECT_EQ(result.drives[0].unwritten, room);
  EXPECT_EQ(~result.drives[0].first_page, 0u);
  EXPECT_EQ(result.drives[0].last_page, room - 1);
  EXPECT_EQ(result.drives[0].given_up, 0u);
  for (std::uint64_t page = 0; page < room; ++page) EXPECT_EQ(words.load(page * per_page), page + 1);

  drive.refuse(false);
  access_errors const errors = pages.take_errors();
  EXPECT_EQ(to_string(errors.first), to_string(write_fault));
  EXPECT_GE(errors.count, 16u);
  EXPECT_EQ(errors.first_offset_bytes, access_errors::no_offset);
  EXPECT_TRUE(words.try_store(room * per_page, 1).ok());
  result = {};
  clean_kernel<native>{pages.frames_ref<native>(), &result}();
  EXPECT_EQ(result.drives[0].unwritten, 0u);
  EXPECT_TRUE(pages.first_error().ok());
}

}  // namespace
}  // namespace forebay
