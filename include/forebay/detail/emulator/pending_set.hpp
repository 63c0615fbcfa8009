// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands of one submission queue that were fetched and not completed, in groups of 32 slots. Each group has the time
//! at which its first command becomes due. The capacity is fixed, and there is no order: a command that takes long
//! delays no other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// What is posted for a command, and how.
struct pending_command {
  static constexpr std::uint32_t timed = 1;           ///< its lateness says something about the engine
  static constexpr std::uint32_t held = 2;            ///< moves its data just before it completes
  static constexpr std::uint32_t waits_for_sync = 4;  ///< a Flush that needs the host to write back first
  static constexpr std::uint32_t in_medium = 8;       ///< not due before the drive's medium is done with it
  static constexpr std::uint32_t lags = 16;           ///< `held`, and moves its data after its completion

  std::uint16_t command_id = 0;
  std::uint16_t status_field = 0;
  std::uint32_t flags = 0;  ///< the above; with `waits_for_sync`, the low 24 bits of the ticket in 31:8
};

/// Only one team at a time may use it; all its lanes call each member together. What a lane stored before the team's
/// `sync`, the others see after it. For the first few groups, the object itself holds which are in use and when they
/// become due: a look through an object in a GPU's shared memory then takes no access to the GPU's memory.
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

  FOREBAY_DEVICE std::uint32_t capacity() const { return group_count_ * group_slots; }
  FOREBAY_DEVICE std::uint32_t size() const { return size_; }
  FOREBAY_DEVICE std::uint32_t free() const { return capacity() - size_; }
  FOREBAY_DEVICE bool empty() const { return size_ == 0; }
  /// When the first command becomes due; `never_ps` if none ever will. For a team that does not hold the set, a hint.
  FOREBAY_DEVICE std::uint64_t next_due_ps() const {
    // Relaxed: a caller that acts on it takes the set first.
    return simt::atomic<M, simt::scope::block>(next_due_ps_).load(simt::order::relaxed);
  }

  /// Starts anew, empty, in `storage`, as `storage_bytes` says; it may contain what an earlier set left. Others may
  /// call `next_due_ps` meanwhile, and nothing else.
  FOREBAY_DEVICE void start(team const& lanes, void* storage, std::uint32_t commands) {
    lanes.sync();
    if (lanes.leader()) {
      groups_ = static_cast<group*>(storage);
      group_count_ = (commands + group_slots - 1) / group_slots;
    }
    lanes.sync();
    for (std::uint32_t g = lanes.rank(); g < group_count_; g += lanes.count()) state_of(g) = {};
    keep(lanes, 0, 0, never_ps);
  }

  /// Gives `count` commands (at most `free()`) a slot each, in `slots`, which the lanes share. `insert` follows.
  FOREBAY_DEVICE void reserve(team const& lanes, std::uint32_t count, std::uint32_t* slots) {
    std::uint32_t cursor = cursor_;
    for (std::uint32_t done = 0; done < count;) {
      std::uint32_t const g = cursor / group_slots;
      std::uint32_t const occupied = state_of(g).occupied;
      std::uint32_t const vacant = ~occupied & from(cursor);
      std::uint32_t const here = team::ones(vacant);
      std::uint32_t const taken = here < count - done ? here : count - done;
      std::uint32_t const going = number(lanes, vacant, taken, g * group_slots, slots + done);
      lanes.sync();
      if (taken != 0 && lanes.leader()) state_of(g).occupied = occupied | going;
      lanes.sync();
      done += taken;
      cursor = g * group_slots + (done < count ? group_slots : team::highest(going) + 1);
      if (cursor == capacity()) cursor = 0;
    }
    keep(lanes, size_ + count, cursor, next_due_ps());
  }

  /// Enters `command` into a reserved slot. Called by one lane for each slot; `settle` follows.
  FOREBAY_DEVICE void insert(std::uint32_t slot, std::uint64_t due_ps, pending_command const& command) {
    group& to = groups_[slot / group_slots];
    to.due_ps[slot % group_slots] = due_ps;
    to.command[slot % group_slots] = command;
  }

  /// Takes into account the commands that were inserted in `slots`, which become due at `first_due_ps` or later.
  FOREBAY_DEVICE void settle(team const& lanes, std::uint32_t count, std::uint32_t const* slots,
                             std::uint64_t first_due_ps) {
    for (std::uint32_t i = lanes.rank(); i < count; i += lanes.count()) {
      std::uint32_t const g = slots[i] / group_slots;
      // One lane for each group. `reserve` goes around once, so only the first group can come a second time.
      if (i != 0 && (slots[i - 1] / group_slots == g || slots[0] / group_slots == g)) continue;
      if (first_due_ps < state_of(g).first_due_ps) state_of(g).first_due_ps = first_due_ps;
    }
    std::uint64_t const next_ps = next_due_ps();
    keep(lanes, size_, cursor_, first_due_ps < next_ps ? first_due_ps : next_ps);
  }

  /// Takes out the commands that are due at `now_ps`, at most `room`, those that have been there longest first. For
  /// each, one lane calls `ready(slot, due_ps, command)`; if that returns false, the command stays, and is due at the
  /// time to which `due_ps` was set. For each command that leaves, a lane calls `take(position, slot, due_ps,
  /// command)`; positions count from 0. Returns how many left.
  template <class Ready, class Take>
  FOREBAY_DEVICE std::uint32_t take_due(team const& lanes, std::uint64_t now_ps, std::uint32_t room, Ready&& ready,
                                        Take&& take) {
    std::uint32_t taken = 0;
    std::uint64_t next_ps = never_ps;
    // The group of the cursor comes twice: its slots from the cursor on are the oldest, those before it the newest.
    std::uint32_t const first_group = cursor_ / group_slots;
    std::uint32_t const older = from(cursor_);
    std::uint32_t const parts = older == ~0u ? group_count_ : group_count_ + 1;
    for (std::uint32_t first = 0; first < parts; first += lanes.count()) {
      std::uint32_t const mine = first + lanes.rank();
      std::uint64_t first_due_ps = mine < parts ? state_of(group_of(first_group, mine)).first_due_ps : never_ps;
      std::uint32_t due_parts = lanes.ballot(first_due_ps <= now_ps && mine < parts);
      entry ahead;
      if (due_parts != 0) ahead = load(group_of(first_group, first + team::lowest(due_parts)), lanes.rank());
      while (due_parts != 0 && taken < room) {
        std::uint32_t const lane = team::lowest(due_parts);
        std::uint32_t const part = first + lane;
        std::uint32_t const g = group_of(first_group, part);
        due_parts &= due_parts - 1;
        entry const loaded = ahead;
        // The load of the next group is under way while this one is worked on, unless it is the same group, which may
        // change.
        std::uint32_t const next = due_parts != 0 ? group_of(first_group, first + team::lowest(due_parts)) : g;
        if (next != g) ahead = load(next, lanes.rank());
        std::uint32_t const slots = part == 0 ? older : part == group_count_ ? ~older : ~0u;
        std::uint64_t const left_ps = take_from(lanes, g, slots, loaded, now_ps, room, taken, ready, take);
        if (lanes.rank() == lane) first_due_ps = left_ps;
        if (next == g && due_parts != 0) ahead = load(next, lanes.rank());
      }
      // The rest of the first group is known only when its second part has been looked at.
      if (mine == 0 && parts > group_count_) first_due_ps = never_ps;
      next_ps = first_due_ps < next_ps ? first_due_ps : next_ps;
    }
    keep(lanes, size_ - taken, cursor_, lanes.min(next_ps));
    return taken;
  }

  /// Calls `change(due_ps, command)` for the command in a slot, by one lane, and keeps the changes.
  template <class Change>
  FOREBAY_DEVICE void change(team const& lanes, std::uint32_t slot, Change&& change) {
    group& in = groups_[slot / group_slots];
    group_state& state = state_of(slot / group_slots);
    std::uint64_t due_ps = never_ps;
    lanes.sync();
    if (lanes.leader()) {
      change(in.due_ps[slot % group_slots], in.command[slot % group_slots]);
      due_ps = in.due_ps[slot % group_slots];
      if (due_ps < state.first_due_ps) state.first_due_ps = due_ps;
    }
    due_ps = lanes.min(due_ps);
    std::uint64_t const next_ps = next_due_ps();
    keep(lanes, size_, cursor_, due_ps < next_ps ? due_ps : next_ps);
  }

  /// Calls `change(slot, due_ps, command)` for all commands, by one lane each, and keeps the changes. It looks at every
  /// slot, so it is for rare events.
  template <class Change>
  FOREBAY_DEVICE void for_each(team const& lanes, Change&& change) {
    std::uint64_t next_ps = never_ps;
    for (std::uint32_t g = lanes.rank(); g < group_count_; g += lanes.count()) {
      group& in = groups_[g];
      std::uint64_t first_due_ps = never_ps;
      for (std::uint32_t rest = state_of(g).occupied; rest != 0; rest &= rest - 1) {
        std::uint32_t const i = team::lowest(rest);
        change(g * group_slots + i, in.due_ps[i], in.command[i]);
        if (in.due_ps[i] < first_due_ps) first_due_ps = in.due_ps[i];
      }
      state_of(g).first_due_ps = first_due_ps;
      if (first_due_ps < next_ps) next_ps = first_due_ps;
    }
    keep(lanes, size_, cursor_, lanes.min(next_ps));
  }

 private:
  static constexpr std::uint32_t near_groups = 32;

  /// The state of a group: its occupied slots, and when the first of their commands becomes due.
  struct group_state {
    std::uint64_t first_due_ps = never_ps;
    std::uint32_t occupied = 0;
    std::uint32_t unused = 0;
  };
  struct group {
    std::uint64_t due_ps[group_slots];
    pending_command command[group_slots];
    group_state far;
  };

  FOREBAY_DEVICE group_state& state_of(std::uint32_t g) { return g < near_groups ? near_[g] : groups_[g].far; }

  /// Numbers the first `count` ones of `vacant`: slot `base` + position of the nth goes to `slots[n]`. Returns which
  /// ones.
  FOREBAY_DEVICE static std::uint32_t number(team const& lanes, std::uint32_t vacant, std::uint32_t count,
                                             std::uint32_t base, std::uint32_t* slots) {
    std::uint32_t going = 0;
    if constexpr (M::lanes_are_alone) {
      for (std::uint32_t n = 0; n < count; ++n, vacant &= vacant - 1) {
        std::uint32_t const i = team::lowest(vacant);
        slots[n] = base + i;
        going |= 1u << i;
      }
    } else {
      for (std::uint32_t first = 0; first < group_slots; first += lanes.count()) {
        std::uint32_t const i = first + lanes.rank();
        bool const is_vacant = i < group_slots && (vacant >> i & 1) != 0;
        std::uint32_t const n = is_vacant ? team::ones(vacant & ((1u << i) - 1)) : count;
        if (n < count) slots[n] = base + i;
        going |= lanes.ballot(n < count) << first;
      }
    }
    return going;
  }

  FOREBAY_DEVICE static std::uint32_t from(std::uint32_t slot) { return ~0u << slot % group_slots; }
  FOREBAY_DEVICE std::uint32_t group_of(std::uint32_t first_group, std::uint32_t part) const {
    std::uint32_t const g = first_group + (part == group_count_ ? 0 : part);
    return g < group_count_ ? g : g - group_count_;
  }

  struct entry {
    std::uint64_t due_ps = never_ps;
    pending_command command;
  };
  /// Loads what lies in a slot, whether or not it is occupied, so that the load need not wait for the answer to that.
  FOREBAY_DEVICE entry load(std::uint32_t index, std::uint32_t i) const {
    if (i >= group_slots) return {};
    group const& from = groups_[index];
    return {from.due_ps[i], from.command[i]};
  }

  /// `take_due` for those of a group's slots that are in `slots`; `loaded` is what the lane loaded first. Returns when
  /// the first command that is left in the group becomes due.
  template <class Ready, class Take>
  FOREBAY_DEVICE std::uint64_t take_from(team const& lanes, std::uint32_t index, std::uint32_t slots,
                                         entry const& loaded, std::uint64_t now_ps, std::uint32_t room,
                                         std::uint32_t& taken, Ready&& ready, Take&& take) {
    group& in = groups_[index];
    std::uint32_t const occupied = state_of(index).occupied;
    std::uint32_t gone = 0;
    std::uint64_t left_ps = never_ps;
    for (std::uint32_t first = 0; first < group_slots; first += lanes.count()) {
      std::uint32_t const i = first + lanes.rank();
      entry const there = first == 0 ? loaded : load(index, i);
      pending_command command = there.command;
      bool const here = i < group_slots && (occupied >> i & 1) != 0;
      std::uint64_t due_ps = here ? there.due_ps : never_ps;
      bool due = here && due_ps <= now_ps && (slots >> i & 1) != 0;
      if (due && !ready(index * group_slots + i, due_ps, command)) {
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
    if (lanes.leader()) state_of(index) = {left_ps, occupied & ~gone};
    lanes.sync();  // the next part may be of the same group
    return left_ps;
  }

  /// Ends a member function: all lanes have read the old state, and see the new one.
  FOREBAY_DEVICE void keep(team const& lanes, std::uint32_t size, std::uint32_t cursor, std::uint64_t next_due_ps) {
    lanes.sync();
    if (lanes.leader()) {
      size_ = size;
      cursor_ = cursor;
      // Relaxed: as in `next_due_ps`.
      simt::atomic<M, simt::scope::block>(next_due_ps_).store(next_due_ps, simt::order::relaxed);
    }
    lanes.sync();
  }

  group* groups_ = nullptr;
  std::uint32_t group_count_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t cursor_ = 0;  ///< the slot from which on the next command looks for a vacant one
  mutable std::uint64_t next_due_ps_ = never_ps;
  group_state near_[near_groups];
};

}  // namespace forebay::emulator
