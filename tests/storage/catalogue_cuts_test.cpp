// SPDX-License-Identifier: Apache-2.0
//! \file
//! A program changes the catalogue, and ends at each of its writes and flushes in turn: it is killed, or the drive
//! loses power. The next program must find the table from before or the new one, whole.
//!
//! A drive that loses power keeps, of the blocks that were written since its last flush, any it likes. It never mixes a
//! block. A killed program leaves the write in which it died half done, down to the byte; all earlier writes are there,
//! flushed or not. Those that were not flushed may still be lost when the power goes later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/error.hpp"
#include "support/seed.hpp"

namespace forebay {
namespace {

using emulator::testing::replay;
using emulator::testing::test_seed;

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block_bytes = 512;

/// The first MiB of a storage.
using image = std::vector<char>;

catalogue_home home() {
  return catalogue_home(1024 * mib);
}

std::optional<catalogue> load(image const& from, bool damaged_is_none) {
  return catalogue::load(
      home(), [&](void* to, std::uint64_t n, std::uint64_t at) { std::memcpy(to, from.data() + at, n); },
      damaged_is_none);
}

/// What a program sees in a catalogue. Where there is none, it sees no extents.
std::string text_of(std::vector<extent> const& extents) {
  std::string text;
  for (extent const& e : extents) {
    text += e.name.substr(0, 10) + ": " + std::to_string(e.size_bytes) + " at " + std::to_string(e.first_byte) + "\n";
  }
  return text;
}
std::string table_in(image const& from, bool damaged_is_none) {
  try {
    auto const found = load(from, damaged_is_none);
    return found ? text_of(found->extents()) : "";
  } catch (operation_failed const& failed) {
    return failed.what();
  }
}

/// A deliberate bug, which the tests below must find.
enum class bug {
  none,
  flushes_nothing,       ///< the drive lies
  flushes_only_its_own,  ///< no flush before the first write of a program: it has written nothing yet
  writes_one_copy,       ///< always in the same place
  has_no_mark,           ///< where there is no catalogue yet
};

/// The program ends here.
struct death {};

class cut_drive {
 public:
  explicit cut_drive(image const& content, bug has = bug::none, bool damaged = false)
      : seen_(content), durable_(content), bug_(has), damaged_(damaged) {}

  bool may_be_damaged() const { return damaged_; }
  image const& content() const { return seen_; }
  std::string table() const { return table_in(seen_, damaged_); }
  std::string table_after(std::function<void(catalogue&)> const& change) const {
    catalogue table = load(seen_, damaged_).value_or(catalogue(home()));
    change(table);
    return text_of(table.extents());
  }

  /// Makes a change as a program that has just opened the drive. The program is killed in place of its step `dies_at`,
  /// a write or a flush. Returns whether it came to its end.
  bool run(std::function<void(catalogue&)> const& change, std::uint64_t dies_at = ~std::uint64_t{0}) {
    catalogue table = load(seen_, damaged_).value_or(catalogue(home()));
    change(table);
    return store(table, dies_at);
  }
  bool store(catalogue& table, std::uint64_t dies_at = ~std::uint64_t{0}) {
    std::uint64_t step = 0;
    bool wrote = false;
    try {
      table.store(
          [&](void const* from, std::uint64_t n, std::uint64_t at) {
            if (bug_ == bug::writes_one_copy) at %= catalogue::copy_bytes;
            if (bug_ == bug::has_no_mark && n < catalogue::copy_bytes) return;
            auto const* const data = static_cast<char const*>(from);
            if (step++ == dies_at) {
              dying_.assign(data, data + n);
              dying_at_ = at;
              throw death{};
            }
            std::copy_n(data, n, seen_.data() + at);
            wrote = true;
          },
          [&] {
            if (bug_ == bug::flushes_only_its_own && !wrote) return;
            if (step++ == dies_at) throw death{};
            if (bug_ != bug::flushes_nothing) durable_ = seen_;
          });
    } catch (death const&) {
      return false;
    }
    return true;
  }

  /// Calls `judge` with what may be left once the power is gone.
  template <class Judge>
  void for_each_loss(std::mt19937_64& random, Judge&& judge) const {
    std::vector<choice> const choices = unflushed();
    std::uint64_t all = 1;
    for (choice const& c : choices) all = std::min<std::uint64_t>(all * c.contents.size(), 1 << 20);
    constexpr std::uint64_t most = 2048, at_random = 32;
    image left = durable_;
    // Each there can be, or some at random; those where everything was lost, and nothing, come first.
    for (std::uint64_t n = 0; n < (all > most ? at_random : all); ++n) {
      std::uint64_t rest = n;
      for (choice const& c : choices) {
        std::uint64_t const count = c.contents.size();
        std::uint64_t which = rest % count;
        if (all > most) which = n == 0 ? 0 : n == 1 ? count - 1 : random() % count;
        rest /= count;
        std::memcpy(left.data() + c.at, c.contents[which], block_bytes);
      }
      judge(left);
    }
  }

  /// Calls `judge` with what the killed program may have left of the write in which it died.
  template <class Judge>
  void for_each_tear(Judge&& judge) const {
    image left = seen_;
    judge(left);
    if (dying_.empty()) return;
    char* const to = left.data() + dying_at_;
    char const* const old = seen_.data() + dying_at_;
    std::uint64_t first = 0, end = dying_.size();
    while (first < end && dying_[first] == old[first]) ++first;
    while (end > first && dying_[end - 1] == old[end - 1]) --end;
    // No processor stores less at a time when it copies as much as a block.
    constexpr std::uint64_t word = 8;
    // Real copies go forwards or backwards, and often store their first bytes last.
    constexpr std::uint64_t last_bytes = 32;
    std::uint64_t const step = std::max(word, (end - first) / 64 / word * word);
    for (std::uint64_t at = first / word * word; at < end; at += step) {
      auto const with_new = [&](std::uint64_t from, std::uint64_t until) {
        std::memcpy(to, old, end);
        if (from < until) std::memcpy(to + from, dying_.data() + from, until - from);
        judge(left);
      };
      with_new(0, at);
      with_new(last_bytes, at);
      with_new(at, end);
    }
  }
  /// The power stays on, and another program comes.
  void forget_the_dead() { dying_.clear(); }

 private:
  /// A block and what it may hold.
  struct choice {
    std::uint64_t at;
    std::vector<char const*> contents;
  };
  std::vector<choice> unflushed() const {
    std::vector<choice> all;
    for (std::uint64_t at = 0; at < seen_.size(); at += block_bytes) {
      choice here{at, {durable_.data() + at}};
      auto const add = [&](char const* content) {
        if (std::memcmp(content, here.contents.back(), block_bytes) != 0) here.contents.push_back(content);
      };
      add(seen_.data() + at);
      if (at >= dying_at_ && at - dying_at_ < dying_.size()) add(dying_.data() + (at - dying_at_));
      if (here.contents.size() > 1) all.push_back(std::move(here));
    }
    return all;
  }

  image seen_;     ///< what programs read
  image durable_;  ///< what stays without power
  bug bug_;
  bool damaged_;
  std::vector<char> dying_;  ///< the write in which the program died
  std::uint64_t dying_at_ = 0;
};

struct change {
  std::string what;
  std::function<void(catalogue&)> make;
};

/// A name that takes a block of the table, and more.
std::string long_name(char c) {
  return c + std::string(254, '"');
}
change create(std::string const& name) {
  return {"create", [=](catalogue& c) { c.create(name, 3 * mib); }};
}
change import(std::string const& name, std::uint64_t bytes, bool replace) {
  return {replace ? "import over another" : "import", [=](catalogue& c) { c.publish(c.stage(name, bytes), replace); }};
}
change remove(std::string const& name) {
  return {"remove", [=](catalogue& c) { c.remove(name); }};
}

/// Cuts a change short at each of its steps, and after each cut the next one as well. Says what it found wrong; stops
/// at the first fault.
class exploration {
 public:
  explicit exploration(std::uint64_t seed) : random_(seed) {}

  std::string const& fault() const { return fault_; }
  std::uint64_t judged() const { return judged_; }

  void cut(cut_drive const& before, change const& first) {
    std::string const old_table = before.table(), new_table = before.table_after(first.make);
    EXPECT_NE(new_table, old_table);
    bool returned = false;
    for (std::uint64_t step = 0; !returned && fault_.empty(); ++step) {
      std::string const when = first.what + " cut at step " + std::to_string(step);
      cut_drive drive = before;
      returned = drive.run(first.make, step);
      std::vector<std::string> const allowed = returned ? std::vector{new_table} : std::vector{old_table, new_table};
      drive.for_each_tear([&](image const& left) { judge(left, drive, allowed, when + ", killed"); });
      std::uint64_t used = 0;
      drive.for_each_loss(random_, [&](image const& left) {
        judge(left, drive, allowed, when + ", no power");
        if (++used <= 8) use(cut_drive(left, bug::none, drive.may_be_damaged()), when + ", no power");
      });
      drive.forget_the_dead();
      cut_next(drive, allowed, when);
    }
  }

 private:
  /// What is left serves as if nothing had happened.
  void use(cut_drive drive, std::string const& when) {
    if (!fault_.empty()) return;
    std::string const wanted = drive.table_after(next_.make);
    drive.run(next_.make);
    if (drive.table() != wanted) fault_ = when + ": the next change makes '" + drive.table() + "'";
  }

  /// The power stays on after the first cut. What the next program sees may not be durable: that may be any of `kept`.
  void cut_next(cut_drive const& before, std::vector<std::string> const& kept, std::string const& earlier) {
    std::string const new_table = before.table_after(next_.make);
    bool returned = false;
    for (std::uint64_t step = 0; !returned && fault_.empty(); ++step) {
      std::string const when = earlier + ", the next one at step " + std::to_string(step);
      cut_drive drive = before;
      returned = drive.run(next_.make, step);
      std::vector<std::string> allowed = {new_table};
      if (!returned) allowed.insert(allowed.end(), kept.begin(), kept.end());
      drive.for_each_loss(random_, [&](image const& left) { judge(left, drive, allowed, when + ", no power"); });
    }
  }

  void judge(image const& left, cut_drive const& drive, std::vector<std::string> const& allowed,
             std::string const& when) {
    if (!fault_.empty()) return;
    ++judged_;
    std::string const found = table_in(left, drive.may_be_damaged());
    if (std::find(allowed.begin(), allowed.end(), found) == allowed.end()) fault_ = when + ": found '" + found + "'";
  }

  change const next_ = create("the next one");
  std::mt19937_64 random_;
  std::string fault_;
  std::uint64_t judged_ = 0;
};

image blank() {
  return image(catalogue::reserved_bytes);
}
image random_data(std::mt19937_64& random) {
  image content = blank();
  for (char& c : content) c = static_cast<char>(random());
  return content;
}
image damaged_catalogue(std::mt19937_64& random) {
  image content = random_data(random);
  for (std::uint64_t const at : {std::uint64_t{0}, catalogue::copy_bytes}) std::memcpy(&content[at], "FOREBAYC", 8);
  return content;
}

/// Each kind of change, from tables of one block and of several, in both copies. Returns the first fault.
std::string explore(std::uint64_t seed, bug has) {
  std::mt19937_64 random(seed);
  exploration all(seed);
  for (auto const& [content, damaged] :
       {std::pair{blank(), false}, {random_data(random), false}, {damaged_catalogue(random), true}}) {
    for (std::string const& name : {std::string("short"), long_name('l')}) {
      all.cut(cut_drive(content, has, damaged), create(name));
    }
  }
  cut_drive drive(blank(), has);
  for (change const& step :
       {create("a"), create("b"), import("c", 5, false), create(long_name('d')), import(long_name('e'), mib, false),
        import(long_name('e'), 2 * mib, true), import("c", 7, true), remove("b"), remove(long_name('d')),
        remove(long_name('e')), remove("c"), remove("a")}) {
    all.cut(drive, step);
    EXPECT_TRUE(drive.run(step.make));
    if (!all.fault().empty()) return all.fault();
  }
  std::printf("  judged %llu images\n", static_cast<unsigned long long>(all.judged()));
  return all.fault();
}

TEST(catalogue_cuts, leave_the_old_table_or_the_new_one_whole) {
  std::uint64_t const seed = test_seed();
  EXPECT_EQ(explore(seed, bug::none), "") << replay(seed);
}

TEST(catalogue_cuts, find_each_bug) {
  std::uint64_t const seed = test_seed();
  for (bug const has : {bug::flushes_nothing, bug::flushes_only_its_own, bug::writes_one_copy, bug::has_no_mark}) {
    EXPECT_NE(explore(seed, has), "") << "bug " << static_cast<int>(has) << "; " << replay(seed);
  }
}

TEST(catalogue_cuts, of_a_table_of_many_blocks) {
  std::uint64_t const seed = test_seed();
  cut_drive drive(blank());
  EXPECT_TRUE(drive.run([](catalogue& c) {
    for (char name = 'a'; name <= 'z'; ++name) c.create(long_name(name), mib);
  }));
  exploration all(seed);
  all.cut(drive, create("one more"));
  EXPECT_EQ(all.fault(), "") << replay(seed);
}

/// The program goes on, and knows that its change failed.
TEST(catalogue_cuts, of_the_change_after_one_whose_flush_failed) {
  std::mt19937_64 random(1);
  for (std::uint64_t fails_at = 0;; ++fails_at) {
    cut_drive drive(blank());
    ASSERT_TRUE(drive.run(create(long_name('o')).make));
    catalogue old = *load(drive.content(), false);
    catalogue given_up = old;
    given_up.create("given up", mib);
    if (drive.store(given_up, fails_at)) break;
    drive.forget_the_dead();
    std::string const kept = text_of(old.extents()), not_kept = text_of(given_up.extents());
    old.catch_up(*load(drive.content(), false), given_up);
    ASSERT_EQ(text_of(old.extents()), kept);
    old.create("new", mib);
    std::string const wanted = text_of(old.extents());
    bool returned = false;
    for (std::uint64_t step = 0; !returned; ++step) {
      cut_drive cut = drive;
      catalogue table = old;
      returned = cut.store(table, step);
      cut.for_each_loss(random, [&](image const& left) {
        std::string const found = table_in(left, false);
        EXPECT_TRUE(found == wanted || (!returned && (found == kept || found == not_kept)))
            << "failed at step " << fails_at << ", cut at " << step << ": " << found;
      });
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace forebay
