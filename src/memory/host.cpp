// SPDX-License-Identifier: Apache-2.0
//! \file
//! Ordinary memory of this process.
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

#include "forebay/memory/resource.hpp"

namespace forebay::memory {
namespace {

/// Maps every allocation by itself: zeroed by the kernel, lazily, which matters for large sparse ones.
class host_resource final : public resource {
 public:
  memory::kind kind() const override { return memory::kind::host; }

  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    constexpr std::size_t page = 4096;
    if (bytes == 0) bytes = 1;
    std::size_t const slack = alignment_bytes > page ? alignment_bytes - page : 0;
    std::size_t const length = (bytes + page - 1) / page * page + slack;
    if (length < bytes) throw std::bad_alloc();
    void* const mapped =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    auto const start = reinterpret_cast<std::uintptr_t>(mapped);
    std::uintptr_t const aligned = (start + slack) & ~(static_cast<std::uintptr_t>(alignment_bytes) - 1);
    void* const address = reinterpret_cast<void*>(aligned < start ? start : aligned);
    constexpr std::size_t huge_page = std::size_t{2} << 20;
    if (bytes >= 2 * huge_page) madvise(mapped, length, MADV_HUGEPAGE);  // a hint: failure changes nothing
    std::lock_guard const lock(mutex_);
    try {
      mappings_.emplace(address, mapping{mapped, length});
    } catch (std::bad_alloc const&) {
      munmap(mapped, length);
      throw;
    }
    return address;
  }

  void deallocate(void* address) noexcept override {
    if (address == nullptr) return;
    std::lock_guard const lock(mutex_);
    auto const found = mappings_.find(address);
    if (found == mappings_.end()) return;
    munmap(found->second.start, found->second.length);
    mappings_.erase(found);
  }

  void copy_in(void* to, void const* from_host, std::size_t bytes) override { std::memcpy(to, from_host, bytes); }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override { std::memcpy(to_host, from, bytes); }

 private:
  struct mapping {
    void* start;
    std::size_t length;
  };
  std::mutex mutex_;
  std::unordered_map<void*, mapping> mappings_;
};

}  // namespace

resource& host() {
  static host_resource the_host;
  return the_host;
}

}  // namespace forebay::memory
