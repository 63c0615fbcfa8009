// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that several processes and their GPUs reach.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace forebay::memory {

/// Memory of a GPU behind an open file. Any process that has the file can map it. The memory lasts until no process has
/// the file or a mapping.
class shared_device_memory {
 public:
  /// Makes new memory, zeroed. `bytes` is rounded up to the smallest size that the GPU maps. Throws `operation_failed`,
  /// and `std::runtime_error` if CUDA is not built in.
  shared_device_memory(int ordinal, std::size_t bytes);
  /// Maps memory that was made with the same `bytes`. Leaves the file to the caller.
  shared_device_memory(int ordinal, int file, std::size_t bytes);
  /// Unmaps the memory. As for all memory of GPUs, that may wait for kernels of the process.
  ~shared_device_memory();
  shared_device_memory(shared_device_memory const&) = delete;
  shared_device_memory& operator=(shared_device_memory const&) = delete;

  void* data() const { return data_; }
  /// The file of memory that was made here; the caller closes it.
  int file() const { return file_; }

 private:
  void map(unsigned long long handle);

  int ordinal_;
  std::size_t bytes_;
  int file_ = -1;
  void* data_ = nullptr;
};

/// The name under which another process can open an allocation of `cudaMalloc`.
using allocation_handle = std::array<std::uint8_t, 64>;

/// An allocation of `cudaMalloc` in this process.
struct lendable_allocation {
  allocation_handle handle;
  std::byte* first;
  std::size_t bytes;
  std::uint64_t id;  ///< no other allocation of the process ever has it
};

/// The allocation that holds `address`. None if no `cudaMalloc` made it: not host memory, managed memory, or memory
/// that came from a pool or was mapped in pieces.
std::optional<lendable_allocation> lendable(void const* address);

/// An allocation of another process, opened here. While it is open the GPU keeps the memory, even if its owner frees it
/// or ends; CUDA nevertheless wants the owner to free it later.
class borrowed_device_memory {
 public:
  /// For GPU `ordinal`, which may be another than the memory's. Throws `operation_failed`.
  borrowed_device_memory(int ordinal, allocation_handle const& handle);
  /// Closes it, which waits until no kernel of this process runs.
  ~borrowed_device_memory();
  borrowed_device_memory(borrowed_device_memory const&) = delete;
  borrowed_device_memory& operator=(borrowed_device_memory const&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }

 private:
  int ordinal_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Makes what `clear_device` needs. That may wait for all kernels of the process, once.
void prepare_to_clear_device(int ordinal);
/// Zeroes memory of GPU `ordinal` without waiting for kernels.
void clear_device(int ordinal, void* address, std::size_t bytes);

/// Page-locks whole pages of this process's memory, so that its GPUs reach them at the same address. Throws like
/// `shared_device_memory`.
void lock_pages(void* address, std::size_t bytes);
/// Undoes `lock_pages`. That may wait for all kernels of the process.
void unlock_pages(void* address) noexcept;

/// Whether memory at `address` is managed: its pages move between the host and GPUs, so that no device on the bus may
/// use them.
bool is_managed(void const* address);

/// Lets the threads of GPUs write to registers of a device on the bus, which are mapped in this process at `address`,
/// in whole pages. Returns the address at which GPU `ordinal` reaches them. Throws `operation_failed` if NVIDIA's
/// driver refuses that, as it does on Linux 6.12 and newer, and `std::runtime_error` if CUDA is not built in.
std::byte* lock_registers(int ordinal, void* address, std::size_t bytes);
/// Undoes `lock_registers`, as `unlock_pages` does. Comes before the registers are unmapped.
void unlock_registers(void* address) noexcept;

/// A file that stands for memory of GPU `ordinal` in other drivers of the system: a dma-buf. `address` and `bytes` are
/// whole pages of the host, in one allocation. The caller closes it; the memory lasts at least as long. Throws
/// `operation_failed` if NVIDIA's driver makes no such files, and `std::runtime_error` if CUDA is not built in.
int share_device_memory(int ordinal, void* address, std::size_t bytes);
/// Why devices on the bus cannot use memory of GPU `ordinal`; empty: they can, as far as its driver knows. Throws like
/// `share_device_memory`.
std::string why_devices_cannot_reach(int ordinal);
/// Whether memory at `address` is GPU `ordinal`'s own. False if CUDA does not know it, or not any more.
bool is_of_gpu(int ordinal, void const* address);
/// Returns once threads of GPU `ordinal` see what devices on the bus had written to its memory before the call. Does
/// not wait for kernels. Throws like `share_device_memory`.
void order_remote_writes(int ordinal);
/// Where GPU `ordinal` is on the bus, as in `0000:17:00.0`. Throws like `share_device_memory`.
std::string bus_address_of_gpu(int ordinal);

}  // namespace forebay::memory
