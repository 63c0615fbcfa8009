// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/device_memory.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "forebay/cuda_driver.hpp"
#include "forebay/cuda_stream.hpp"

namespace forebay::transfer {
namespace {

using memory::check_cuda;
using memory::check_driver;
using memory::driver_function;

class malloc_memory final : public device_memory {
 public:
  std::byte* make(std::uint64_t bytes, cudaStream_t) override {
    void* address = nullptr;
    check_cuda(cudaMalloc(&address, bytes), fmt::format("cudaMalloc of {} bytes", bytes));
    return static_cast<std::byte*>(address);
  }
  void free(std::byte* address, cudaStream_t) override { check_cuda(cudaFree(address), "cudaFree"); }
};

class pool_memory final : public device_memory {
 public:
  pool_memory(int ordinal, std::uint64_t kept_bytes) {
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {cudaMemLocationTypeDevice, {ordinal}};
    check_cuda(cudaMemPoolCreate(&pool_, &wanted), "cudaMemPoolCreate");
    try {
      // By default it is 0: a pool gives back at each synchronisation all that is free.
      check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept_bytes),
                 "cudaMemPoolSetAttribute");
    } catch (...) {
      cudaMemPoolDestroy(pool_);
      throw;
    }
  }
  ~pool_memory() override { cudaMemPoolDestroy(pool_); }
  std::byte* make(std::uint64_t bytes, cudaStream_t stream) override {
    void* address = nullptr;
    check_cuda(cudaMallocFromPoolAsync(&address, bytes, pool_, stream),
               fmt::format("cudaMallocFromPoolAsync of {} bytes", bytes));
    return static_cast<std::byte*>(address);
  }
  void free(std::byte* address, cudaStream_t stream) override {
    check_cuda(cudaFreeAsync(address, stream), "cudaFreeAsync");
  }

 private:
  cudaMemPool_t pool_ = nullptr;
};

class chunked_memory final : public device_memory {
 public:
  chunked_memory(int ordinal, std::uint64_t kept_bytes) : kept_most_(kept_bytes / mapped_chunk_bytes) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}};
    std::size_t granule = 0;
    check_driver(driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
                     &granule, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                 "cuMemGetAllocationGranularity");
    if (mapped_chunk_bytes % granule != 0) {
      throw operation_failed(fmt::format("this GPU maps memory in units of {} bytes, of which {} is no multiple",
                                         granule, mapped_chunk_bytes));
    }
  }
  ~chunked_memory() override {
    for (range const& r : made_) unmake(r, 0);
    for (CUmemGenericAllocationHandle const chunk : kept_) release_(chunk);
  }

  std::byte* make(std::uint64_t bytes, cudaStream_t) override {
    range made;
    made.bytes = footprint_bytes(allocation_kind::chunked, bytes);
    made.chunks.reserve(made.bytes / mapped_chunk_bytes);
    check_driver(reserve_(&made.base, made.bytes, 0, 0, 0), "cuMemAddressReserve");
    try {
      while (made.mapped_bytes() < made.bytes) map_next(made);
      CUmemAccessDesc const access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      check_driver(set_access_(made.base, made.bytes, &access, 1), "cuMemSetAccess");
      std::lock_guard const lock(mutex_);
      made_.push_back(made);
    } catch (...) {
      unmake(made, 0);
      throw;
    }
    return reinterpret_cast<std::byte*>(made.base);
  }
  void free(std::byte* address, cudaStream_t) override {
    auto const base = reinterpret_cast<CUdeviceptr>(address);
    range freed;
    {
      std::lock_guard const lock(mutex_);
      auto const found = std::find_if(made_.begin(), made_.end(), [&](range const& r) { return r.base == base; });
      if (found == made_.end()) throw operation_failed("memory is freed that was not made here");
      freed = std::move(*found);
      made_.erase(found);
    }
    check_driver(unmake(freed, kept_most_), "giving an address range back");
  }

 private:
  /// Addresses, and the chunks that are mapped to the first of them.
  struct range {
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0;
    std::vector<CUmemGenericAllocationHandle> chunks;
    std::uint64_t mapped_bytes() const { return chunks.size() * mapped_chunk_bytes; }
  };

  void map_next(range& to) {
    CUmemGenericAllocationHandle const chunk = take_chunk();
    CUresult const mapped = map_(to.base + to.mapped_bytes(), mapped_chunk_bytes, 0, chunk, 0);
    if (mapped != CUDA_SUCCESS) release_(chunk);
    check_driver(mapped, "cuMemMap");
    to.chunks.push_back(chunk);
  }
  /// A chunk that was kept, or a new one.
  CUmemGenericAllocationHandle take_chunk() {
    {
      std::lock_guard const lock(mutex_);
      if (!kept_.empty()) {
        CUmemGenericAllocationHandle const chunk = kept_.back();
        kept_.pop_back();
        return chunk;
      }
    }
    CUmemGenericAllocationHandle chunk{};
    check_driver(create_(&chunk, mapped_chunk_bytes, &properties_, 0),
                 fmt::format("cuMemCreate of {} bytes", mapped_chunk_bytes));
    return chunk;
  }
  CUresult put_back(CUmemGenericAllocationHandle chunk, std::uint64_t kept_most) {
    {
      std::lock_guard const lock(mutex_);
      if (kept_.size() < kept_most) {
        kept_.push_back(chunk);
        return CUDA_SUCCESS;
      }
    }
    return release_(chunk);
  }
  /// Takes all of it back, also of one that was made in part. Returns the first error.
  CUresult unmake(range const& r, std::uint64_t kept_most) {
    CUresult first = r.chunks.empty() ? CUDA_SUCCESS : unmap_(r.base, r.mapped_bytes());
    auto const note = [&](CUresult result) {
      if (first == CUDA_SUCCESS) first = result;
    };
    note(free_(r.base, r.bytes));
    // What may still be mapped is not mapped again.
    if (first != CUDA_SUCCESS) kept_most = 0;
    for (CUmemGenericAllocationHandle const chunk : r.chunks) note(put_back(chunk, kept_most));
    return first;
  }

  std::uint64_t kept_most_;  ///< chunks
  CUmemAllocationProp properties_{};
  std::mutex mutex_;         ///< not held while the driver is called: one thread may map while another unmaps
  std::vector<range> made_;  // guarded by `mutex_`
  std::vector<CUmemGenericAllocationHandle> kept_;  // guarded by `mutex_`
  decltype(&cuMemAddressReserve) reserve_ = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemCreate) create_ = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemMap) map_ = driver_function<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemRelease) release_ = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemSetAccess) set_access_ = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  decltype(&cuMemUnmap) unmap_ = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemAddressFree) free_ = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
};

}  // namespace

bool has_device_memory(allocation_kind kind, int ordinal) {
  int has = 1;
  if (kind == allocation_kind::pool) {
    check_cuda(cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported, ordinal), "cudaDeviceGetAttribute");
  } else if (kind == allocation_kind::chunked) {
    CUdevice device{};
    check_driver(driver_function<decltype(&cuDeviceGet)>("cuDeviceGet")(&device, ordinal), "cuDeviceGet");
    check_driver(driver_function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
                     &has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
                 "cuDeviceGetAttribute");
  }
  return has != 0;
}

std::unique_ptr<device_memory> make_device_memory(allocation_kind kind, int ordinal, std::uint64_t kept_bytes) {
  switch (kind) {
    case allocation_kind::malloc:
      break;
    case allocation_kind::pool:
      return std::make_unique<pool_memory>(ordinal, kept_bytes);
    case allocation_kind::chunked:
      return std::make_unique<chunked_memory>(ordinal, kept_bytes);
  }
  return std::make_unique<malloc_memory>();
}

}  // namespace forebay::transfer
