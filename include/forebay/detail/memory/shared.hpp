// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that several processes and their GPUs reach.
#pragma once

#include <cstddef>

namespace forebay::memory {

/// Memory of a GPU behind an open file: any process that has the file can map it, and it lasts until none has the file
/// or a mapping.
class shared_device_memory {
 public:
  /// Makes some, zeroed. `bytes` is rounded up to what the GPU maps at least. Throws `operation_failed`, and
  /// `std::runtime_error` where CUDA is not built in.
  shared_device_memory(int ordinal, std::size_t bytes);
  /// Maps what was made with the same `bytes`. Leaves the file to the caller.
  shared_device_memory(int ordinal, int file, std::size_t bytes);
  /// Unmaps it. As with all memory of GPUs, that may wait for kernels of the process.
  ~shared_device_memory();
  shared_device_memory(shared_device_memory const&) = delete;
  shared_device_memory& operator=(shared_device_memory const&) = delete;

  void* data() const { return data_; }
  /// Of memory that was made here: the file, which the caller closes.
  int file() const { return file_; }

 private:
  void map(unsigned long long handle);

  int ordinal_;
  std::size_t bytes_;
  int file_ = -1;
  void* data_ = nullptr;
};

/// Zeroes memory of GPU `ordinal` without waiting for kernels.
void clear_device(int ordinal, void* address, std::size_t bytes);

/// Page-locks memory of this process, whole pages, so that its GPUs reach it at the same address. Throws like
/// `shared_device_memory`.
void lock_pages(void* address, std::size_t bytes);
void unlock_pages(void* address) noexcept;

}  // namespace forebay::memory
