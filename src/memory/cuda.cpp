// SPDX-License-Identifier: Apache-2.0
//! \file
//! Page-locked host memory and the memory of GPUs.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "forebay/cuda_stream.hpp"
#include "forebay/host_memory.hpp"
#include "forebay/memory.hpp"

namespace forebay::memory {
namespace {

/// Provides alignments beyond the allocator's own by allocating more than was asked for.
class aligned_blocks {
 public:
  static std::size_t padded(std::size_t bytes, std::size_t alignment_bytes) {
    return (bytes == 0 ? 1 : bytes) + (alignment_bytes > natural_bytes ? alignment_bytes : 0);
  }
  void* remember(void* start, std::size_t alignment_bytes) {
    auto const at = reinterpret_cast<std::uintptr_t>(start);
    auto const aligned = (at + alignment_bytes - 1) & ~(static_cast<std::uintptr_t>(alignment_bytes) - 1);
    void* const address = reinterpret_cast<void*>(aligned);
    std::lock_guard const lock(mutex_);
    starts_.emplace(address, start);
    return address;
  }
  /// The pointer that the allocator returned, or null for an address that is not one of these.
  void* forget(void* address) {
    std::lock_guard const lock(mutex_);
    auto const found = starts_.find(address);
    if (found == starts_.end()) return nullptr;
    void* const start = found->second;
    starts_.erase(found);
    return start;
  }

 private:
  static constexpr std::size_t natural_bytes = 256;  // of every CUDA allocator (CUDA C++ Programming Guide, 5.3.2)
  std::mutex mutex_;
  std::unordered_map<void*, void*> starts_;
};

/// Keeps deallocated memory for the next allocation of about the same size, and returns it to CUDA only when memory
/// runs out. `cudaFree` and `cudaHostUnregister` wait for every kernel of the process, and some kernels of this library
/// do not end.
class kept_blocks {
 public:
  /// `take(&start, size)` and `give(start, size)` get memory and return it.
  template <class Take, class Give>
  void* allocate(std::size_t bytes, std::size_t alignment_bytes, std::size_t& size, Take&& take, Give&& give,
                 std::string const& what) {
    size = rounded(aligned_blocks::padded(bytes, alignment_bytes));
    void* start = nullptr;
    {
      std::lock_guard const lock(mutex_);
      if (auto const found = free_.find(size); found != free_.end() && !found->second.empty()) {
        start = found->second.back();
        found->second.pop_back();
      }
    }
    if (start == nullptr && take(&start, size) != cudaSuccess) {
      cudaGetLastError();  // so that the next call does not report it
      std::lock_guard const lock(mutex_);
      for (auto const& [block_size, blocks] : free_) {
        for (void* const block : blocks) give(block, block_size);
      }
      free_.clear();
      check_cuda(take(&start, size), what);
    }
    std::lock_guard const lock(mutex_);
    sizes_.emplace(start, size);
    return start;
  }
  /// How much is kept.
  std::uint64_t bytes() {
    std::uint64_t sum = 0;
    std::lock_guard const lock(mutex_);
    for (auto const& [size, blocks] : free_) sum += size * blocks.size();
    return sum;
  }
  void deallocate(void* start) {
    std::lock_guard const lock(mutex_);
    auto const size = sizes_.find(start);
    free_[size->second].push_back(start);
    sizes_.erase(size);
  }

 private:
  /// Up to an eighth more, so that sizes that differ little share blocks.
  static std::size_t rounded(std::size_t bytes) {
    std::size_t const step = bytes < 4096 ? 512 : std::bit_floor(bytes) / 8;
    return (bytes + step - 1) / step * step;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::unordered_map<void*, std::size_t> sizes_;
};

class pinned_resource final : public resource {
 public:
  /// On a NUMA node; on any if it is negative.
  explicit pinned_resource(int node) : node_(node) {}
  memory::kind kind() const override { return memory::kind::pinned; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    std::size_t size = 0;
    void* const start = kept_.allocate(
        bytes, alignment_bytes, size, [this](void** at, std::size_t n) { return take_locked(at, n); }, give_locked,
        "page-locking " + std::to_string(bytes) + " bytes of host memory");
    std::memset(start, 0, size);
    return blocks_.remember(start, alignment_bytes);
  }
  void deallocate(void* address) noexcept override {
    if (void* const start = blocks_.forget(address)) kept_.deallocate(start);
  }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override { std::memcpy(to, from_host, bytes); }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override { std::memcpy(to_host, from, bytes); }

 private:
  /// Ordinary pages that CUDA locks, and not `cudaHostAlloc`: Linux before 6.5 refuses the pages of the latter as
  /// buffers of io_uring.
  cudaError_t take_locked(void** at, std::size_t bytes) const {
    void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return cudaErrorMemoryAllocation;
    constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
    if (bytes >= 2 * huge_page_bytes) madvise(start, bytes, MADV_HUGEPAGE);  // a hint: failure changes nothing
    if (node_ >= 0) {
      try {
        bind_to_node(start, bytes, node_);
      } catch (...) {
        munmap(start, bytes);
        throw;
      }
    }
    beside_captures const allowed;
    cudaError_t const result = cudaHostRegister(start, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (result != cudaSuccess) {
      munmap(start, bytes);
      return result;
    }
    *at = start;
    return cudaSuccess;
  }
  static void give_locked(void* start, std::size_t bytes) {
    beside_captures const allowed;
    cudaHostUnregister(start);
    munmap(start, bytes);
  }

  int node_;
  kept_blocks kept_;
  aligned_blocks blocks_;
};

/// The host reaches it as its own memory; no kernel may use it meanwhile.
class managed_resource final : public resource {
 public:
  explicit managed_resource(int ordinal) : ordinal_(ordinal) {}
  memory::kind kind() const override { return memory::kind::pinned; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    current_device const here(ordinal_);
    std::size_t size = 0;
    void* const start = kept_.allocate(
        bytes, alignment_bytes, size, [](void** at, std::size_t n) { return cudaMallocManaged(at, n); },
        [](void* at, std::size_t) { cudaFree(at); },
        "allocating " + std::to_string(bytes) + " bytes of managed memory");
    std::memset(start, 0, size);
    return blocks_.remember(start, alignment_bytes);
  }
  void deallocate(void* address) noexcept override {
    if (void* const start = blocks_.forget(address)) kept_.deallocate(start);
  }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override { std::memcpy(to, from_host, bytes); }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override { std::memcpy(to_host, from, bytes); }

 private:
  int ordinal_;
  kept_blocks kept_;
  aligned_blocks blocks_;
};

class device_resource final : public resource {
 public:
  /// A user's stream may wait for what comes after one of these copies, while other kernels of the user fill the GPU.
  explicit device_resource(int ordinal) : stream_(ordinal, urgency::first) {}
  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    current_device const here(stream_.ordinal());
    std::size_t size = 0;
    void* const start = kept_.allocate(
        bytes, alignment_bytes, size, [](void** at, std::size_t n) { return cudaMalloc(at, n); },
        [](void* at, std::size_t) { cudaFree(at); },
        "allocating " + std::to_string(bytes) + " bytes on GPU " + std::to_string(stream_.ordinal()));
    check_cuda(cudaMemsetAsync(start, 0, size, stream_.get()), "cudaMemset");
    stream_.synchronize();
    return blocks_.remember(start, alignment_bytes);
  }
  void deallocate(void* address) noexcept override {
    if (void* const start = blocks_.forget(address)) kept_.deallocate(start);
  }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override {
    copy(to, from_host, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override {
    copy(to_host, from, bytes, cudaMemcpyDeviceToHost);
  }
  std::uint64_t kept_bytes() { return kept_.bytes(); }

 private:
  void copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind direction) {
    current_device const here(stream_.ordinal());
    check_cuda(cudaMemcpyAsync(to, from, bytes, direction, stream_.get()), "cudaMemcpy");
    stream_.synchronize();
  }

  cuda_stream stream_;
  kept_blocks kept_;
  aligned_blocks blocks_;
};

void require_gpu(char const* what, int ordinal) {
  int const count = device_count();
  if (ordinal >= 0 && ordinal < count) return;
  throw std::runtime_error(
      std::string(what) + ": GPU " + std::to_string(ordinal) + " was asked for, " + std::to_string(count) +
      " can be used: see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or `forebay doctor` of the Python package");
}

/// The resource with a number, of each type. It is never destroyed: the CUDA runtime may shut down before static
/// objects are destroyed.
template <class Resource>
Resource& numbered(int number) {
  static std::mutex mutex;
  static auto* const resources = new std::unordered_map<int, std::unique_ptr<Resource>>;
  std::lock_guard const lock(mutex);
  auto& found = (*resources)[number];
  if (!found) found = std::make_unique<Resource>(number);
  return *found;
}

}  // namespace

resource& pinned() {
  require_gpu("page-locked memory", 0);
  return numbered<pinned_resource>(-1);
}

resource& pinned_on(int node) {
  require_gpu("page-locked memory", 0);
  return numbered<pinned_resource>(node);
}

resource& device(int ordinal) {
  require_gpu("GPU memory", ordinal);
  return numbered<device_resource>(ordinal);
}

resource& managed(int ordinal) {
  require_gpu("managed memory", ordinal);
  return numbered<managed_resource>(ordinal);
}

std::uint64_t free_bytes(int ordinal) {
  require_gpu("GPU memory", ordinal);
  current_device const here(ordinal);
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free + numbered<device_resource>(ordinal).kept_bytes();
}

void connect_gpus(int ordinal, int other) {
  if (ordinal == other) return;
  for (auto const& [from, to] : {std::pair(ordinal, other), std::pair(other, ordinal)}) {
    require_gpu("peer access", to);
    int can = 0;
    check_cuda(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
    if (can == 0) {
      throw std::runtime_error("peer access: threads of GPU " + std::to_string(from) +
                               " cannot reach the memory of GPU " + std::to_string(to) + " on this machine");
    }
    current_device const here(from);
    cudaError_t const result = cudaDeviceEnablePeerAccess(to, 0);
    if (result == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // so that the next call does not report it
    } else {
      check_cuda(result, "cudaDeviceEnablePeerAccess");
    }
  }
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

bool host_reaches(void const* address) {
  cudaPointerAttributes known{};
  if (cudaPointerGetAttributes(&known, address) == cudaSuccess) return known.type != cudaMemoryTypeDevice;
  std::ignore = cudaGetLastError();  // or the next call would report it
  return false;
}

}  // namespace forebay::memory
