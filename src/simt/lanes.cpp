// SPDX-License-Identifier: Apache-2.0
#include "lanes.hpp"

#include <bit>
#include <cstring>
#include <map>
#include <tuple>

namespace forebay::simt::detail {

std::string describe(location where) {
  std::string file = where.file_name();
  file = file.substr(file.rfind('/') + 1);
  return file + ":" + std::to_string(where.line()) + " in " + where.function_name();
}

std::string describe_position(lane const& l) {
  return "block " + std::to_string(l.block) + " warp " + std::to_string(l.thread / 32) + " lane " +
         std::to_string(l.thread % 32);
}

char const* name_of(collective kind) {
  switch (kind) {
    case collective::sync:
      return "sync";
    case collective::any:
      return "any";
    case collective::all:
      return "all";
    case collective::ballot:
      return "ballot";
    case collective::shuffle:
      return "shfl";
    case collective::match:
      break;
  }
  return "match_any";
}

namespace {

std::string hexadecimal(std::uint32_t mask) {
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[mask >> shift & 15];
  return text;
}

/// The numbers of the set bits, as "0-3,7".
std::string ranges(std::uint32_t mask) {
  std::string text;
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    std::uint32_t last = i;
    while (last + 1 < 32 && (mask >> (last + 1) & 1) != 0) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(i);
    if (last > i) text.append("-").append(std::to_string(last));
    i = last;
  }
  return text;
}

}  // namespace

std::string describe_state(lane const& l) {
  switch (l.state) {
    case lane_state::fresh:
      return "has not started";
    case lane_state::ready:
      return "can run";
    case lane_state::waiting:
      return "waits in wait_until at " + describe(l.where);
    case lane_state::in_collective:
      return std::string("waits in ") + name_of(l.kind) + "(mask " + hexadecimal(l.mask) + ") at " + describe(l.where);
    case lane_state::converging:
      return "converges at " + describe(l.where);
    case lane_state::at_barrier:
      return "waits in block sync at " + describe(l.where);
    case lane_state::ended:
      break;
  }
  return "has ended";
}

std::string describe_stuck(std::span<lane* const> lanes) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::uint32_t> groups;
  for (auto* l : lanes) groups[{l->block, l->thread / 32, describe_state(*l)}] |= 1u << (l->thread % 32);
  std::string text;
  std::size_t lines = 0;
  for (auto const& [key, mask] : groups) {
    if (++lines > 64) {
      text += "\n  and " + std::to_string(groups.size() - 64) + " more groups";
      break;
    }
    auto const& [block, warp, state] = key;
    text += "\n  block " + std::to_string(block) + " warp " + std::to_string(warp) +
            ((mask & (mask - 1)) == 0 ? " lane " : " lanes ") + ranges(mask) + " " + state;
  }
  return text;
}

void lockstep::enlist(lane& l, block_group* group, std::uint32_t thread) {
  l.group = group;
  l.thread = thread;
  if (group != nullptr) {
    if (group->warps.size() <= thread / 32) group->warps.resize(thread / 32 + 1);
    auto& warp = group->warps[thread / 32];
    warp.present |= 1u << (thread % 32);
  }
  l.state = lane_state::ready;
  l.watching = false;
  l.fences = {};
  l.copies.clear();
  l.copy_groups = 0;
}

std::uint64_t lockstep::collect(collective kind, std::uint32_t mask, std::uint64_t operand, std::uint32_t source,
                                location where) {
  unobserved const quiet;
  auto& me = *static_cast<lane*>(current);
  // A function, since names are needed for failures alone. It owns nothing: a lane that fails never returns to destroy
  // it.
  auto const name = [kind] { return std::string(name_of(kind)); };
  if (me.group == nullptr) {
    if (mask != 1) {
      report(name() + ": an agent is a warp of one lane, mask 0x1; got " + hexadecimal(mask), where);
      stop();
    }
    return kind == collective::match ? 1 : operand;
  }
  auto& warp = me.group->warps[me.thread / 32];
  std::uint32_t const rank = me.thread % 32;
  if (me.watching && (mask & ~me.together) != 0) {
    report(name() + "(mask " + hexadecimal(mask) +
               "): a collective inside the predicate of wait_until, but not only among lanes that converged there",
           where);
    stop();
  }
  if ((mask >> rank & 1) == 0) {
    report(name() + ": the mask " + hexadecimal(mask) + " does not hold the calling lane", where);
    stop();
  }
  void* const sync_object = me.group->in_warp(me, 0);
  if (kind == collective::sync) tell_release(sync_object);
  me.kind = kind;
  me.mask = mask;
  me.operand = operand;
  me.source = source % 32;
  me.where = where;
  bool const complete = collective_is_complete(me);
  if (warp.waiting == 0) {
    warp.alike = true;
    warp.kind = kind;
    warp.mask = mask;
  } else if (warp.kind != kind || warp.mask != mask) {
    warp.alike = false;
  }
  me.state = lane_state::in_collective;
  warp.waiting |= 1u << rank;
  if (!complete) {
    set_runnable(me, false);
    give_way();
  } else {
    give_results(me);
    warp.waiting &= ~mask;
    if (kind == collective::sync) synchronised(members_);
    for (auto* member : members_) {
      member->state = lane_state::ready;
      if (member != &me) set_runnable(*member, true);
    }
    give_way();
  }
  if (kind == collective::sync) tell_acquire(sync_object);
  return me.result;
}

/// Whether all other lanes that the collective of `me` names are in it. Fails the run if one of them never comes.
bool lockstep::collective_is_complete(lane const& me) {
  auto const& group = *me.group;
  auto const& warp = group.warps[me.thread / 32];
  std::uint32_t const rank = me.thread % 32;
  auto const name = [&me] { return std::string(name_of(me.kind)); };
  bool const as_the_others = warp.waiting == 0 || (warp.alike && warp.kind == me.kind && warp.mask == me.mask);
  if (as_the_others && (me.mask & ~warp.present) == 0) return (me.mask & ~warp.waiting) == 1u << rank;
  bool complete = true;
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((me.mask >> i & 1) == 0) continue;
    auto* other = group.in_warp(me, i);
    if (other == nullptr) {
      report(name() + ": the mask " + hexadecimal(me.mask) + " names lane " + std::to_string(i) + ", beyond the block",
             me.where);
      stop();
    }
    if (other->state == lane_state::ended) {
      report(name() + ": the mask " + hexadecimal(me.mask) + " names lane " + std::to_string(i) + ", which has ended",
             me.where);
      stop();
    }
    if (other == &me) continue;
    if (other->state != lane_state::in_collective) {
      complete = false;
      continue;
    }
    // Two lanes that wait for each other in different collectives wait for ever. (It is correct that a lane waits for
    // `me` in a wider collective than this one: `me` gets there later.)
    if ((other->mask >> rank & 1) != 0 && (other->mask != me.mask || other->kind != me.kind)) {
      report(name() + "(mask " + hexadecimal(me.mask) + "): lane " + std::to_string(i) + " waits for this lane in " +
                 name_of(other->kind) + "(mask " + hexadecimal(other->mask) + ") at " + describe(other->where),
             me.where);
      stop();
    }
    if (other->mask != me.mask) complete = false;
  }
  return complete;
}

/// Gives each member of the collective that `last` completes its result, and collects them in `members_`.
void lockstep::give_results(lane const& last) {
  auto const& group = *last.group;
  members_.clear();
  std::uint32_t set = 0;  // of the lanes whose operand is not 0
  for (std::uint32_t left = last.mask; left != 0; left &= left - 1) {
    auto* const member = group.in_warp(last, static_cast<std::uint32_t>(std::countr_zero(left)));
    members_.push_back(member);
    if (member->operand != 0) set |= 1u << (member->thread % 32);
  }
  for (auto* member : members_) {
    switch (last.kind) {
      case collective::any:
        member->result = set != 0;
        break;
      case collective::all:
        member->result = set == last.mask;
        break;
      case collective::sync:
      case collective::ballot:
        member->result = set;
        break;
      case collective::shuffle:
        if ((last.mask >> member->source & 1) == 0) {
          report("shfl: lane " + std::to_string(member->thread % 32) + " reads lane " + std::to_string(member->source) +
                     ", which the mask " + hexadecimal(last.mask) + " does not hold",
                 last.where);
          stop();
        }
        member->result = group.in_warp(last, member->source)->operand;
        break;
      case collective::match:
        member->result = 0;
        for (auto const* other : members_) {
          if (other->operand == member->operand) member->result |= 1u << (other->thread % 32);
        }
        break;
    }
  }
}

std::uint32_t lockstep::converged(location where) {
  unobserved const quiet;
  auto& me = *static_cast<lane*>(current);
  if (me.group == nullptr) return 1;
  me.where = where;
  me.state = lane_state::converging;
  give_way();
  return static_cast<std::uint32_t>(me.result);
}

void lockstep::converge(lane& l) {
  std::uint32_t mask = 0;
  for (std::uint32_t i = 0; i < 32; ++i) {
    auto* other = l.group->in_warp(l, i);
    if (other == nullptr || other->state != lane_state::converging) continue;
    bool const same_site = other->where.line() == l.where.line() && other->where.column() == l.where.column() &&
                           std::strcmp(other->where.file_name(), l.where.file_name()) == 0 &&
                           // Each instantiation of a template is code of its own.
                           std::strcmp(other->where.function_name(), l.where.function_name()) == 0;
    if (other == &l || (same_site && converges())) mask |= 1u << i;
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    auto* other = l.group->in_warp(l, i);
    other->result = other->together = mask;
    other->state = lane_state::ready;
  }
}

void lockstep::block_sync(location where) {
  unobserved const quiet;
  auto& me = *static_cast<lane*>(current);
  if (me.group == nullptr) return;
  if (me.watching) {
    report("block sync inside the predicate of wait_until", where);
    stop();
  }
  auto& group = *me.group;
  tell_release(&group);
  me.where = where;
  me.state = lane_state::at_barrier;
  group.arrived.push_back(&me);
  if (group.arrived.size() < group.live) {
    set_runnable(me, false);
  } else {
    release_barrier(group);
  }
  give_way();
  tell_acquire(&group);
}

void lockstep::release_barrier(block_group& group) {
  synchronised(group.arrived);
  for (auto* l : group.arrived) {
    l->state = lane_state::ready;
    set_runnable(*l, true);
  }
  group.arrived.clear();
}

std::string lockstep::retire(lane& l) {
  l.state = lane_state::ended;
  if (l.group == nullptr) return {};
  auto& group = *l.group;
  --group.live;
  if (!l.copies.empty()) {
    return "the lane ends before it has waited for " + std::to_string(l.copies.size()) +
           " of its copies: call wait_copies<0>()";
  }
  if (group.live == 0 && !group.bulk_copies.empty()) {
    auto const& copy = group.bulk_copies.front();
    return "the block ends while " + std::to_string(group.bulk_copies.size()) +
           " bulk copies are under way: wait at their barrier; one was started at " + describe(copy.where);
  }
  group.warps[l.thread / 32].present &= ~(1u << (l.thread % 32));
  if (!group.arrived.empty() && group.arrived.size() == group.live) {
    tell_release(&group);
    release_barrier(group);
  }
  for (std::uint32_t i = 0; i < 32; ++i) {
    auto* other = group.in_warp(l, i);
    if (other != nullptr && other->state == lane_state::in_collective && (other->mask >> (l.thread % 32) & 1) != 0)
      return "the lane ends while lane " + std::to_string(i) + " of its warp waits for it in " + name_of(other->kind) +
             "(mask " + hexadecimal(other->mask) + ") at " + describe(other->where);
  }
  return {};
}

}  // namespace forebay::simt::detail
