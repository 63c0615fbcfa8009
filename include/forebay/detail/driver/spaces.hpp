// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a driver needs in order to talk to a controller, and all that it knows of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "forebay/detail/nvme/registers.hpp"

namespace forebay::driver {

/// The controller's registers (NVMe 1.4, section 3.1). Implementations need not be thread-safe: one driver owns one.
class register_space {
 public:
  virtual ~register_space() = default;
  virtual std::uint32_t read32(std::uint32_t offset_bytes) = 0;
  virtual void write32(std::uint32_t offset_bytes, std::uint32_t value) = 0;
  /// 64-bit registers are two 32-bit accesses, low half first: some controllers drop wider ones.
  std::uint64_t read64(std::uint32_t offset_bytes) {
    std::uint64_t const low = read32(offset_bytes);
    return low | static_cast<std::uint64_t>(read32(offset_bytes + 4)) << 32;
  }
  void write64(std::uint32_t offset_bytes, std::uint64_t value) {
    write32(offset_bytes, static_cast<std::uint32_t>(value));
    write32(offset_bytes + 4, static_cast<std::uint32_t>(value >> 32));
  }
  /// The word to which a thread, on a GPU too, stores a doorbell value. It is the register itself, or lies in a page
  /// from which another thread relays values. Valid as long as this object. The admin queue's doorbells are rung by
  /// `write32`.
  virtual std::uint32_t* doorbell(std::uint32_t offset_bytes) = 0;
  /// The same for threads of a GPU, if that is a different word. A queue uses one of the two.
  virtual std::uint32_t* doorbell_for_gpu(std::uint32_t offset_bytes) { return doorbell(offset_bytes); }
  /// Whether the device has left its bus, as far as is known without a wait for it.
  virtual bool has_left() { return read32(nvme::registers::csts) == nvme::removed_value; }
};

/// Memory that the controller may read and write. Thread-safe.
class dma_space {
 public:
  virtual ~dma_space() = default;
  /// Zeroed memory that starts on a page of `page_bytes()` and is mapped for the controller. Throws on exhaustion.
  virtual void* allocate(std::size_t bytes) = 0;
  /// The same, in the place that threads of a GPU reach fastest; the host may then reach it by `clear` alone.
  virtual void* allocate_for_gpu(std::size_t bytes) { return allocate(bytes); }
  virtual void deallocate(void* address) noexcept = 0;
  /// Zeroes memory that came from `allocate` or `allocate_for_gpu`.
  virtual void clear(void* address, std::size_t bytes) { std::memset(address, 0, bytes); }
  /// Comes before the `map` of memory that the user allocated. If the controller is in another process, this lets that
  /// process reach the allocation, until the controller is closed. Throws `refused_input` if it cannot.
  virtual void lend(void* /*address*/, std::size_t /*bytes*/) {}
  /// Makes memory that the caller owns reachable; `address` and `bytes` must be multiples of `page_bytes()`.
  virtual void map(void* address, std::size_t bytes) = 0;
  /// As `map`, for memory that other processes have mapped too: all `bytes` of a file, which consists of pages of
  /// `shared_page_bytes()`, all of them there. `unmap` undoes it.
  virtual void map_shared(void* address, std::size_t bytes, int /*file*/) { map(address, bytes); }
  virtual std::size_t shared_page_bytes() const { return page_bytes(); }
  /// Exactly a range that was mapped; of several, the one that was mapped first. The caller guarantees that no command
  /// in flight names the memory.
  virtual void unmap(void* address, std::size_t bytes) = 0;
  /// The address that the controller uses for the byte at `address`. Contiguous only within a page.
  virtual std::uint64_t bus_address(void const* address) const = 0;
  virtual std::size_t page_bytes() const = 0;
};

}  // namespace forebay::driver
