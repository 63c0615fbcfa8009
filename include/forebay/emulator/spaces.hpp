// SPDX-License-Identifier: Apache-2.0
//! \file
//! The driver's side of an emulated controller in the same process: a register file in memory, and a DMA space whose
//! bus addresses are pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "forebay/driver/spaces.hpp"
#include "forebay/emulator/dma_regions.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay::emulator {

/// The registers of section 3.1 as words in memory that every thread, on a GPU too, reaches. Doorbells lie 4 bytes
/// apart.
class register_file final : public driver::register_space {
 public:
  /// `written` is called after each write by `write32`, from the writer's thread.
  register_file(std::uint32_t max_queues, memory::resource& from, std::function<void()> written);

  std::uint32_t read32(std::uint32_t offset_bytes) override;
  /// Writes to registers that are read-only for a host are ignored, and so are those past the last doorbell.
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override;
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override;

  /// The controller's side: any register, ordered like device registers.
  std::uint32_t get(std::uint32_t offset_bytes);
  void set(std::uint32_t offset_bytes, std::uint32_t value);
  void clear_doorbells();
  std::uint32_t max_queues() const { return max_queues_; }

 private:
  std::uint32_t& word(std::uint32_t offset_bytes) { return memory_.as<std::uint32_t>()[offset_bytes / 4]; }

  std::uint32_t max_queues_;
  memory::allocation memory_;
  std::function<void()> written_;
};

/// Registers what it is given with the controller's regions. Thread-safe.
class dma_space final : public driver::dma_space {
 public:
  /// `from` is where `allocate` takes memory from: pinned memory where GPUs are clients.
  dma_space(dma_regions& regions, memory::resource& from) : regions_(regions), from_(from) {}
  ~dma_space() override;
  dma_space(dma_space const&) = delete;
  dma_space& operator=(dma_space const&) = delete;

  void* allocate(std::size_t bytes) override;
  void deallocate(void* address) noexcept override;
  void map(void* address, std::size_t bytes) override;
  void unmap(void* address, std::size_t bytes) override;
  std::uint64_t bus_address(void const* address) const override { return reinterpret_cast<std::uint64_t>(address); }
  std::size_t page_bytes() const override { return dma_page_bytes; }

 private:
  dma_regions& regions_;
  memory::resource& from_;
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> allocations_;
};

}  // namespace forebay::emulator
