// SPDX-License-Identifier: Apache-2.0
#include "storage/wait_chains.hpp"

#include <algorithm>
#include <unordered_map>

#include "forebay/detail/cache/cache_state.hpp"

namespace forebay::detail {
namespace {

bool pins_frame_of(std::uint32_t held, std::uint32_t set) {
  return held != 0 && (held & traced_thread::lock_bit) == 0 && (held - 1) / cache_ways == set;
}
bool locks(std::uint32_t held, std::uint32_t set) {
  return held == (traced_thread::lock_bit | set);
}

template <class Holds>
std::vector<std::size_t> those_who_hold(std::span<traced_thread const> threads, Holds const& holds) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (std::ranges::any_of(threads[i].held, holds)) found.push_back(i);
  }
  return found;
}

/// The threads that hold what `waiter` waits for; none if it does not wait for a holder.
std::vector<std::size_t> awaited_by(std::span<traced_thread const> threads, traced_thread const& waiter) {
  switch (static_cast<wait_kind>(waiter.what)) {
    case wait_kind::unpinned_frame:
      return pinners_of_set(threads, waiter.subject);
    case wait_kind::page_unpinned:
      return pinners_of_frame(threads, waiter.subject);
    case wait_kind::set_lock:
      return lockers_of_set(threads, waiter.subject);
    default:
      return {};
  }
}

/// Whether `waiter` cannot go on while those of `stuck` hold what they hold.
bool is_blocked(std::span<traced_thread const> threads, traced_thread const& waiter, std::vector<bool> const& stuck) {
  std::uint32_t blocked_ways = 0;
  bool any = false;
  for (std::size_t const i : awaited_by(threads, waiter)) {
    if (!stuck[i]) continue;
    any = true;
    for (std::uint32_t const held : threads[i].held) {
      if (pins_frame_of(held, waiter.subject)) blocked_ways |= 1u << (held - 1) % cache_ways;
    }
  }
  // A waiter for any frame of a set can go on if one frame of the set has no stuck pinner.
  bool const wants_any_frame = static_cast<wait_kind>(waiter.what) == wait_kind::unpinned_frame;
  return wants_any_frame ? blocked_ways == (1u << cache_ways) - 1 : any;
}

}  // namespace

std::vector<traced_thread> unchanged(std::span<traced_thread const> earlier, std::span<traced_thread const> later) {
  std::unordered_map<std::uint64_t, std::uint32_t> before;
  for (traced_thread const& t : earlier) before.emplace(t.name, t.changes);
  std::vector<traced_thread> same;
  for (traced_thread const& t : later) {
    auto const found = before.find(t.name);
    if (found != before.end() && found->second == t.changes && t.changes % 2 == 0) same.push_back(t);
  }
  return same;
}

std::vector<std::size_t> pinners_of_set(std::span<traced_thread const> threads, std::uint32_t set) {
  return those_who_hold(threads, [=](std::uint32_t held) { return pins_frame_of(held, set); });
}
std::vector<std::size_t> pinners_of_frame(std::span<traced_thread const> threads, std::uint32_t frame) {
  return those_who_hold(threads, [=](std::uint32_t held) { return held == frame + 1; });
}
std::vector<std::size_t> lockers_of_set(std::span<traced_thread const> threads, std::uint32_t set) {
  return those_who_hold(threads, [=](std::uint32_t held) { return locks(held, set); });
}

circular_wait find_circular_wait(std::span<traced_thread const> threads) {
  // Starts with all threads that wait for holders. Removes those that can go on, and then those that wait for these.
  std::vector<bool> stuck(threads.size());
  for (std::size_t i = 0; i < threads.size(); ++i) {
    stuck[i] = !awaited_by(threads, threads[i]).empty();
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      if (!stuck[i] || is_blocked(threads, threads[i], stuck)) continue;
      stuck[i] = false;
      changed = true;
    }
  }
  circular_wait found;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (stuck[i]) found.threads.push_back(i);
  }
  if (found.threads.empty()) return found;
  // Each stuck thread waits for another stuck one, so a walk among them comes back to where it has been.
  std::vector<std::size_t> walk{found.threads.front()};
  for (;;) {
    std::size_t next = walk.back();
    for (std::size_t const i : awaited_by(threads, threads[walk.back()])) {
      if (!stuck[i] || i == walk.back()) continue;
      next = i;
      break;
    }
    auto const seen = std::ranges::find(walk, next);
    if (seen != walk.end()) {
      found.cycle.assign(seen, walk.end());
      return found;
    }
    walk.push_back(next);
  }
}

}  // namespace forebay::detail
