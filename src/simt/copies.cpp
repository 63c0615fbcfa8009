// SPDX-License-Identifier: Apache-2.0
//! \file
//! Asynchronous copies of lanes: their rules, and which of them a wait is for. The executors move the bytes.
#include <algorithm>
#include <string>

#include "lanes.hpp"

namespace forebay::simt::detail {

namespace {

bool is_multiple(void const* address, std::uint32_t unit) {
  return reinterpret_cast<std::uintptr_t>(address) % unit == 0;
}

}  // namespace

/// Fails the run unless the current lane may start such a copy.
void lockstep::require_copy(char const* name, void const* to, void const* from, std::uint32_t bytes, std::uint32_t unit,
                            location where) {
  auto const& me = *static_cast<lane*>(current);
  auto const refuse = [&](std::string const& why) { report(std::string(name) + ": " + why, where); };
  auto const* const target = static_cast<std::byte const*>(to);
  if (me.watching) {
    refuse("inside the predicate of wait_until");
  } else if (bytes == 0 || bytes % unit != 0) {
    refuse(std::to_string(bytes) + " bytes are no multiple of " + std::to_string(unit));
  } else if (!is_multiple(to, unit)) {
    refuse("the target is not aligned to " + std::to_string(unit) + " bytes");
  } else if (!is_multiple(from, unit)) {
    refuse("the source is not aligned to " + std::to_string(unit) + " bytes");
  } else if (me.shared == nullptr || target < me.shared || bytes > me.shared_bytes ||
             target > me.shared + (me.shared_bytes - bytes)) {
    refuse("the target is not in the shared memory of the block");
  } else {
    return;
  }
  stop();
}

void lockstep::copy_async(void* to, void const* from, std::uint32_t bytes, location where) {
  unobserved const quiet;
  require_copy("copy_async", to, from, bytes, bytes, where);
  auto& me = *static_cast<lane*>(current);
  auto* const target = static_cast<std::byte*>(to);
  auto const* const source = static_cast<std::byte const*>(from);
  begin_copy(target, source, bytes, where);
  me.copies.push_back({.to = target, .from = source, .bytes = bytes, .group = me.copy_groups});
}

void lockstep::commit_copies() {
  unobserved const quiet;
  ++static_cast<lane*>(current)->copy_groups;
}

void lockstep::wait_copies(std::uint32_t newest, location where) {
  unobserved const quiet;
  auto& me = *static_cast<lane*>(current);
  if (me.watching) {
    report("wait_copies inside the predicate of wait_until", where);
    stop();
  }
  // Groups are numbered from 0 in the order in which they were made; `copy_groups` is the one that is still open.
  std::uint32_t const ended = me.copy_groups - std::min(newest, me.copy_groups);
  auto const first_left =
      std::find_if(me.copies.begin(), me.copies.end(), [&](started_copy const& copy) { return copy.group >= ended; });
  // By index: other lanes may run meanwhile, and copies arrive.
  auto const count = first_left - me.copies.begin();
  for (auto i = 0; i < count; ++i) end_copy(me.copies[static_cast<std::size_t>(i)], where);
  me.copies.erase(me.copies.begin(), me.copies.begin() + count);
}

void lockstep::copy_bulk(void* to, void const* from, std::uint32_t bytes, std::uint64_t* barrier, location where) {
  unobserved const quiet;
  require_copy("copy_bulk", to, from, bytes, 16, where);
  auto& me = *static_cast<lane*>(current);
  auto* const target = static_cast<std::byte*>(to);
  auto const* const source = static_cast<std::byte const*>(from);
  begin_copy(target, source, bytes, where);
  me.group->bulk_copies.push_back({&me, target, source, bytes, barrier, where});
  began_bulk_copy(where);
}

}  // namespace forebay::simt::detail
