// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which memory functions reach, by its address in this process.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forebay/error.hpp"

namespace forebay::drive::pci {

/// Areas of memory that do not overlap, with an `Its` each. A range that is mapped within an area is a user of it, and
/// an area lasts until its last user has gone. Not thread-safe.
template <class Its>
class mapped_areas {
 public:
  struct area {
    std::byte* first;
    std::size_t bytes;
    Its its;
    bool own = false;  ///< allocated for the functions; else by somebody that has it mapped
  };

  /// Memory that was allocated for the functions. Its owner is the first user. `make` makes what belongs to it.
  template <class Make>
  void add_own(void* address, std::size_t bytes, Make&& make) {
    add(static_cast<std::byte*>(address), bytes, true, make);
  }
  /// The owner of such memory goes. Returns the area if it was the last user.
  std::optional<area> remove_own(void* address) noexcept {
    auto const found = areas_.find(static_cast<std::byte*>(address));
    if (found == areas_.end() || !found->second.whole.own) return std::nullopt;
    return let_go(found);
  }
  /// A range gets a user. Where there is no area around it, `make` makes what belongs to a new one, of just this range.
  /// Throws `refused_input` if a part of the range is in an area, and what `make` throws.
  template <class Make>
  void map(void* address, std::size_t bytes, Make&& make) {
    auto* const first = static_cast<std::byte*>(address);
    if (auto const around = around_of(first); around != areas_.end()) {
      area const& its = around->second.whole;
      if (bytes > its.bytes - static_cast<std::size_t>(first - its.first)) refuse_overlap(first, bytes);
      mapped_.push_back({first, bytes, its.first});
      ++around->second.users;
      return;
    }
    auto const next = areas_.upper_bound(first);
    if (next != areas_.end() && static_cast<std::size_t>(next->first - first) < bytes) refuse_overlap(first, bytes);
    mapped_.push_back({first, bytes, first});
    try {
      add(first, bytes, false, make);
    } catch (...) {
      mapped_.pop_back();
      throw;
    }
  }
  /// A range that was mapped loses a user; of several, the one that came first. Returns the area if that was the last.
  std::optional<area> unmap(void* address, std::size_t bytes) noexcept {
    auto const found = std::find_if(mapped_.begin(), mapped_.end(),
                                    [&](range const& m) { return m.first == address && m.bytes == bytes; });
    if (found == mapped_.end()) return std::nullopt;
    auto const around = areas_.find(found->around);
    mapped_.erase(found);
    return let_go(around);
  }
  /// The area around a byte; null: none.
  area const* find(void const* address) const {
    auto const found = const_cast<mapped_areas*>(this)->around_of(static_cast<std::byte const*>(address));
    return found == areas_.end() ? nullptr : &found->second.whole;
  }
  bool empty() const { return areas_.empty(); }
  template <class Visit>
  void each(Visit&& visit) {
    for (auto& [first, one] : areas_) visit(one.whole);
  }

 private:
  struct entry {
    area whole;
    std::uint32_t users;
  };
  struct range {
    std::byte* first;
    std::size_t bytes;
    std::byte* around;
  };
  using entries = std::map<std::byte*, entry>;

  /// The entry comes first: what `make` has begun is not lost to a lack of memory.
  template <class Make>
  void add(std::byte* first, std::size_t bytes, bool own, Make&& make) {
    auto const made = areas_.emplace(first, entry{{first, bytes, Its(), own}, 1}).first;
    try {
      made->second.whole.its = make();
    } catch (...) {
      areas_.erase(made);
      throw;
    }
  }
  [[noreturn]] static void refuse_overlap(std::byte const* first, std::size_t bytes) {
    throw refused_input(
        "buffer", fmt::format("{} bytes at {}", bytes, reinterpret_cast<std::uintptr_t>(first)),
        "a part of it is registered already: register all of it at once, or parts of what is registered");
  }
  typename entries::iterator around_of(std::byte const* at) {
    auto const after = areas_.upper_bound(const_cast<std::byte*>(at));
    if (after == areas_.begin()) return areas_.end();
    auto const found = std::prev(after);
    return static_cast<std::size_t>(at - found->first) < found->second.whole.bytes ? found : areas_.end();
  }
  std::optional<area> let_go(typename entries::iterator which) noexcept {
    if (--which->second.users != 0) return std::nullopt;
    area ended = std::move(which->second.whole);
    areas_.erase(which);
    return ended;
  }

  entries areas_;
  std::vector<range> mapped_;
};

}  // namespace forebay::drive::pci
