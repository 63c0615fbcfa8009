// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where bytes live: ordinary host memory, pinned host memory that a GPU reaches, or a GPU's own memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "forebay/detail/simt/language.hpp"

namespace forebay::memory {

/// Which memory a resource gives: ordinary host memory, page-locked host memory, or a GPU's own.
enum class kind { host, pinned, device };

/// A place to allocate from. Thread-safe. Throws `std::bad_alloc` or `std::runtime_error` that names cause and remedy.
class resource {
 public:
  virtual ~resource() = default;
  /// Which memory this is.
  virtual memory::kind kind() const = 0;
  /// Zeroed memory, aligned to `alignment_bytes` (a power of two, at most 2 MiB).
  virtual void* allocate(std::size_t bytes, std::size_t alignment_bytes) = 0;
  /// Gives memory back that `allocate` returned.
  virtual void deallocate(void* address) noexcept = 0;
  /// Copies. They return when they are done, and never wait for a running kernel.
  virtual void copy_in(void* to, void const* from_host, std::size_t bytes) = 0;
  virtual void copy_out(void* to_host, void const* from, std::size_t bytes) = 0;
};

/// Ordinary memory of this process. Always available.
resource& host();
/// Page-locked host memory mapped into every GPU. Throws `std::runtime_error` if CUDA is not built in or finds no GPU.
resource& pinned();
/// Memory of GPU `ordinal`. Throws like `pinned()`. Memory of either kind that is deallocated stays with the process,
/// for later allocations, so that no deallocation waits for a kernel that does not end.
resource& device(int ordinal);
/// Lets the threads of each of two GPUs access the other's memory. Throws `std::runtime_error` if the machine cannot.
void connect_gpus(int ordinal, int other);
/// How many GPUs this process can use; 0 where CUDA is not built in.
int device_count();
/// Whether host threads may read and write at `address`. They may not in a GPU's own memory.
bool host_reaches(void const* address);

/// Owns one allocation of a resource. Move-only.
class allocation {
 public:
  allocation() = default;
  /// Allocates, and throws as `resource::allocate` does.
  allocation(resource& from, std::size_t bytes, std::size_t alignment_bytes)
      : from_(&from), address_(from.allocate(bytes, alignment_bytes)), bytes_(bytes) {}
  allocation(allocation&& other) noexcept { swap(other); }
  allocation& operator=(allocation&& other) noexcept {
    allocation(std::move(other)).swap(*this);
    return *this;
  }
  ~allocation() {
    if (address_ != nullptr) from_->deallocate(address_);
  }
  /// The memory, as an address and as a pointer to `T`.
  void* data() const { return address_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(address_);
  }
  /// The size that was asked for.
  std::size_t size_bytes() const { return bytes_; }
  /// The resource that the memory came from.
  resource& from() const { return *from_; }
  /// Exchanges what two of them own.
  void swap(allocation& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
  }

 private:
  resource* from_ = nullptr;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace forebay::memory
