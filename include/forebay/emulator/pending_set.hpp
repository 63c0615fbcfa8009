// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands of one submission queue that were fetched and not completed, in groups of 32 slots, each with the time at
//! which its first command becomes due. Fixed capacity, no order: a command that takes long holds up no other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/emulator/timing_model.hpp"
#include "forebay/simt/team.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

/// What is posted for a command, and how.
struct pending_command {
  static constexpr std::uint32_t timed = 1;           ///< its lateness says something about the engine
  static constexpr std::uint32_t held = 2;            ///< moves its data just before it completes
  static constexpr std::uint32_t waits_for_sync = 4;  ///< a Flush that needs the host to write back first

  std::uint16_t command_id = 0;
  std::uint16_t status_field = 0;
  std::uint32_t flags = 0;  ///< the above; with `waits_for_sync`, the low 24 bits of the ticket in 31:8
};

/// Owned by one team, whose lanes all call each member together. What a lane stored before the team's `sync` the others
/// see after it.
template <class M>
class pending_set {
 public:
  using team = simt::team<M>;
  static constexpr std::uint32_t group_slots = 32;

  /// Bytes of storage, to be zeroed, for at least `commands` in flight.
  static constexpr std::size_t storage_bytes(std::uint32_t commands) {
    std::uint32_t const groups = (commands + group_slots - 1) / group_slots;
    return std::size_t{groups} * sizeof(group);
  }

  pending_set() = default;
  /// `storage`: as `storage_bytes` says. Groups that an earlier set used are emptied by `clear`.
  FOREBAY_DEVICE pending_set(void* storage, std::uint32_t commands)
      : groups_(static_cast<group*>(storage)), group_count_((commands + group_slots - 1) / group_slots) {}

  FOREBAY_DEVICE std::uint32_t capacity() const { return group_count_ * group_slots; }
  FOREBAY_DEVICE std::uint32_t size() const { return now_.size; }
  FOREBAY_DEVICE std::uint32_t free() const { return capacity() - now_.size; }
  FOREBAY_DEVICE bool empty() const { return now_.size == 0; }
  /// When the first command becomes due; `never_ps` when none ever will.
  FOREBAY_DEVICE std::uint64_t next_due_ps() const { return now_.next_due_ps; }

  FOREBAY_DEVICE void clear(team const& lanes) {
    for (std::uint32_t g = lanes.rank(); g < group_count_; g += lanes.count()) {
      groups_[g].occupied = 0;
      groups_[g].first_due_ps = never_ps;
    }
    keep(lanes, {});
  }

  /// Gives `count` commands (at most `free()`) a slot each, in `slots`, which the lanes share. `insert` follows.
  FOREBAY_DEVICE void reserve(team const& lanes, std::uint32_t count, std::uint32_t* slots) {
    summary now = now_;
    for (std::uint32_t done = 0; done < count;) {
      std::uint32_t const g = now.cursor / group_slots;
      std::uint32_t const vacant = ~groups_[g].occupied & from(now.cursor);
      std::uint32_t const here = team::ones(vacant);
      std::uint32_t const taken = here < count - done ? here : count - done;
      for (std::uint32_t i = lanes.rank(); i < taken; i += lanes.count()) {
        slots[done + i] = g * group_slots + nth_one(vacant, i);
      }
      lanes.sync();
      std::uint32_t const end = taken == 0 ? group_slots : nth_one(vacant, taken - 1) + 1;
      if (taken != 0 && lanes.leader()) groups_[g].occupied |= vacant & (end == group_slots ? ~0u : ~from(end));
      lanes.sync();
      done += taken;
      now.cursor = g * group_slots + (done < count ? group_slots : end);
      if (now.cursor == capacity()) now.cursor = 0;
    }
    now.size += count;
    keep(lanes, now);
  }

  /// Enters `command` into a reserved slot. Called by one lane for each slot; `settle` follows.
  FOREBAY_DEVICE void insert(std::uint32_t slot, std::uint64_t due_ps, pending_command const& command) {
    group& to = groups_[slot / group_slots];
    to.due_ps[slot % group_slots] = due_ps;
    to.command[slot % group_slots] = command;
  }

  /// Takes the commands into account that were inserted in `slots`, due at `first_due_ps` or later.
  FOREBAY_DEVICE void settle(team const& lanes, std::uint32_t count, std::uint32_t const* slots,
                             std::uint64_t first_due_ps) {
    std::uint32_t before = ~0u;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t const g = slots[i] / group_slots;
      if (g == before) continue;
      before = g;
      if (lanes.leader() && first_due_ps < groups_[g].first_due_ps) groups_[g].first_due_ps = first_due_ps;
    }
    summary now = now_;
    if (first_due_ps < now.next_due_ps) now.next_due_ps = first_due_ps;
    keep(lanes, now);
  }

  /// Takes out commands that are due at `now_ps`, at most `room`, the longest there first. For each, one lane calls
  /// `ready(due_ps, command)`; if that is false the command stays, due at what `due_ps` was set to. For those that go a
  /// lane calls `take(position, slot, due_ps, command)`, positions counting from 0. Returns how many went.
  template <class Ready, class Take>
  FOREBAY_DEVICE std::uint32_t take_due(team const& lanes, std::uint64_t now_ps, std::uint32_t room, Ready&& ready,
                                        Take&& take) {
    summary now = now_;
    std::uint32_t taken = 0;
    std::uint64_t next_ps = never_ps;
    // The group of the cursor comes twice: its slots from the cursor on are the oldest, those before it the newest.
    std::uint32_t const first_group = now.cursor / group_slots;
    std::uint32_t const older = from(now.cursor);
    std::uint32_t const parts = older == ~0u ? group_count_ : group_count_ + 1;
    for (std::uint32_t first = 0; first < parts; first += lanes.count()) {
      std::uint32_t const mine = first + lanes.rank();
      std::uint64_t first_due_ps = mine < parts ? groups_[group_of(first_group, mine)].first_due_ps : never_ps;
      std::uint32_t due_parts = lanes.ballot(first_due_ps <= now_ps && mine < parts);
      while (due_parts != 0 && taken < room) {
        std::uint32_t const lane = team::lowest(due_parts);
        std::uint32_t const part = first + lane;
        due_parts &= due_parts - 1;
        std::uint32_t const slots = part == 0 ? older : part == group_count_ ? ~older : ~0u;
        std::uint64_t const left_ps =
            take_from(lanes, group_of(first_group, part), slots, now_ps, room, taken, ready, take);
        if (lanes.rank() == lane) first_due_ps = left_ps;
      }
      // What is left of the first group is known when its second part was looked at.
      if (mine == 0 && parts > group_count_) first_due_ps = never_ps;
      next_ps = first_due_ps < next_ps ? first_due_ps : next_ps;
    }
    now.size -= taken;
    now.next_due_ps = lanes.min(next_ps);
    keep(lanes, now);
    return taken;
  }

  /// Calls `change(slot, due_ps, command)`, by one lane each, for all commands; what it changes is kept. For rare
  /// events: it looks at every slot.
  template <class Change>
  FOREBAY_DEVICE void for_each(team const& lanes, Change&& change) {
    summary now = now_;
    std::uint64_t next_ps = never_ps;
    for (std::uint32_t g = lanes.rank(); g < group_count_; g += lanes.count()) {
      group& in = groups_[g];
      std::uint64_t first_due_ps = never_ps;
      for (std::uint32_t rest = in.occupied; rest != 0; rest &= rest - 1) {
        std::uint32_t const i = team::lowest(rest);
        change(g * group_slots + i, in.due_ps[i], in.command[i]);
        if (in.due_ps[i] < first_due_ps) first_due_ps = in.due_ps[i];
      }
      in.first_due_ps = first_due_ps;
      if (first_due_ps < next_ps) next_ps = first_due_ps;
    }
    now.next_due_ps = lanes.min(next_ps);
    keep(lanes, now);
  }

 private:
  struct group {
    std::uint64_t due_ps[group_slots];
    pending_command command[group_slots];
    std::uint64_t first_due_ps;
    std::uint32_t occupied;
    std::uint32_t unused;
  };

  /// Position of the `n`th (from 0) one of `mask`, which has more than `n`.
  FOREBAY_DEVICE static std::uint32_t nth_one(std::uint32_t mask, std::uint32_t n) {
    if (mask == ~0u) return n;
    for (; n != 0; --n) mask &= mask - 1;
    return team::lowest(mask);
  }

  FOREBAY_DEVICE static std::uint32_t from(std::uint32_t slot) { return ~0u << slot % group_slots; }
  FOREBAY_DEVICE std::uint32_t group_of(std::uint32_t first_group, std::uint32_t part) const {
    std::uint32_t const g = first_group + (part == group_count_ ? 0 : part);
    return g < group_count_ ? g : g - group_count_;
  }

  /// `take_due` in those of a group's slots that `slots` has. When the first command that is left in the group becomes
  /// due.
  template <class Ready, class Take>
  FOREBAY_DEVICE std::uint64_t take_from(team const& lanes, std::uint32_t index, std::uint32_t slots,
                                         std::uint64_t now_ps, std::uint32_t room, std::uint32_t& taken, Ready&& ready,
                                         Take&& take) {
    group& in = groups_[index];
    std::uint32_t const occupied = in.occupied;
    std::uint32_t gone = 0;
    std::uint64_t left_ps = never_ps;
    for (std::uint32_t first = 0; first < group_slots; first += lanes.count()) {
      std::uint32_t const i = first + lanes.rank();
      bool const exists = i < group_slots;
      // Not only where a command is: so that it need not wait for `occupied`.
      std::uint64_t const stored_ps = exists ? in.due_ps[i] : never_ps;
      pending_command command = exists ? in.command[i] : pending_command{};
      bool const here = exists && (occupied >> i & 1) != 0;
      std::uint64_t due_ps = here ? stored_ps : never_ps;
      bool due = here && due_ps <= now_ps && (slots >> i & 1) != 0;
      if (due && !ready(due_ps, command)) {
        in.due_ps[i] = due_ps;
        due = false;
      }
      std::uint32_t const due_lanes = lanes.ballot(due);
      std::uint32_t const position = taken + team::ones(due_lanes & ((1u << lanes.rank()) - 1));
      bool const goes = due && position < room;
      if (goes) take(position, index * group_slots + i, due_ps, command);
      if (here && !goes && due_ps < left_ps) left_ps = due_ps;
      std::uint32_t const going = lanes.ballot(goes);
      gone |= going << first;
      taken += team::ones(going);
    }
    left_ps = lanes.min(left_ps);
    lanes.sync();
    if (lanes.leader()) {
      in.occupied = occupied & ~gone;
      in.first_due_ps = left_ps;
    }
    lanes.sync();  // the next part may be of the same group
    return left_ps;
  }

  struct summary {
    std::uint32_t size = 0;
    std::uint32_t cursor = 0;  ///< the slot from which on the next command looks for a vacant one
    std::uint64_t next_due_ps = never_ps;
  };
  /// Ends a member: all lanes have read what `now_` was, and see what it is.
  FOREBAY_DEVICE void keep(team const& lanes, summary const& now) {
    lanes.sync();
    if (lanes.leader()) now_ = now;
    lanes.sync();
  }

  group* groups_ = nullptr;
  std::uint32_t group_count_ = 0;
  summary now_;
};

}  // namespace forebay::emulator
