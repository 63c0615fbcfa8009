// SPDX-License-Identifier: Apache-2.0
//! \file
//! Registered memory that is lent out in parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "forebay/memory.hpp"
#include "storage/buffers.hpp"
#include "storage/options.hpp"

namespace forebay::detail {

/// Lends parts of whole pages of one piece of registered memory. For one thread.
class bounce_arena {
 public:
  explicit bounce_arena(std::unique_ptr<registered_memory> memory, memory::allocation owned = {})
      : owned_(std::move(owned)), memory_(std::move(memory)) {
    free_.emplace(0, memory_->size_bytes());
  }

  /// The offset of a part that nobody else has; none if there is no such part at the moment.
  std::optional<std::uint64_t> take(std::uint64_t bytes) {
    std::uint64_t const wanted = pages_of(bytes);
    for (auto const& [offset, size] : free_) {
      if (size < wanted) continue;
      std::uint64_t const at = offset, left = size - wanted;
      free_.erase(at);
      if (left != 0) free_.emplace(at + wanted, left);
      return at;
    }
    return {};
  }
  /// Takes a part back. `bytes` as for `take`.
  void give(std::uint64_t offset, std::uint64_t bytes) {
    auto here = free_.emplace(offset, pages_of(bytes)).first;
    if (auto const next = std::next(here); next != free_.end() && here->first + here->second == next->first) {
      here->second += next->second;
      free_.erase(next);
    }
    if (here == free_.begin()) return;
    if (auto const before = std::prev(here); before->first + before->second == here->first) {
      before->second += here->second;
      free_.erase(here);
    }
  }
  std::byte* data(std::uint64_t offset) const { return memory_->data() + offset; }
  buffer_ref ref(std::uint64_t offset, std::uint64_t bytes) const { return memory_->host_ref().subspan(offset, bytes); }

 private:
  static std::uint64_t pages_of(std::uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

  memory::allocation owned_;  ///< the memory, where it was registered and not given by a drive
  std::unique_ptr<registered_memory> memory_;
  std::map<std::uint64_t, std::uint64_t> free_;  ///< sizes by offset; no two of them touch
};

}  // namespace forebay::detail
