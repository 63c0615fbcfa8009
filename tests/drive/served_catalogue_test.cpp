// SPDX-License-Identifier: Apache-2.0
//! \file
//! Several clients of one served drive that make, write and remove extents of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drive/daemons.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/extent.hpp"
#include "forebay/storage.hpp"

namespace forebay::drive {
namespace {

using test::local_daemon;
using test::refusal;
using testing::HasSubstr;

storage open_storage(std::string const& uri = "emulated:size=8M,residency=served,queues=40") {
  return storage({.drives = {uri}, .device = "cpu"});
}

std::string content(storage& s, std::string const& name) {
  extent const e = s.find_extent(name);
  std::string text(e.size_bytes, '\0');
  s.pread(text.data(), e.size_bytes, 0, &e);
  return text;
}

TEST(served_catalogue, clients_that_open_it_side_by_side_keep_each_others_extents) {
  local_daemon const daemon;
  storage one = open_storage(), other = open_storage();
  one.create_extent("one", 1);
  other.create_extent("other", 1);
  one.remove_extent("one");
  extent const staged = one.stage_extent("staged", 1);
  other.create_extent("beside what one has staged", 1);
  one.publish_extent(staged, false);
  std::vector<std::string> names;
  for (extent const& e : open_storage().extents()) names.push_back(e.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("other", "beside what one has staged", "staged"));
}

TEST(served_catalogue, what_a_client_stages_no_other_writes_over) {
  local_daemon const daemon;
  storage one = open_storage(), other = open_storage();
  std::string const a(1 << 20, 'a'), b(1 << 20, 'b');
  extent const staged = one.stage_extent("a", a.size()), beside = other.stage_extent("b", b.size());
  EXPECT_NE(staged.first_byte, beside.first_byte);
  other.pwrite(b.data(), b.size(), 0, &beside);
  other.publish_extent(beside);
  extent const made = other.create_extent("made", b.size());
  other.pwrite(b.data(), b.size(), 0, &made);
  one.pwrite(a.data(), a.size(), 0, &staged);
  // Another client that comes and goes in between destroys nothing that `one` has written.
  extent const gone = other.create_extent("gone", b.size());
  other.pwrite(b.data(), b.size(), 0, &gone);
  other.remove_extent("gone");
  one.publish_extent(staged);
  storage third = open_storage();
  EXPECT_EQ(content(third, "a"), a);
  EXPECT_EQ(content(third, "b"), b);
  EXPECT_EQ(content(third, "made"), b);
}

TEST(served_catalogue, bytes_that_a_client_staged_are_free_when_it_gives_them_up_or_goes) {
  local_daemon const daemon;
  storage other = open_storage();
  auto one = std::make_unique<storage>(open_storage());
  std::string const too_large = refusal([&] {
    one->stage_extent("all", 7 << 20);
    other.create_extent("one", 1);
  });
  EXPECT_THAT(too_large, HasSubstr("beside what other programs are writing"));
  one.reset();
  extent const all = other.stage_extent("all", 7 << 20);
  other.discard_extent(all);
  EXPECT_NO_THROW(open_storage().create_extent("all", 7 << 20));
}

TEST(served_catalogue, clients_that_change_the_catalogue_at_the_same_moment_keep_each_others_changes) {
  local_daemon const daemon;
  std::string const uri = "emulated:size=64M,residency=served,queues=64";
  constexpr int clients = 3, extents = 12;
  std::vector<std::thread> threads;
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      try {
        storage s = open_storage(uri);
        for (int i = 0; i < extents; ++i) {
          std::string const name = std::to_string(c) + "." + std::to_string(i);
          std::string const text(1000, static_cast<char>('a' + c * extents + i));
          if (i % 2 == 0) {
            extent const e = s.create_extent(name, text.size());
            s.pwrite(text.data(), text.size(), 0, &e);
          } else {
            extent const e = s.stage_extent(name, text.size());
            s.pwrite(text.data(), text.size(), 0, &e);
            s.publish_extent(e);
            s.remove_extent(std::to_string(c) + "." + std::to_string(i - 1));
          }
        }
      } catch (std::exception const& failed) {
        ADD_FAILURE() << failed.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  storage s = open_storage(uri);
  EXPECT_EQ(s.extents().size(), std::size_t{clients * extents / 2});
  for (int c = 0; c < clients; ++c) {
    for (int i = 1; i < extents; i += 2) {
      EXPECT_EQ(content(s, std::to_string(c) + "." + std::to_string(i)),
                std::string(1000, static_cast<char>('a' + c * extents + i)));
    }
  }
}

TEST(served_catalogue, a_client_whose_table_was_full_keeps_others_extents) {
  local_daemon const daemon;
  std::string const uri = "emulated:size=4G,residency=served,queues=40";
  auto const name = [](int i) { return std::to_string(i) + std::string(250, '"'); };
  {
    // Almost full, at once.
    storage s({.drives = {uri}, .device = "cpu", .allow_destroy = true});
    catalogue c(s.size_bytes());
    for (int i = 0; i < 940; ++i) c.create(name(i), 1);
    c.store([&](void const* from, std::uint64_t bytes, std::uint64_t at) { s.pwrite(from, bytes, at); },
            [&] { s.flush(); });
  }
  storage full = open_storage(uri), other = open_storage(uri);
  std::string refused = "accepted";
  for (int i = 940; i < 2000 && refused == "accepted"; ++i) refused = refusal([&] { full.create_extent(name(i), 1); });
  ASSERT_THAT(refused, HasSubstr("the table of extents is full"));
  other.create_extent("other", 1);
  full.remove_extent(name(0));
  auto const now = open_storage(uri).extents();
  auto const there = [&](std::string const& n) {
    return std::any_of(now.begin(), now.end(), [&](extent const& e) { return e.name == n; });
  };
  EXPECT_TRUE(there("other"));
  EXPECT_FALSE(there(name(0)));
}

TEST(served_catalogue, no_extent_is_made_by_who_has_a_raw_queue_pair_though_another_client_made_a_catalogue) {
  local_daemon const daemon;
  storage raw = open_storage(), other = open_storage();
  {
    auto const pair = raw.make_raw_queue_pair();
    other.create_extent("other", 1);
    EXPECT_THAT(refusal([&] { raw.create_extent("raw", 1); }), HasSubstr("raw queue pairs could write over"));
  }
  raw.create_extent("raw", 1);
}

}  // namespace
}  // namespace forebay::drive
