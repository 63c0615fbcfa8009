// SPDX-License-Identifier: Apache-2.0
//! \file
//! The memory that one client shares with a real drive.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "chunks.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/error.hpp"
#include "shared_drive.hpp"

namespace forebay::drive::served {

/// The memory of one client: chunks, all of which the drive reaches. Thread-safe.
class client_space final : public driver::dma_space {
 public:
  client_space(driver::dma_space& of_drive, arena_maker const& make_arena)
      : of_drive_(of_drive),
        arena_(make_arena({.locked_there = true, .page_bytes = of_drive.shared_page_bytes()},
                          [this](std::shared_ptr<chunk> made) { reach(std::move(made)); })) {}

  ~client_space() override {
    if (!keeps_) let_go();
  }
  client_space(client_space const&) = delete;
  client_space& operator=(client_space const&) = delete;

  void* allocate(std::size_t bytes) override {
    // What a queue or a list needs is contiguous on the bus only within a page of the system.
    std::size_t alignment_bytes = dma_page_bytes;
    while (alignment_bytes < bytes && alignment_bytes < of_drive_.shared_page_bytes()) alignment_bytes *= 2;
    return arena_.allocate(bytes, alignment_bytes);
  }
  void deallocate(void* address) noexcept override { arena_.deallocate(address); }
  /// Chunks are mapped whole.
  void map(void* address, std::size_t bytes) override {
    std::lock_guard const lock(mutex_);
    auto const at = reinterpret_cast<std::uint64_t>(address);
    if (std::any_of(reached_.begin(), reached_.end(), [&](auto const& c) { return c->contains(at, bytes); })) return;
    throw refused_input("mapped memory", fmt::format("{}+{}", at, bytes), "the drive does not reach it");
  }
  void unmap(void*, std::size_t) override {}
  std::uint64_t bus_address(void const* address) const override { return of_drive_.bus_address(address); }
  std::size_t page_bytes() const override { return dma_page_bytes; }

  memory::resource& arena() { return arena_; }
  void reach(std::shared_ptr<chunk> its) {
    std::lock_guard const lock(mutex_);
    if (std::find(reached_.begin(), reached_.end(), its) != reached_.end()) return;
    if (its->where().page_bytes < of_drive_.shared_page_bytes() || !its->where().locked_there) {
      throw refused_input("mapped memory", fmt::format("{} bytes of another drive", its->size_bytes()),
                          "a real drive does not reach it: use one storage for real drives, and another for the rest");
    }
    of_drive_.map_shared(its->data(), its->size_bytes(), its->file());
    std::vector<bus_stretch> stretches;
    try {
      stretches = stretches_of(*its);
      for (bus_stretch const& s : stretches) {
        here_.emplace(s.bus_address, stretch{its->data() + s.offset_bytes, s.bytes});
      }
      reached_.push_back(its);
    } catch (...) {
      for (bus_stretch const& s : stretches) here_.erase(s.bus_address);
      of_drive_.unmap(its->data(), its->size_bytes());
      throw;
    }
  }
  std::vector<bus_stretch> stretches_of(chunk const& its) const {
    std::vector<bus_stretch> all;
    std::size_t const step = of_drive_.shared_page_bytes();
    for (std::uint64_t at = 0; at < its.size_bytes(); at += step) {
      std::uint64_t const bus = of_drive_.bus_address(its.data() + at);
      if (!all.empty() && all.back().bus_address + all.back().bytes == bus) {
        all.back().bytes += step;
      } else {
        all.push_back({at, step, bus});
      }
    }
    return all;
  }
  /// The client's memory at a bus address, which must hold so many bytes; null: it has no such memory.
  std::byte* at(std::uint64_t bus_address, std::uint64_t bytes) const {
    std::lock_guard const lock(mutex_);
    auto const after = here_.upper_bound(bus_address);
    if (after == here_.begin()) return nullptr;
    auto const& [first, its] = *std::prev(after);
    std::uint64_t const offset = bus_address - first;
    return offset < its.bytes && bytes <= its.bytes - offset ? its.data + offset : nullptr;
  }
  /// The drive may go on to use the memory.
  void keep() { keeps_ = true; }
  /// Nothing on the drive names the memory any more.
  void let_go() noexcept {
    std::lock_guard const lock(mutex_);
    for (auto const& c : reached_) of_drive_.unmap(c->data(), c->size_bytes());
    reached_.clear();
    here_.clear();
  }

 private:
  static constexpr std::size_t dma_page_bytes = 4096;
  struct stretch {
    std::byte* data;
    std::uint64_t bytes;
  };

  driver::dma_space& of_drive_;
  mutable std::mutex mutex_;  ///< of what follows
  std::vector<std::shared_ptr<chunk>> reached_;
  std::map<std::uint64_t, stretch> here_;  ///< by bus address
  bool keeps_ = false;
  chunk_arena& arena_;  ///< last: it calls `reach`
};

}  // namespace forebay::drive::served
