// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "forebay/cuda_driver.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/memory/shared.hpp"

namespace forebay::memory {
namespace {

CUmemLocation on_gpu(int ordinal) {
  CUmemLocation where{};
  where.type = CU_MEM_LOCATION_TYPE_DEVICE;
  where.id = ordinal;
  return where;
}

CUmemAllocationProp shareable_on(int ordinal) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = on_gpu(ordinal);
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wanted;
}

std::size_t rounded(int ordinal, std::size_t bytes) {
  CUmemAllocationProp const wanted = shareable_on(ordinal);
  std::size_t granule = 0;
  check_driver(driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
                   &granule, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "cuMemGetAllocationGranularity");
  return (bytes + granule - 1) / granule * granule;
}

/// Makes the GPU's context, which the driver's functions need.
class prepared {
 public:
  explicit prepared(int ordinal) : here_(ordinal) { check_cuda(cudaFree(nullptr), "cudaFree"); }

 private:
  current_device here_;
};

/// The first byte and the size of the allocation that holds `address`.
std::pair<CUdeviceptr, std::size_t> range_of(void const* address) {
  CUdeviceptr first = 0;
  std::size_t bytes = 0;
  check_driver(driver_function<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange")(
                   &first, &bytes, reinterpret_cast<CUdeviceptr>(address)),
               "cuMemGetAddressRange");
  return {first, bytes};
}

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(allocation_handle));

}  // namespace

shared_device_memory::shared_device_memory(int ordinal, std::size_t bytes) : ordinal_(ordinal), bytes_(bytes) {
  prepared const here(ordinal);
  bytes_ = rounded(ordinal, bytes);
  CUmemAllocationProp const wanted = shareable_on(ordinal);
  CUmemGenericAllocationHandle handle = 0;
  check_driver(driver_function<decltype(&cuMemCreate)>("cuMemCreate")(&handle, bytes_, &wanted, 0), "cuMemCreate");
  check_driver(driver_function<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle")(
                   &file_, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "cuMemExportToShareableHandle");
  map(handle);
  clear_device(ordinal, data_, bytes_);
}

shared_device_memory::shared_device_memory(int ordinal, int file, std::size_t bytes)
    : ordinal_(ordinal), bytes_(bytes) {
  prepared const here(ordinal);
  bytes_ = rounded(ordinal, bytes);
  CUmemGenericAllocationHandle handle = 0;
  check_driver(
      driver_function<decltype(&cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle")(
          &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle");
  map(handle);
}

shared_device_memory::~shared_device_memory() {
  beside_captures const allowed;
  try {
    auto const at = reinterpret_cast<CUdeviceptr>(data_);
    driver_function<decltype(&cuMemUnmap)>("cuMemUnmap")(at, bytes_);
    driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree")(at, bytes_);
  } catch (operation_failed const&) {
    // The GPU has failed, and its memory is gone.
  }
}

void shared_device_memory::map(unsigned long long handle) {
  CUdeviceptr at = 0;
  check_driver(driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve")(&at, bytes_, 0, 0, 0),
               "cuMemAddressReserve");
  check_driver(driver_function<decltype(&cuMemMap)>("cuMemMap")(at, bytes_, 0, handle, 0), "cuMemMap");
  std::vector<CUmemAccessDesc> access;
  int gpus = 0;
  check_cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  for (int gpu = 0; gpu < gpus; ++gpu) {
    int reaches = gpu == ordinal_ ? 1 : 0;
    if (reaches == 0) check_cuda(cudaDeviceCanAccessPeer(&reaches, gpu, ordinal_), "cudaDeviceCanAccessPeer");
    if (reaches != 0) access.push_back({on_gpu(gpu), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  check_driver(driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess")(at, bytes_, access.data(), access.size()),
               "cuMemSetAccess");
  // The mapping keeps the memory.
  driver_function<decltype(&cuMemRelease)>("cuMemRelease")(handle);
  data_ = reinterpret_cast<void*>(at);
}

std::optional<lendable_allocation> lendable(void const* address) {
  beside_captures const allowed;
  cudaPointerAttributes known{};
  if (cudaPointerGetAttributes(&known, address) != cudaSuccess) {
    std::ignore = cudaGetLastError();
    return std::nullopt;
  }
  if (known.type != cudaMemoryTypeDevice) return std::nullopt;
  int capable = 0;
  std::uint64_t id = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
  std::array<void*, 2> answers{&capable, &id};
  check_driver(driver_function<decltype(&cuPointerGetAttributes)>("cuPointerGetAttributes")(
                   attributes.size(), attributes.data(), answers.data(), reinterpret_cast<CUdeviceptr>(address)),
               "cuPointerGetAttributes");
  if (capable == 0) return std::nullopt;
  prepared const here(known.device);
  auto const [first, bytes] = range_of(address);
  auto* const start = reinterpret_cast<std::byte*>(first);
  cudaIpcMemHandle_t handle{};
  check_cuda(cudaIpcGetMemHandle(&handle, start), "cudaIpcGetMemHandle");
  lendable_allocation found{.handle = {}, .first = start, .bytes = bytes, .id = id};
  std::memcpy(found.handle.data(), &handle, sizeof handle);
  return found;
}

borrowed_device_memory::borrowed_device_memory(int ordinal, allocation_handle const& handle) : ordinal_(ordinal) {
  prepared const here(ordinal);
  cudaIpcMemHandle_t its{};
  std::memcpy(&its, handle.data(), sizeof its);
  void* opened = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&opened, its, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  data_ = static_cast<std::byte*>(opened);
  try {
    auto const [first, bytes] = range_of(opened);
    // What the owner claims does not count: a size that is too large would let an engine reach other memory.
    bytes_ = bytes - (reinterpret_cast<CUdeviceptr>(opened) - first);
  } catch (...) {
    std::ignore = cudaIpcCloseMemHandle(opened);
    throw;
  }
}

borrowed_device_memory::~borrowed_device_memory() {
  try {
    current_device const here(ordinal_);
    if (cudaIpcCloseMemHandle(data_) != cudaSuccess) std::ignore = cudaGetLastError();
  } catch (operation_failed const&) {
    // The GPU has failed, and its memory is gone.
  }
}

namespace {

cuda_stream& clearing_stream(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: the CUDA runtime may shut down before static objects are destroyed.
  static auto* const streams = new std::map<int, std::unique_ptr<cuda_stream>>;
  std::lock_guard const lock(mutex);
  auto& stream = (*streams)[ordinal];
  if (!stream) stream = std::make_unique<cuda_stream>(ordinal);
  return *stream;
}

}  // namespace

void prepare_to_clear_device(int ordinal) {
  clearing_stream(ordinal);
}

void clear_device(int ordinal, void* address, std::size_t bytes) {
  cuda_stream& stream = clearing_stream(ordinal);
  current_device const here(ordinal);
  check_cuda(cudaMemsetAsync(address, 0, bytes, stream.get()), "cudaMemset");
  stream.synchronize();
}

void lock_pages(void* address, std::size_t bytes) {
  beside_captures const allowed;
  check_cuda(cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
             "page-locking " + std::to_string(bytes) + " bytes of shared memory");
}

void unlock_pages(void* address) noexcept {
  beside_captures const allowed;
  cudaHostUnregister(address);
}

bool is_managed(void const* address) {
  beside_captures const allowed;
  cudaPointerAttributes known{};
  if (cudaPointerGetAttributes(&known, address) == cudaSuccess) return known.type == cudaMemoryTypeManaged;
  std::ignore = cudaGetLastError();  // or the next call would report it
  return false;
}

std::byte* lock_registers(int ordinal, void* address, std::size_t bytes) {
  prepared const here(ordinal);
  check_cuda(
      cudaHostRegister(address, bytes, cudaHostRegisterIoMemory | cudaHostRegisterPortable | cudaHostRegisterMapped),
      "mapping " + std::to_string(bytes) + " bytes of registers for a GPU");
  void* of_gpu = nullptr;
  try {
    check_cuda(cudaHostGetDevicePointer(&of_gpu, address, 0), "cudaHostGetDevicePointer");
  } catch (...) {
    unlock_registers(address);
    throw;
  }
  return static_cast<std::byte*>(of_gpu);
}

void unlock_registers(void* address) noexcept {
  unlock_pages(address);
}

int share_device_memory(int ordinal, void* address, std::size_t bytes) {
  prepared const here(ordinal);
  int file = -1;
  check_driver(driver_function<decltype(&cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange")(
                   &file, reinterpret_cast<CUdeviceptr>(address), bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
               "sharing " + std::to_string(bytes) +
                   " bytes of a GPU's memory as a dma-buf, which NVIDIA's open kernel modules can "
                   "(cuMemGetHandleForAddressRange)");
  return file;
}

std::string why_devices_cannot_reach(int ordinal) {
  // The runtime has its numbers from the driver, but no name for this one.
  constexpr auto shares_as_dma_buf = static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  int shares = 0, flushes = 0;
  check_cuda(cudaDeviceGetAttribute(&shares, shares_as_dma_buf, ordinal), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&flushes, cudaDevAttrGPUDirectRDMAFlushWritesOptions, ordinal),
             "cudaDeviceGetAttribute");
  if (shares == 0) return "NVIDIA's driver does not share its memory as a dma-buf, which the open kernel modules do";
  if ((flushes & cudaFlushGPUDirectRDMAWritesOptionHost) == 0) {
    return "NVIDIA's driver does not let the host order what devices write to its memory";
  }
  return {};
}

bool is_of_gpu(int ordinal, void const* address) {
  beside_captures const allowed;
  cudaPointerAttributes known{};
  if (cudaPointerGetAttributes(&known, address) == cudaSuccess) {
    return known.type == cudaMemoryTypeDevice && known.device == ordinal;
  }
  std::ignore = cudaGetLastError();  // or the next call would report it
  return false;
}

void order_remote_writes(int ordinal) {
  prepared const here(ordinal);
  check_cuda(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                cudaFlushGPUDirectRDMAWritesToOwner),
             "cudaDeviceFlushGPUDirectRDMAWrites");
}

std::string bus_address_of_gpu(int ordinal) {
  std::array<char, 32> text{};
  check_cuda(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal), "cudaDeviceGetPCIBusId");
  return text.data();
}

}  // namespace forebay::memory
