// SPDX-License-Identifier: Apache-2.0
//! \file
//! Owns memory that a controller reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "forebay/detail/driver/spaces.hpp"

namespace forebay::driver {

/// One allocation of a `dma_space`, which must outlive it. Move-only. It is zeroed when made, and starts on a page.
class dma_buffer {
 public:
  dma_buffer() = default;
  /// `for_gpu`: only threads of a GPU, and `clear`, can reach it.
  dma_buffer(dma_space& from, std::size_t bytes, bool for_gpu = false)
      : from_(&from), data_(for_gpu ? from.allocate_for_gpu(bytes) : from.allocate(bytes)), bytes_(bytes) {}
  dma_buffer(dma_buffer&& other) noexcept { swap(other); }
  dma_buffer& operator=(dma_buffer&& other) noexcept {
    dma_buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~dma_buffer() {
    if (data_ != nullptr) from_->deallocate(data_);
  }

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size_bytes() const { return bytes_; }
  std::uint64_t bus_address(std::size_t offset_bytes = 0) const { return from_->bus_address(data() + offset_bytes); }
  void clear() { from_->clear(data_, bytes_); }
  /// Gives up ownership without freeing: for memory that a controller may still write.
  void leak() noexcept { data_ = nullptr; }
  void swap(dma_buffer& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

 private:
  dma_space* from_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace forebay::driver
