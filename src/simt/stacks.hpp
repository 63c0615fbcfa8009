// SPDX-License-Identifier: Apache-2.0
//! \file
//! Stacks for fibers, each with a guard page below it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::simt::detail {

/// `count` stacks in one mapping. Pages that no fiber touched cost no memory.
class stacks {
 public:
  stacks() = default;
  /// \throws operation_failed if the system refuses the mapping or its guard pages.
  stacks(std::uint32_t count, std::size_t bytes);
  ~stacks();
  stacks(stacks&& other) noexcept { swap(other); }
  stacks& operator=(stacks&& other) noexcept {
    swap(other);
    return *this;
  }

  std::uint32_t count() const { return count_; }
  std::size_t size_bytes() const { return bytes_; }
  /// Lowest address of stack `i`, `size_bytes()` long.
  std::byte* operator[](std::uint32_t i) const { return base_ + i * (bytes_ + guard_bytes) + guard_bytes; }

 private:
  static constexpr std::size_t guard_bytes = 4096;
  void swap(stacks& other) noexcept;

  std::byte* base_ = nullptr;
  std::uint32_t count_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace forebay::simt::detail
