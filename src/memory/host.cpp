// SPDX-License-Identifier: Apache-2.0
//! \file
//! Ordinary memory of this process.
#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

#include "forebay/memory.hpp"

namespace forebay::memory {
namespace {

#if defined(__SANITIZE_ADDRESS__)
/// AddressSanitizer does not know mapped memory, so it is told of a page before and after that nobody may touch.
constexpr std::size_t guard_bytes = 4096;
void guard(std::byte const* from, std::byte const* to) {
  __asan_poison_memory_region(from, static_cast<std::size_t>(to - from));
}
/// Lifts the guard: the next allocation that gets these addresses knows nothing of it.
void unguard(std::byte const* from, std::byte const* to) {
  __asan_unpoison_memory_region(from, static_cast<std::size_t>(to - from));
}
#else
constexpr std::size_t guard_bytes = 0;
void guard(std::byte const*, std::byte const*) {}
void unguard(std::byte const*, std::byte const*) {}
#endif

/// Maps every allocation by itself. The kernel zeroes it lazily, which matters for large sparse ones.
class host_resource final : public resource {
 public:
  memory::kind kind() const override { return memory::kind::host; }

  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    if (bytes == 0) bytes = 1;
    std::size_t const slack = alignment_bytes > page ? alignment_bytes - page : 0;
    std::size_t const length = (bytes + page - 1) / page * page + slack + 2 * guard_bytes;
    if (length < bytes) throw std::bad_alloc();
    void* const mapped =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    auto const start = reinterpret_cast<std::uintptr_t>(mapped) + guard_bytes;
    std::uintptr_t const aligned = (start + slack) & ~(static_cast<std::uintptr_t>(alignment_bytes) - 1);
    void* const address = reinterpret_cast<void*>(aligned < start ? start : aligned);
    constexpr std::size_t huge_page = std::size_t{2} << 20;
    if (bytes >= 2 * huge_page) madvise(mapped, length, MADV_HUGEPAGE);  // a hint: failure changes nothing
    std::lock_guard const lock(mutex_);
    try {
      mappings_.emplace(address, mapping{mapped, length, bytes});
    } catch (std::bad_alloc const&) {
      munmap(mapped, length);
      throw;
    }
    auto const* const begin = static_cast<std::byte const*>(address);
    guard(begin - guard_bytes, begin);
    guard(begin + bytes, guard_end(begin, bytes));
    return address;
  }

  void deallocate(void* address) noexcept override {
    if (address == nullptr) return;
    std::lock_guard const lock(mutex_);
    auto const found = mappings_.find(address);
    if (found == mappings_.end()) return;
    auto const* const begin = static_cast<std::byte const*>(address);
    unguard(begin - guard_bytes, begin);
    unguard(begin + found->second.bytes, guard_end(begin, found->second.bytes));
    munmap(found->second.start, found->second.length);
    mappings_.erase(found);
  }

  void copy_in(void* to, void const* from_host, std::size_t bytes) override { std::memcpy(to, from_host, bytes); }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override { std::memcpy(to_host, from, bytes); }

 private:
  struct mapping {
    void* start;
    std::size_t length;
    std::size_t bytes;  ///< that were asked for
  };
  static constexpr std::size_t page = 4096;
  static std::byte const* guard_end(std::byte const* begin, std::size_t bytes) {
    return begin + (bytes + page - 1) / page * page + guard_bytes;
  }
  std::mutex mutex_;
  std::unordered_map<void*, mapping> mappings_;
};

}  // namespace

resource& host() {
  static host_resource the_host;
  return the_host;
}

}  // namespace forebay::memory
