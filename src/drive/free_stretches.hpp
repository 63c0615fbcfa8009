// SPDX-License-Identifier: Apache-2.0
//! \file
//! Ranges of addresses, of which stretches are handed out and taken back.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace forebay::drive {

/// Knows which addresses are free. It touches none of them. Not thread-safe.
class free_stretches {
 public:
  /// Adds a range. No stretch ever lies in two ranges, even if one begins where the other ends.
  void add(std::uint64_t first, std::uint64_t bytes) {
    if (bytes == 0) return;
    starts_.insert(first);
    free_.emplace(first, bytes);
  }
  /// The lowest free stretch whose address is a multiple of `alignment`, a power of two. None: no range has room.
  std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      auto const [first, length] = *at;
      std::uint64_t const skipped = -first & (alignment - 1);
      if (skipped > length || length - skipped < bytes) continue;
      std::uint64_t const start = first + skipped;
      free_.erase(at);
      if (skipped != 0) free_.emplace(first, skipped);
      if (std::uint64_t const left = length - skipped - bytes; left != 0) free_.emplace(start + bytes, left);
      used_.emplace(start, bytes);
      return start;
    }
    return std::nullopt;
  }
  /// How long the stretch is that was handed out there; 0 if none was.
  std::uint64_t used_bytes(std::uint64_t first) const {
    auto const found = used_.find(first);
    return found == used_.end() ? 0 : found->second;
  }
  /// Takes back what `take` returned.
  void give_back(std::uint64_t first) {
    auto const found = used_.find(first);
    if (found == used_.end()) return;
    std::uint64_t bytes = found->second;
    used_.erase(found);
    auto const next = free_.lower_bound(first);
    if (next != free_.end() && next->first == first + bytes && !starts_.contains(next->first)) {
      bytes += next->second;
      free_.erase(next);
    }
    auto const after = free_.lower_bound(first);
    if (after != free_.begin() && !starts_.contains(first)) {
      auto const before = std::prev(after);
      if (before->first + before->second == first) {
        before->second += bytes;
        return;
      }
    }
    free_.emplace(first, bytes);
  }

 private:
  std::set<std::uint64_t> starts_;               ///< of the ranges
  std::map<std::uint64_t, std::uint64_t> free_;  ///< lengths by address
  std::unordered_map<std::uint64_t, std::uint64_t> used_;
};

}  // namespace forebay::drive
