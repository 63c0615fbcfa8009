// SPDX-License-Identifier: Apache-2.0
//! \file
//! Uses of the public interface that are easy to get wrong do what they look like. The public headers promise
//! it.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/pipeline.hpp"
#include "forebay/slots.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"

namespace forebay {
namespace {

using M = simt::native;
constexpr std::uint32_t page_bytes = 4096;

storage open_cached(std::uint64_t cache_pages = 64) {
  return storage({.drives = {"emulated:size=1M"}, .device = "cpu", .cache = {.size_bytes = cache_pages * page_bytes}});
}

template <class View>
using element = decltype(std::declval<View const&>()[0]);
using writing = storage_ref<M, cached>::view_type<int>;
using reading = storage_ref<M, cached>::view_type<int const>;
static_assert(std::is_assignable_v<element<writing>, int>);
static_assert(!std::is_assignable_v<element<writing>&, int>, "a named reference would write the drive");
static_assert(!std::is_assignable_v<element<writing> const&, int>);
static_assert(!std::is_assignable_v<element<writing>&, element<writing>>);
static_assert(std::is_same_v<element<reading>, int>);

static_assert(std::is_same_v<storage_ref<M>::machine, M>);
static_assert(std::is_same_v<storage_ref<M, cached>::machine, M>);
static_assert(std::is_same_v<writing::machine, M>);
static_assert(std::is_same_v<token<M>::machine, M>);

TEST(Api, ElementsAreChangedInPlace) {
  storage st = open_cached();
  auto const v = st.ref<M, cached>().array<int>();
  v[3] = 40;
  EXPECT_EQ((v[3] += 5), 45);
  EXPECT_EQ((v[3] -= 3), 42);
  EXPECT_EQ((v[3] *= 2), 84);
  EXPECT_EQ(++v[3], 85);
  EXPECT_EQ(v[3]++, 85);
  EXPECT_EQ(--v[3], 85);
  EXPECT_EQ(v[3]--, 85);
  v[4] = v[3];
  EXPECT_EQ(v[4], 84);
  int const copy = v[4];
  v[4] = 0;
  EXPECT_EQ(copy, 84);
  EXPECT_EQ(v[4], 0);
}

/// The machine comes from the ref, so that the ref is the only template argument.
template <class Ref>
struct sum_of {
  Ref ref;
  std::uint64_t* sum;
  FOREBAY_DEVICE void operator()() const {
    using machine = typename Ref::machine;
    auto const v = ref.template array<std::uint64_t const>();
    std::uint64_t own = 0;
    for (std::uint64_t i = machine::thread_rank(); i < v.size(); i += machine::thread_count()) own += v[i];
    simt::atomic<machine>(*sum).fetch_add(own, simt::order::relaxed);
  }
};

TEST(Api, AFunctorDeducesTheMachine) {
  storage st = open_cached();
  std::vector<std::uint64_t> words(st.size_bytes() / 8, 3);
  st.pwrite(words.data(), st.size_bytes(), 0);
  std::uint64_t sum = 0;
  simt::launch<simt::fiber>({1, 32, 0}, sum_of{st.ref<simt::fiber, cached>(), &sum});
  EXPECT_EQ(sum, words.size() * 3);
}

std::uint64_t pages_read(storage const& st) {
  auto const report = nlohmann::json::parse(st.report());
  return report.at("drives").at(0).at("statistics").at("bytes_read").get<std::uint64_t>() / page_bytes;
}

TEST(Api, AnOverwrittenPageIsNotRead) {
  storage st = open_cached(16);
  std::vector<std::uint64_t> old(st.size_bytes() / 8, 7);
  st.pwrite(old.data(), st.size_bytes(), 0);
  auto const v = st.ref<M, cached>().array<std::uint64_t>();
  std::uint64_t const before = pages_read(st);
  {
    auto page = v.thread_page();
    for (std::uint64_t i = 0; i < v.size(); i = page.end()) {
      ASSERT_EQ(to_string(page.seek_overwrite(i)), "success") << i;
      ASSERT_EQ(page.first(), i);
      for (std::uint64_t k = page.first(); k < page.end(); ++k) page[k] = k * 5;
    }
  }
  EXPECT_EQ(pages_read(st), before);
  st.flush();
  std::vector<std::uint64_t> found(v.size());
  st.pread(found.data(), st.size_bytes(), 0);
  for (std::uint64_t k = 0; k < found.size(); ++k) ASSERT_EQ(found[k], k * 5) << k;
}

TEST(Api, APageThatTheArrayCoversInPartIsReadBeforeItIsOverwritten) {
  storage st = open_cached(16);
  std::vector<std::uint64_t> old(st.size_bytes() / 8, 7);
  st.pwrite(old.data(), st.size_bytes(), 0);
  // From the middle of page 0 to the middle of page 2.
  auto const v = st.ref<M, cached>().array<std::uint64_t>(page_bytes / 2, 2 * page_bytes / 8);
  std::uint64_t const before = pages_read(st);
  {
    auto page = v.thread_page();
    for (std::uint64_t i = 0; i < v.size(); i = page.end()) {
      ASSERT_EQ(to_string(page.seek_overwrite(i)), "success") << i;
      for (std::uint64_t k = page.first(); k < page.end(); ++k) page[k] = 1;
    }
  }
  EXPECT_EQ(pages_read(st), before + 2) << "the first page and the last";
  st.flush();
  std::vector<std::uint64_t> found(3 * page_bytes / 8);
  st.pread(found.data(), 3 * page_bytes, 0);
  std::uint64_t const first = page_bytes / 2 / 8;
  for (std::uint64_t k = 0; k < found.size(); ++k) {
    ASSERT_EQ(found[k], k >= first && k < first + v.size() ? 1u : 7u) << k;
  }
}

TEST(Api, SlotsShareABufferOut) {
  storage st({.drives = {"emulated:size=1M"}, .device = "cpu"});
  constexpr std::uint32_t threads = 3;
  using parts = slots<M, 4>;
  registered_buffer const buffer = st.allocate_buffer(parts::size_bytes(threads, 1024));
  parts const mine(buffer.ref(), 1024);
  std::set<std::byte*> seen;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    for (std::uint32_t slot = 0; slot < parts::depth; ++slot) {
      buffer_ref const part = mine.of(thread, slot);
      EXPECT_EQ(part.size_bytes(), 1024u);
      EXPECT_TRUE(seen.insert(part.data()).second);
    }
  }
  EXPECT_EQ(*seen.begin(), buffer.data());
  EXPECT_EQ(*seen.rbegin(), buffer.data() + buffer.ref().size_bytes() - 1024);
  EXPECT_EQ(mine[1].data(), mine.of(M::thread_rank(), 1).data());
  EXPECT_EQ(mine.of(0, 4).size_bytes(), 0u) << "no such slot";
  EXPECT_EQ(mine.of(threads, 0).size_bytes(), 0u) << "no such thread";
}

TEST(Api, ErrorsAreToldWithTheirPlaceAndForgotten) {
  storage st = open_cached();
  auto const v = st.ref<M, cached>().array<int>(8192, 100);
  EXPECT_EQ(st.take_errors().count, 0u);
  EXPECT_EQ(v[100], 0) << "beyond the end";
  EXPECT_EQ(v[2000], 0);
  v[100] = 1;
  access_errors const errors = st.take_errors();
  EXPECT_EQ(to_string(errors.first), to_string(status(fault::out_of_range)));
  EXPECT_EQ(errors.count, 3u);
  EXPECT_EQ(errors.first_offset_bytes, 8192u + 400);
  access_errors const later = st.take_errors();
  EXPECT_EQ(to_string(later.first), "success");
  EXPECT_EQ(later.count, 0u);
  EXPECT_EQ(later.first_offset_bytes, access_errors::no_offset);
  EXPECT_EQ(v[101], 0);
  EXPECT_EQ(st.take_errors().first_offset_bytes, 8192u + 404);

  storage past({.drives = {"emulated:size=1M"}, .device = "cpu"});
  EXPECT_EQ(past.take_errors().count, 0u) << "it has no cache";
}

}  // namespace
}  // namespace forebay
