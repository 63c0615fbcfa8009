// SPDX-License-Identifier: Apache-2.0
//! \file
//! The machines of a schedule of the page directory: what its drives and its lanes run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "forebay/detail/simt/run.hpp"

namespace forebay::test {

/// The drive's machine. A page that is being written back may be written at the same time, since it is dirty again
/// then; and the drive may be asked to read a page that a write-back is about to send it. So the drive's reads of a
/// frame or of its media are no race.
struct cache_drive : simt::fiber {
  /// Whether an address lies in either, in the schedule that this OS thread runs.
  static std::function<bool(void const*)>*& in_frame() {
    thread_local std::function<bool(void const*)>* hook = nullptr;
    return hook;
  }
  template <simt::plain T>
  static T ld(T const* address, location where = location::current()) {
    auto* const hook = in_frame();
    return hook != nullptr && (*hook)(address) ? ld_speculative(address, where) : simt::fiber::ld(address, where);
  }
};

/// The lanes' machine: fibers that report before they sleep.
struct cache_client : simt::fiber {
  /// By lane: whether it is about to read words of frames that others may be writing, which is no race of the cache's.
  /// Belongs to the schedule that this OS thread runs, like all members below.
  static std::vector<char>*& reads_along() {
    thread_local std::vector<char>* lanes = nullptr;
    return lanes;
  }
  template <simt::plain T>
  static T ld(T const* address, location where = location::current()) {
    auto* const lanes = reads_along();
    std::uint32_t const me = thread_rank();
    // Lanes that copy a page to a staging page, 16 bytes at a time, do for the drive what it does elsewhere itself.
    bool const along = sizeof(T) == 16 || (lanes != nullptr && me < lanes->size() && (*lanes)[me] != 0);
    auto* const hook = along ? cache_drive::in_frame() : nullptr;
    return hook != nullptr && (*hook)(address) ? ld_speculative(address, where) : simt::fiber::ld(address, where);
  }
  /// Others may write at the same time, and the copy may contain their data or not: no race.
  static void copy(void* to, void const* from, std::size_t bytes, location where = location::current()) {
    for (std::size_t at = 0; at < bytes; at += 8) {
      auto const word =
          ld_speculative(reinterpret_cast<std::uint64_t const*>(static_cast<char const*>(from) + at), where);
      st(reinterpret_cast<std::uint64_t*>(static_cast<char*>(to) + at), word, where);
    }
  }
  static std::function<void()>*& about_to_wait() {
    thread_local std::function<void()>* hook = nullptr;
    return hook;
  }
  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    return simt::fiber::wait_until(
        [&] {
          if (predicate()) return true;
          if (auto* const hook = about_to_wait()) (*hook)();
          return false;
        },
        deadline_ns, where);
  }
};

}  // namespace forebay::test
