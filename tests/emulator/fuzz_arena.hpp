// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that the hostile host of the controller fuzzer names in its commands.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/nvme/command.hpp"

namespace forebay::emulator::testing {

inline constexpr std::uint64_t page = dma_page_bytes;

/// Memory that hostile commands name. A page faults when it is touched, until it is registered for the first time in a
/// round. Then it stays open to the end of the round, since commands in flight may name it.
class arena {
 public:
  /// The layout. Between two pools, and behind the last one, are pages that nobody ever registers.
  struct pool {
    std::uint32_t first = 0;
    std::uint32_t pages = 0;
  };
  static constexpr std::uint32_t gap = 16;  // 64 KiB, the largest page of a controller
  static constexpr pool admin_queues{gap, 16};
  static constexpr pool submission_queues{admin_queues.first + 16 + gap, 16};
  static constexpr pool completion_queues{submission_queues.first + 16 + gap, 16};
  static constexpr pool lists{completion_queues.first + 16 + gap, 16};
  static constexpr pool data{lists.first + 16 + gap, 64};
  static constexpr std::uint32_t pages = data.first + data.pages + gap;
  static constexpr pool pools[] = {admin_queues, submission_queues, completion_queues, lists, data};

  arena() {
    constexpr std::uint64_t alignment = 65536;
    void* const mapped = mmap(nullptr, pages * page + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = (reinterpret_cast<std::uintptr_t>(mapped) + alignment - 1) / alignment * alignment;
  }

  std::uint64_t address(std::uint32_t index, std::uint64_t offset = 0) const { return base_ + index * page + offset; }
  std::uint64_t of(pool const& in, std::uint32_t index, std::uint64_t offset = 0) const {
    return address(in.first + index % in.pages, offset);
  }

  void open(std::uint32_t first, std::uint32_t count) {
    std::lock_guard const lock(mutex_);
    // Relaxed: written under the lock.
    auto const closed = [&](std::uint32_t i) { return !open_[i].load(std::memory_order_relaxed); };
    for (std::uint32_t i = first, end; i < first + count; i = end) {
      for (end = i; end < first + count && closed(end);) ++end;
      if (end == i) {
        ++end;
        continue;
      }
      void* const at = reinterpret_cast<void*>(address(i));
      if (mprotect(at, (end - i) * page, PROT_READ | PROT_WRITE) != 0) std::abort();
      std::memset(at, 0xa5, (end - i) * page);
      for (; i < end; ++i) open_[i].store(true, std::memory_order_release);  // pairs with the acquire in `is_open`
    }
  }
  /// No page is registered any more, and no queue or command names one.
  void close() {
    std::lock_guard const lock(mutex_);
    if (mprotect(reinterpret_cast<void*>(base_), pages * page, PROT_NONE) != 0) std::abort();
    for (auto& is_open : open_) is_open.store(false, std::memory_order_relaxed);  // relaxed: one thread is left
  }
  /// Whether whole words of 64 bits may be touched there.
  bool is_open(std::uint64_t at, std::uint64_t bytes) const {
    if (at % 8 != 0 || at < base_ || at >= base_ + pages * page || at + bytes > base_ + pages * page) return false;
    for (std::uint64_t i = (at - base_) / page; i <= (at + bytes - 1 - base_) / page; ++i) {
      // Acquire: pairs with the release in `open`; the page may be touched.
      if (!open_[i].load(std::memory_order_acquire)) return false;
    }
    return true;
  }
  /// Stores to memory that the engine may be reading at this moment.
  void store(std::uint64_t at, std::uint64_t value) {
    // Relaxed: the race with the engine is on purpose.
    if (is_open(at, 8)) std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).store(value, std::memory_order_relaxed);
  }
  void store(std::uint64_t at, nvme::submission_entry const& entry) {
    std::uint64_t words[8];
    std::memcpy(words, &entry, sizeof words);
    for (std::uint64_t i = 0; i < 8; ++i) store(at + 8 * i, words[i]);
  }

 private:
  std::uintptr_t base_ = 0;
  std::mutex mutex_;
  std::array<std::atomic<bool>, pages> open_{};
};

inline arena& memory() {
  static arena& the_arena = *new arena;
  return the_arena;
}

}  // namespace forebay::emulator::testing
