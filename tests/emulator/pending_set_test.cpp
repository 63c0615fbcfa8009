// SPDX-License-Identifier: Apache-2.0
//! \file
//! The set of commands in flight against a plain map, by one thread and by teams of lanes.
#include "forebay/detail/emulator/pending_set.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "support/schedules.hpp"

namespace forebay::emulator {
namespace {

constexpr std::uint32_t largest = 1024;

/// A random life of one set. The first lane draws each step and knows what the set must hold; all lanes of the team
/// carry the step out together.
template <class M>
class life {
 public:
  life(std::uint64_t seed, std::uint32_t commands, std::uint32_t steps)
      : random_(seed),
        commands_(commands),
        steps_(steps),
        storage_(pending_set<M>::storage_bytes(commands) / 8, 0xcdcdcdcdcdcdcdcdu) {}

  /// The first error; empty if there was none.
  std::string const& failure() const { return failure_; }

  void operator()() {
    auto const lanes = simt::team<M>::here();
    begin(lanes);
    for (std::uint32_t step = 0; step < steps_; ++step) {
      if (lanes.leader()) draw();
      lanes.sync();
      switch (what_) {
        case step_kind::add:
          add(lanes);
          break;
        case step_kind::take:
          take(lanes);
          break;
        case step_kind::change:
          change(lanes);
          break;
        case step_kind::begin_again:
          begin(lanes);
          break;
      }
      if (lanes.any(lanes.leader() && !failure_.empty())) return;
    }
    drain(lanes);
  }

 private:
  using team = simt::team<M>;
  enum class step_kind { add, take, change, begin_again };
  struct held {
    std::uint64_t due_ps;
    pending_command command;
  };
  struct visit {
    std::uint32_t count = 0;
    std::uint32_t position = 0;
    std::uint64_t due_ps = 0;
    pending_command command;
  };

  void expect(bool holds, std::string const& what) {
    if (!holds && failure_.empty()) failure_ = what + ", after " + std::to_string(numbers_) + " commands";
  }
  static bool same(pending_command const& a, pending_command const& b) {
    return a.command_id == b.command_id && a.status_field == b.status_field && a.flags == b.flags;
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void begin(team const& lanes) {
    lanes.sync();
    if (lanes.leader()) {
      model_.clear();
      cursor_ = 0;
      exact_ = true;
    }
    set_.start(lanes, storage_.data(), commands_);
    if (lanes.leader()) compare();
    lanes.sync();
  }

  void draw() {
    std::uint64_t const kind = below(200);
    what_ = kind < 95    ? step_kind::add
            : kind < 190 ? step_kind::take
            : kind < 198 ? step_kind::change
                         : step_kind::begin_again;
    now_ps_ += below(3) == 0 ? below(1000) : 0;
    visits_.fill({});
    if (what_ == step_kind::add) {
      std::uint32_t const free = set_.free();
      count_ = static_cast<std::uint32_t>(below(8) == 0 ? below(free + 1) : below(std::min(32u, free) + 1));
      spread_ps_ = below(4) == 0 ? 1 : 1 + below(2000);
      for (std::uint32_t i = 0; i < count_; ++i) {
        std::uint64_t const early = below(10) == 0 ? now_ps_ / 2 : now_ps_;  // some are due before they come
        due_ps_[i] = below(20) == 0 ? never_ps : early + below(spread_ps_);
        entered_[i] = {static_cast<std::uint16_t>(numbers_ + i), static_cast<std::uint16_t>(below(0x8000)),
                       static_cast<std::uint32_t>(random_())};
      }
    } else {
      std::uint64_t const size = below(4);
      room_ = size == 0 ? 0 : static_cast<std::uint32_t>(size == 1 ? below(8) : size == 2 ? below(64) : largest);
      salt_ = random_();
      refuses_ = below(3) == 0;
    }
  }

  /// Whether `ready` says no, or `change` changes a command: the same answer for every caller.
  bool chosen(pending_command const& command) const { return (mix(salt_ ^ command.command_id) & 3) == 0; }
  std::uint64_t later_ps() const { return now_ps_ + 1 + salt_ % 500; }

  void add(team const& lanes) {
    set_.reserve(lanes, count_, slots_.data());
    std::uint64_t first_ps = never_ps;
    for (std::uint32_t i = lanes.rank(); i < count_; i += lanes.count()) {
      set_.insert(slots_[i], due_ps_[i], entered_[i]);
      first_ps = std::min(first_ps, due_ps_[i]);
    }
    set_.settle(lanes, count_, slots_.data(), lanes.min(first_ps));
    if (lanes.leader()) {
      for (std::uint32_t i = 0; i < count_; ++i) {
        std::uint32_t const slot = slots_[i];
        expect(slot < set_.capacity(), "a slot exists");
        expect(model_.count(slot) == 0, "a reserved slot was vacant");
        model_[slot] = {due_ps_[i], entered_[i]};
        ++numbers_;
        // Slots go round: the next vacant one after the last one taken is taken.
        for (; cursor_ != slot && failure_.empty(); cursor_ = (cursor_ + 1) % set_.capacity()) {
          expect(model_.count(cursor_) != 0, "slots are taken in turn");
        }
        cursor_ = (slot + 1) % set_.capacity();
      }
      compare();
    }
    lanes.sync();
  }

  void take(team const& lanes) {
    std::uint32_t const taken = set_.take_due(
        lanes, now_ps_, room_,
        [&](std::uint32_t, std::uint64_t& due_ps, pending_command& command) {
          ++asked_[command.command_id];
          if (!refuses_ || !chosen(command)) return true;
          due_ps = later_ps();
          return false;
        },
        [&](std::uint32_t position, std::uint32_t slot, std::uint64_t due_ps, pending_command const& command) {
          visits_[slot] = {visits_[slot].count + 1, position, due_ps, command};
        });
    lanes.sync();
    if (lanes.leader()) {
      // The longest there first: from the slot after the newest, once round.
      std::uint32_t went = 0;
      for (std::uint32_t i = 0; i < set_.capacity(); ++i) {
        std::uint32_t const slot = (cursor_ + i) % set_.capacity();
        visit const& seen = visits_[slot];
        auto const it = model_.find(slot);
        if (it == model_.end() || it->second.due_ps > now_ps_) {
          expect(seen.count == 0, "nothing goes before its time");
          continue;
        }
        held& mine = it->second;
        std::uint32_t const asked = std::exchange(asked_[mine.command.command_id], 0);
        expect(asked == 1 || (asked == 0 && went == room_), "a command that is due is asked once");
        bool const refuses = refuses_ && chosen(mine.command);
        if (refuses && asked != 0) mine.due_ps = later_ps();
        if (refuses || went == room_) {
          expect(seen.count == 0, "a command stays that is not ready or has no room");
          continue;
        }
        expect(seen.count == 1, "a command that is due goes once");
        expect(seen.position == went, "the longest there goes first");
        expect(seen.due_ps == mine.due_ps, "a command keeps its due time");
        expect(same(seen.command, mine.command), "a command keeps what is posted for it");
        model_.erase(it);
        ++went;
      }
      expect(taken == went, "how many went");
      // Without room, groups were not looked at and may seem to be due earlier than they are.
      exact_ = went < room_;
      compare();
    }
    lanes.sync();
  }

  void change(team const& lanes) {
    set_.for_each(lanes, [&](std::uint32_t slot, std::uint64_t& due_ps, pending_command& command) {
      visits_[slot] = {visits_[slot].count + 1, 0, due_ps, command};
      if (!chosen(command)) return;
      due_ps = later_ps();
      command.status_field ^= 0x55;
    });
    lanes.sync();
    if (lanes.leader()) {
      for (std::uint32_t slot = 0; slot < set_.capacity(); ++slot) {
        visit const& seen = visits_[slot];
        auto const it = model_.find(slot);
        expect(seen.count == (it == model_.end() ? 0u : 1u), "each command is visited once");
        if (it == model_.end()) continue;
        held& mine = it->second;
        expect(seen.due_ps == mine.due_ps && same(seen.command, mine.command), "a visit shows the command");
        if (!chosen(mine.command)) continue;
        mine.due_ps = later_ps();
        mine.command.status_field ^= 0x55;
      }
      exact_ = true;
      compare();
    }
    lanes.sync();
  }

  /// Everything comes out, even what is never due, and then every slot is vacant.
  void drain(team const& lanes) {
    std::uint32_t const wanted = set_.size();
    std::uint32_t taken = 0;
    while (taken < wanted) {
      std::uint32_t const now = set_.take_due(
          lanes, never_ps, 64, [](std::uint32_t, std::uint64_t&, pending_command&) { return true; },
          [](std::uint32_t, std::uint32_t, std::uint64_t, pending_command const&) {});
      if (now == 0) break;
      taken += now;
    }
    set_.reserve(lanes, set_.free(), slots_.data());
    if (lanes.leader()) {
      expect(taken == wanted, "the set can be emptied");
      expect(set_.free() == 0, "a full set has no room");
      std::vector<std::uint32_t> all(slots_.begin(), slots_.begin() + set_.capacity());
      std::sort(all.begin(), all.end());
      for (std::uint32_t i = 0; i < set_.capacity(); ++i) expect(all[i] == i, "each slot can be had once");
    }
    lanes.sync();
  }

  void compare() {
    expect(set_.capacity() >= commands_ && set_.capacity() < commands_ + 32, "capacity");
    expect(set_.size() == model_.size(), "size");
    expect(set_.free() == set_.capacity() - set_.size(), "free");
    expect(set_.empty() == model_.empty(), "empty");
    std::uint64_t next_ps = never_ps;
    for (auto const& [slot, mine] : model_) next_ps = std::min(next_ps, mine.due_ps);
    expect(set_.next_due_ps() <= next_ps, "next_due_ps is not late");
    expect(!exact_ || set_.next_due_ps() == next_ps, "next_due_ps is when the first becomes due");
  }

  std::mt19937_64 random_;
  std::uint32_t commands_;
  std::uint32_t steps_;
  std::vector<std::uint64_t> storage_;
  std::string failure_;

  // What the lanes share.
  pending_set<M> set_;
  step_kind what_ = step_kind::add;
  std::uint64_t now_ps_ = 1000;
  std::uint32_t count_ = 0;
  std::uint32_t room_ = 0;
  std::uint64_t spread_ps_ = 1;
  std::uint64_t salt_ = 0;
  bool refuses_ = false;
  std::array<std::uint64_t, largest> due_ps_;
  std::array<pending_command, largest> entered_;
  std::array<std::uint32_t, largest> slots_;
  std::array<visit, largest> visits_;                                     // by slot
  std::vector<std::uint32_t> asked_ = std::vector<std::uint32_t>(65536);  // by command id

  // What the set must hold, by slot.
  std::map<std::uint32_t, held> model_;
  bool exact_ = true;
  std::uint64_t numbers_ = 0;
  std::uint32_t cursor_ = 0;
};

constexpr std::uint32_t sizes[] = {1, 32, 33, 64, 100, 256, 1000, 1024};

TEST(pending_set, agrees_with_a_map) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  for (std::uint64_t i = 0; i < 40; ++i) {
    life<simt::native> one(seed + i, sizes[i % std::size(sizes)], 2000);
    one();
    ASSERT_EQ(one.failure(), "") << sizes[i % std::size(sizes)] << " commands, life " << i;
  }
}

class pending_set_of_a_team : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(lanes, pending_set_of_a_team, ::testing::Values(1u, 2u, 5u, 32u));

TEST_P(pending_set_of_a_team, agrees_with_a_map) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  for (std::uint64_t i = 0; i < 24; ++i) {
    life<simt::fiber> one(seed + i, sizes[i % std::size(sizes)], 60);
    testing::on_team(GetParam(), seed + i, [&] { one(); });
    ASSERT_EQ(one.failure(), "") << sizes[i % std::size(sizes)] << " commands, life " << i;
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace forebay::emulator
