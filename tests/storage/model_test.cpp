// SPDX-License-Identifier: Apache-2.0
//! \file
//! A storage beside a model of it, an array of bytes. Random sequences of operations of kernels and the host must leave
//! both the same, whichever part of the storage holds the bytes meanwhile.
//!
//! FOREBAY_SCHEDULES: fifty times the sequences that each test runs (default 200). FOREBAY_SEED: run that one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/schedulers.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "support/drive_files.hpp"
#include "support/environment.hpp"
#include "support/traits.hpp"

namespace forebay {
namespace {

using native = simt::native;

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block_bytes = 512;

/// Of one sequence.
struct plan {
  std::uint32_t drives = 1;
  std::uint64_t drive_bytes = 3 * mib;
  std::uint64_t stripe_bytes = 65536;
  std::uint32_t page_bytes = 4096;
  std::uint64_t cache_pages = 0;  ///< 0: no cache
  std::uint32_t overflow_frames = 0;
  std::uint32_t user_frames = 0;
  std::uint32_t host_groups = 0;
  std::uint32_t steps = 50;
};

template <class Pools>
class sequence {
  using ref_type = storage_ref<native, test::traits<replacement::clock, false, Pools>>;

 public:
  sequence(plan const& p, std::uint64_t seed)
      : plan_(p), files_(p.drives, p.drive_bytes), random_(seed * 0x9e3779b97f4a7c15u + 1) {
    open();
    bytes_.resize(st_->size_bytes());
  }

  void run() {
    for (std::uint32_t step = 0; step < plan_.steps && !testing::Test::HasFatalFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      one_step();
      if (testing::Test::HasFailure()) return;
    }
    compare_everything("at the end");
    expect_nothing_pinned();
    close();
    open();
    compare_everything("after it was opened again");
  }

 private:
  bool cached() const { return plan_.cache_pages != 0; }

  void open() {
    storage_options o;
    o.drives.clear();
    for (std::string const& path : files_.paths()) o.drives.push_back("file:" + path);
    o.device = "cpu";
    o.stripe_bytes = plan_.stripe_bytes;
    o.allow_destroy = true;
    o.cache.page_bytes = plan_.page_bytes;
    o.cache.size_bytes = plan_.cache_pages * plan_.page_bytes;
    o.cache.overflow_frames = plan_.overflow_frames;
    o.cache.user_frames = plan_.user_frames;
    o.cache.host_size_bytes = plan_.host_groups * o.cache.size_bytes;
    st_ = std::make_unique<storage>(o);
    buffer_ = st_->allocate_buffer(buffer_bytes);
    lent_ = st_->allocate_buffer(lent_pages * plan_.page_bytes);
    ASSERT_EQ(st_->extents().size(), extents_.size());
    for (auto const& [name, e] : extents_) {
      EXPECT_EQ(st_->find_extent(name).first_byte, e.first_byte);
      EXPECT_EQ(st_->find_extent(name).size_bytes, e.size_bytes);
    }
  }
  void close() {
    buffer_ = {};
    lent_ = {};
    st_.reset();
  }

  ref_type ref() const { return st_->template ref<native, test::traits<replacement::clock, false, Pools>>(); }
  std::uint64_t below(std::uint64_t n) { return random_.below(static_cast<std::uint32_t>(n)); }

  struct range {
    std::uint64_t at;
    std::uint64_t bytes;
  };
  /// A range of bytes outside the catalogue, a multiple of `unit`; half of them among a few hot pages.
  range any_range(std::uint64_t unit, std::uint64_t bytes_max) {
    std::uint64_t const first = catalogue::reserved_bytes, room = bytes_.size() - first;
    std::uint64_t const hot = std::min<std::uint64_t>(room, 6 * plan_.page_bytes);
    std::uint64_t const at = first + below(below(2) == 0 ? hot / unit : room / unit) * unit;
    std::uint64_t const most = std::min(bytes_max, bytes_.size() - at) / unit;
    std::uint64_t const units = 1 + below(below(3) == 0 ? most : std::min<std::uint64_t>(most, 4 + 64 / unit));
    return {at, units * unit};
  }
  void fill(void* to, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i)
      static_cast<unsigned char*>(to)[i] = static_cast<unsigned char>(below(256));
  }
  void took(range const& r, void const* from) { std::memcpy(bytes_.data() + r.at, from, r.bytes); }
  void expect_same(void const* got, range const& r, char const* what) {
    auto const* const bytes = static_cast<unsigned char const*>(got);
    for (std::uint64_t i = 0; i < r.bytes; ++i) {
      if (bytes[i] == bytes_[r.at + i]) continue;
      FAIL() << what << ": byte " << r.at + i << " is " << int{bytes[i]} << ", must be " << int{bytes_[r.at + i]};
    }
  }
  void expect_ok(status got, char const* what) { EXPECT_EQ(to_string(got), "success") << what; }

  void one_step() {
    switch (below(cached() ? 14 : 8)) {
      case 0:
      case 1:
        return host_write();
      case 2:
        return host_read();
      case 3:
        return kernel_read();
      case 4:
        return kernel_write();
      case 5:
        return flush();
      case 6:
        return below(3) == 0 ? open_again() : change_extents();
      case 7:
        return detached_reads();
      case 8:
      case 9:
        return kernel_stores();
      case 10:
        return kernel_loads();
      case 11:
        return prefetch();
      case 12:
        return add();
      default:
        if constexpr (Pools::has_users) return share();
        return kernel_loads();
    }
  }

  void host_write() {
    range const r = any_range(1, 3 * 65536);
    std::vector<unsigned char> data(r.bytes);
    fill(data.data(), r.bytes);
    extent const* const within = extent_around(r);
    st_->pwrite(data.data(), r.bytes, r.at - (within != nullptr ? within->first_byte : 0), within);
    took(r, data.data());
  }
  void host_read() {
    range const r = any_range(1, 3 * 65536);
    std::vector<unsigned char> data(r.bytes);
    st_->pread(data.data(), r.bytes, r.at);
    expect_same(data.data(), r, "pread");
  }
  /// Sometimes an extent that the bytes lie in.
  extent const* extent_around(range const& r) {
    if (below(2) == 0) return nullptr;
    for (auto const& [name, e] : extents_) {
      if (r.at >= e.first_byte && r.at + r.bytes <= e.first_byte + e.size_bytes) return &e;
    }
    return nullptr;
  }

  void kernel_read() {
    range const r = any_range(block_bytes, buffer_bytes);
    expect_ok(cached() ? ref().read(buffer_.ref(), r.at, r.bytes)
                       : st_->template ref<native>().read(buffer_.ref(), r.at, r.bytes),
              "read");
    expect_same(buffer_.data(), r, "a kernel's read");
  }
  void kernel_write() {
    range const r = any_range(cached() ? 1 : block_bytes, buffer_bytes);
    fill(buffer_.data(), r.bytes);
    took(r, buffer_.data());
    if (!cached()) return expect_ok(st_->template ref<native>().write(buffer_.ref(), r.at, r.bytes), "write");
    auto token =
        ref().write_async(buffer_.ref(), r.at, r.bytes, below(2) == 0 ? write_until::drive : write_until::cache);
    fill(buffer_.data(), r.bytes);  // the buffer is the caller's at once
    expect_ok(token.wait(), "write_async");
  }
  void detached_reads() {
    range const r = any_range(block_bytes, buffer_bytes);
    if (cached()) {
      ref().read_async(buffer_.ref(), r.at, r.bytes).detach();
    } else {
      st_->template ref<native>().read_async(buffer_.ref(), r.at, r.bytes).detach();
    }
    st_->flush();
    expect_same(buffer_.data(), r, "a detached read, after a flush");
  }

  std::uint64_t any_word() { return any_range(8, 8).at / 8; }
  std::uint64_t word(std::uint64_t i) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + i * 8, 8);
    return value;
  }
  void kernel_stores() {
    auto const words = ref().template array<std::uint64_t>();
    for (std::uint64_t n = 1 + below(40); n != 0; --n) {
      std::uint64_t const i = any_word();
      std::uint64_t const value = below(1u << 31);
      expect_ok(words.try_store(i, value), "try_store");
      took({i * 8, 8}, &value);
    }
  }
  void kernel_loads() {
    auto const words = ref().template array<std::uint64_t const>();
    for (std::uint64_t n = 1 + below(40); n != 0; --n) {
      std::uint64_t const i = any_word();
      std::uint64_t value = 0;
      expect_ok(words.try_load(i, value), "try_load");
      ASSERT_EQ(value, word(i)) << "word " << i;
    }
  }
  void add() {
    auto const words = ref().template array<std::uint64_t>();
    std::uint64_t const i = any_word();
    std::uint64_t const amount = below(1000);
    EXPECT_EQ(words.fetch_add(i, amount), word(i));
    std::uint64_t const sum = word(i) + amount;
    took({i * 8, 8}, &sum);
  }
  void prefetch() {
    for (std::uint64_t n = 1 + below(20); n != 0; --n) (void)ref().prefetch(any_range(1, 1).at);
  }

  void share() {
    std::uint64_t const page = plan_.page_bytes;
    std::uint64_t const at = any_range(page, page).at / page * page;
    if (at + page > bytes_.size()) return;
    std::uint64_t const which = below(lent_pages);
    buffer_ref const lent = lent_.ref().subspan(which * page, page);
    bool const overwrite = below(2) == 0;
    if (overwrite) fill(lent.data(), page);
    auto shared = ref().share(lent, at, overwrite ? sharing_use::overwrite : sharing_use::read);
    expect_ok(shared.wait(), "share");
    if (overwrite) took({at, page}, lent.data());
    expect_same(shared.data(), {at, page}, "a shared page");
    if (below(2) == 0) {
      expect_ok(shared.will_write(), "will_write");
      fill(shared.data(), 16);
      took({at, 16}, shared.data());
    }
    if (below(2) == 0) {
      expect_ok(shared.take_back(), "take_back");
    } else {
      shared.leave();
      kernel_loads();
      st_->take_back(lent_);
    }
    fill(lent.data(), page);  // the caller's again
  }

  void flush() {
    st_->flush();
    expect_ok(st_->take_errors().first, "take_errors");
  }
  void open_again() {
    close();
    open();
    if (below(2) == 0) compare_everything("after it was opened again");
  }
  void change_extents() {
    std::string const name = "extent " + std::to_string(below(4));
    if (extents_.contains(name)) {
      st_->remove_extent(name);
      extents_.erase(name);
      return;
    }
    std::uint64_t const bytes = 1 + below(2 * mib);
    try {
      extents_[name] = st_->create_extent(name, bytes);
    } catch (refused_input const&) {
      extents_.erase(name);  // no gap is that large
    }
  }

  void expect_nothing_pinned() {
    if (!cached()) return;
    cache_state const& s = *ref().cache().state();
    for (std::uint32_t frame = 0; frame < s.frames; ++frame) {
      EXPECT_EQ(page_word{s.words[frame]}.pins(), 0u) << "frame " << frame;
    }
  }
  void compare_everything(char const* when) {
    range const all{catalogue::reserved_bytes, bytes_.size() - catalogue::reserved_bytes};
    std::vector<unsigned char> data(all.bytes);
    st_->pread(data.data(), all.bytes, all.at);
    expect_same(data.data(), all, when);
  }

  static constexpr std::uint64_t buffer_bytes = 3 * 65536;
  static constexpr std::uint64_t lent_pages = 4;

  plan const plan_;
  test::drive_files files_;
  simt::random_source random_;
  std::unique_ptr<storage> st_;
  registered_buffer buffer_;
  registered_buffer lent_;
  std::vector<unsigned char> bytes_;  ///< what every read must find
  std::map<std::string, extent> extents_;
};

template <class Pools>
void explore(plan (*make)(simt::random_source& random)) {
  bool const one = std::getenv("FOREBAY_SEED") != nullptr;
  std::uint64_t const first = test::number_from_environment("FOREBAY_SEED", 0);
  std::uint64_t const end = one ? first + 1 : 1 + test::number_from_environment("FOREBAY_SCHEDULES", 200) / 50;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    simt::random_source random(seed ^ 0x6a09e667f3bcc908u);
    plan p = make(random);
    p.drives = 1 + random.below(4);
    constexpr std::uint64_t stripes[] = {0, 65536, 131072};
    p.stripe_bytes = stripes[random.below(3)];
    auto const* const info = testing::UnitTest::GetInstance()->current_test_info();
    SCOPED_TRACE("replay: FOREBAY_SEED=" + std::to_string(seed) +
                 " build/cpu/bin/model_test --gtest_filter=" + info->test_suite_name() + "." + info->name());
    sequence<Pools>(p, seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

plan with_cache(simt::random_source& random) {
  plan p;
  constexpr std::uint32_t pages[] = {512, 4096, 16384};
  p.page_bytes = pages[random.below(3)];
  // A few sets, each of which has many pages that compete for it.
  p.cache_pages = 16 * (1 + random.below(3));
  p.overflow_frames = random.below(2) * 2;
  return p;
}

TEST(StorageModel, WithoutACache) {
  explore<frame_pools<>>([](simt::random_source&) { return plan{}; });
}
TEST(StorageModel, WithACache) {
  explore<frame_pools<>>(&with_cache);
}
TEST(StorageModel, WithAHostPool) {
  explore<frame_pools<no_sharing, replacement::clock>>([](simt::random_source& random) {
    plan p = with_cache(random);
    p.overflow_frames = 0;
    p.host_groups = 1 + random.below(3);
    return p;
  });
}
TEST(StorageModel, WithSharedBuffersAndAHostPool) {
  explore<frame_pools<share_all, replacement::clock>>([](simt::random_source& random) {
    plan p = with_cache(random);
    p.user_frames = 1 + random.below(3);
    p.host_groups = 1;
    return p;
  });
}

}  // namespace
}  // namespace forebay
