// SPDX-License-Identifier: Apache-2.0
#include "stacks.hpp"

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "forebay/error.hpp"

namespace forebay::simt::detail {

stacks::stacks(std::uint32_t count, std::size_t bytes) : count_(count), bytes_((bytes + 4095) / 4096 * 4096) {
  if (count == 0) return;
  std::size_t const length = count_ * (bytes_ + guard_bytes);
  void* const area = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED)
    throw operation_failed("cannot map " + std::to_string(length) + " bytes of lane stacks: " + std::strerror(errno));
  base_ = static_cast<std::byte*>(area);
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (mprotect(base_ + i * (bytes_ + guard_bytes), guard_bytes, PROT_NONE) == 0) continue;
    std::string const why = std::strerror(errno);
    munmap(base_, length);
    throw operation_failed("cannot protect the guard page of lane stack " + std::to_string(i) + " of " +
                           std::to_string(count_) + ": " + why + "; raise vm.max_map_count or run fewer lanes");
  }
}

stacks::~stacks() {
  if (base_ == nullptr) return;
#if defined(__SANITIZE_ADDRESS__)
  // Stack frames that lanes left without unwinding are still poisoned. The next mapping at these addresses would fail.
  __asan_unpoison_memory_region(base_, count_ * (bytes_ + guard_bytes));
#endif
  munmap(base_, count_ * (bytes_ + guard_bytes));
}

void stacks::swap(stacks& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(count_, other.count_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace forebay::simt::detail
