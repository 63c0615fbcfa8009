// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernel modules that tell where a GPU's memory is on the bus, played for machines without them. What they are
//! asked is read here byte by byte, as the modules' own headers describe it (dmabuf_import 0.2.0, iommu_map_pa of uPCIe
//! 0.8.1).
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "drive/pci/gpu_dma_space.hpp"

namespace forebay::test {

using drive::open_file;
using drive::pci::bus_stretch;

/// `dmabuf_import` and `iommu_map_pa` together. Thread-safe.
class played_gpu_modules {
 public:
  /// A file that can be opened as a module's.
  std::string device() const { return "/proc/self/fd/" + std::to_string(device_.get()); }
  /// A file that stands for memory at these places of the bus.
  open_file share(std::vector<bus_stretch> where) {
    open_file made(::memfd_create("dma-buf", MFD_CLOEXEC));
    std::lock_guard const lock(mutex_);
    behind_[made.get()] = std::move(where);
    return made;
  }
  drive::pci::device_call call() {
    return [this](int, unsigned long request, void* argument) {
      std::lock_guard const lock(mutex_);
      int const result = answer(request & 0xffff, request >> 16 & 0x3fff, static_cast<std::byte*>(argument));
      if (result == 0) return 0;
      errno = result;
      return -1;
    };
  }

  std::set<int> attached;                                      ///< the numbers of files
  std::map<std::uint64_t, std::vector<std::uint64_t>> mapped;  ///< by the first address, the pages behind it
  std::vector<std::string> functions;                          ///< for which something was mapped
  int refuses_attach = 0, refuses_map = 0, refuses_iommu = 0, refuses_unmap = 0,
      refuses_detach = 0;         ///< by this errno
  std::uint32_t claims_more = 0;  ///< stretches that it says it has, beyond those that it has
  bool writes_one_more = false;   ///< as the module's predecessor did

 private:
  template <class T>
  static T get(std::byte const* from, std::size_t offset) {
    T value;
    std::memcpy(&value, from + offset, sizeof value);
    return value;
  }
  template <class T>
  static void put(std::byte* to, std::size_t offset, T value) {
    std::memcpy(to + offset, &value, sizeof value);
  }

  int answer(unsigned long number, std::size_t bytes, std::byte* argument) {
    switch (number) {
      case 'u' << 8 | 0x47:
        return bytes == 8 ? attach(argument) : ENOTTY;
      case 'u' << 8 | 0x48:
        return bytes == 4 ? detach(argument) : ENOTTY;
      case 'u' << 8 | 0x49:
        return bytes == 8 ? tell(argument) : ENOTTY;
      case 'u' << 8 | 0x02:
        return bytes == 8 ? unmap(argument) : ENOTTY;
      case 'u' << 8 | 0x03:
        return bytes == 64 ? map(argument) : ENOTTY;
      default:
        return ENOTTY;
    }
  }
  int attach(std::byte* argument) {
    int const file = get<std::int32_t>(argument, 0);
    if (refuses_attach != 0) return refuses_attach;
    if (!behind_.contains(file)) return EINVAL;
    attached.insert(file);
    told_[file] = behind_[file];
    put(argument, 4, static_cast<std::uint32_t>(told_[file].size() + claims_more));
    return 0;
  }
  int detach(std::byte const* argument) {
    if (refuses_detach != 0) return refuses_detach;
    return attached.erase(get<std::int32_t>(argument, 0)) != 0 ? 0 : EINVAL;
  }
  int tell(std::byte* argument) {
    int const file = get<std::int32_t>(argument, 0);
    if (refuses_map != 0) return refuses_map;
    if (!attached.contains(file)) return EINVAL;
    std::vector<bus_stretch> all = told_[file];
    if (writes_one_more) all.push_back({~0ull, ~0ull});
    for (std::size_t i = 0; i < all.size(); ++i) {
      put(argument, 8 + 16 * i, all[i].first);
      put(argument, 16 + 16 * i, all[i].bytes);
    }
    return 0;
  }
  int map(std::byte* argument) {
    if (refuses_iommu != 0) return refuses_iommu;
    auto const file = get<std::int32_t>(argument, 16);
    auto const page = get<std::uint32_t>(argument, 20);
    auto const count = get<std::uint32_t>(argument, 24);
    auto const access = get<std::uint32_t>(argument, 28);
    bool const is_reserved_zero = get<std::uint64_t>(argument, 32) == 0;
    auto const first = get<std::uint64_t>(argument, 40);
    auto const* const pages = reinterpret_cast<std::uint64_t const*>(get<std::uint64_t>(argument, 48));
    if (!behind_.contains(file) || page != 4096 || access != 3 || !is_reserved_zero || mapped.contains(first)) {
      return EINVAL;
    }
    functions.emplace_back(reinterpret_cast<char const*>(argument));
    mapped[first].assign(pages, pages + count);
    put(argument, 56, first + 1);  // any number
    return 0;
  }
  int unmap(std::byte const* argument) {
    if (refuses_unmap != 0) return refuses_unmap;
    return mapped.erase(get<std::uint64_t>(argument, 0) - 1) != 0 ? 0 : EINVAL;
  }

  open_file const device_{::memfd_create("module", MFD_CLOEXEC)};
  std::mutex mutex_;
  std::map<int, std::vector<bus_stretch>> behind_, told_;
};

/// Memory of another space that stands in for a GPU's: functions find it only by asking the modules.
class played_gpu_memory final : public memory::resource {
 public:
  played_gpu_memory(driver::dma_space& of, played_gpu_modules& modules) : of_(of), modules_(modules) {}
  /// CUDA does not know the memory any more, as after its user has freed it.
  void forget(void* address) {
    std::lock_guard const lock(mutex_);
    own_.erase(static_cast<std::byte*>(address));
  }

  drive::pci::gpu_memory as_gpu_memory() {
    return {.from = this,
            .has = [this](void const* address) { return has(address); },
            .share = [this](void* address, std::size_t bytes) { return share(address, bytes); },
            .clear = [this](void* address, std::size_t bytes) { of_.clear(address, bytes); }};
  }

  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t bytes, std::size_t) override {
    void* const made = of_.allocate(bytes);
    std::lock_guard const lock(mutex_);
    own_[static_cast<std::byte*>(made)] = bytes;
    return made;
  }
  void deallocate(void* address) noexcept override {
    {
      std::lock_guard const lock(mutex_);
      own_.erase(static_cast<std::byte*>(address));
    }
    of_.deallocate(address);
  }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override { std::memcpy(to, from_host, bytes); }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override { std::memcpy(to_host, from, bytes); }
  std::size_t count() const {
    std::lock_guard const lock(mutex_);
    return own_.size();
  }

 private:
  bool has(void const* address) const {
    auto const* const at = static_cast<std::byte const*>(address);
    std::lock_guard const lock(mutex_);
    auto const after = own_.upper_bound(const_cast<std::byte*>(at));
    if (after == own_.begin()) return false;
    auto const& [first, bytes] = *std::prev(after);
    return static_cast<std::size_t>(at - first) < bytes;
  }
  /// Pages that follow each other on the bus are one stretch.
  open_file share(void* address, std::size_t bytes) {
    std::vector<bus_stretch> where;
    for (std::size_t at = 0; at < bytes; at += 4096) {
      std::uint64_t const bus = of_.bus_address(static_cast<std::byte*>(address) + at);
      if (!where.empty() && where.back().first + where.back().bytes == bus) {
        where.back().bytes += 4096;
      } else {
        where.push_back({bus, 4096});
      }
    }
    return modules_.share(std::move(where));
  }

  driver::dma_space& of_;
  played_gpu_modules& modules_;
  mutable std::mutex mutex_;
  std::map<std::byte*, std::size_t> own_;
};

}  // namespace forebay::test
