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
#include <vector>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/medium.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// The registers of section 3.1 as words in memory that every thread, on a GPU too, reaches. Doorbells lie 4 bytes
/// apart. If the units are on a GPU, I/O doorbells have a second word in the GPU's memory. Units read only that word,
/// and `relay` copies to it what host threads store to the first word.
class register_file final : public driver::register_space {
 public:
  /// After each write by `write32`, `written` is called from the writer's thread. `gpu_memory`: of the GPU that the
  /// units are on; null for units on the CPU.
  register_file(std::uint32_t max_queues, memory::resource& from, std::function<void()> written,
                memory::resource* gpu_memory = nullptr);

  std::uint32_t read32(std::uint32_t offset_bytes) override;
  /// Ignores writes to registers that are read-only for a host, and writes past the last doorbell.
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override;
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override;
  std::uint32_t* doorbell_for_gpu(std::uint32_t offset_bytes) override;

  /// The controller's side: reads any register, ordered like device registers.
  std::uint32_t get(std::uint32_t offset_bytes);
  void set(std::uint32_t offset_bytes, std::uint32_t value);
  /// The word of an I/O doorbell that units read; it is set to 0.
  std::uint32_t* fresh_doorbell(std::uint32_t offset_bytes);
  void clear_doorbells();
  /// Copies doorbells that host threads wrote to where units on a GPU read them. Returns whether there were any.
  bool relay();
  std::uint32_t max_queues() const { return max_queues_; }

 private:
  std::uint32_t& word(std::uint32_t offset_bytes) { return memory_.as<std::uint32_t>()[offset_bytes / 4]; }

  std::uint32_t max_queues_;
  memory::allocation memory_;
  std::function<void()> written_;

  struct relayed_doorbell {
    std::uint32_t offset_bytes;
    std::uint32_t last;
  };
  std::uint32_t* gpu_word(std::uint32_t offset_bytes) const {
    return gpu_doorbells_.as<std::uint32_t>() + offset_bytes / 4;
  }
  void check_doorbell(std::uint32_t offset_bytes) const;
  void watch(std::uint32_t offset_bytes);

  memory::allocation gpu_doorbells_;  ///< by the registers' offsets; empty for units on the CPU
  std::mutex relay_mutex_;
  std::vector<relayed_doorbell> relayed_;  ///< doorbells that host threads have asked for
};

/// Registers its memory with the controller's regions. Thread-safe.
class dma_space final : public driver::dma_space {
 public:
  /// `from`: the resource from which `allocate` takes memory; pinned memory if GPUs are clients. `gpu_memory`: the
  /// resource for `allocate_for_gpu`, if that is a different one. `of_host`, if given, has only memory that host
  /// threads reach too. `told`, if given, is told of all memory.
  dma_space(dma_regions& regions, memory::resource& from, memory::resource* gpu_memory = nullptr,
            dma_regions* of_host = nullptr, medium* told = nullptr)
      : regions_(regions),
        of_host_(of_host),
        told_(told),
        from_(from),
        for_gpu_(gpu_memory != nullptr ? *gpu_memory : from) {}
  ~dma_space() override;
  dma_space(dma_space const&) = delete;
  dma_space& operator=(dma_space const&) = delete;

  void* allocate(std::size_t bytes) override { return allocate(bytes, from_); }
  void* allocate_for_gpu(std::size_t bytes) override { return allocate(bytes, for_gpu_); }
  void deallocate(void* address) noexcept override;
  void clear(void* address, std::size_t bytes) override;
  void map(void* address, std::size_t bytes) override;
  void unmap(void* address, std::size_t bytes) override;
  std::uint64_t bus_address(void const* address) const override { return reinterpret_cast<std::uint64_t>(address); }
  std::size_t page_bytes() const override { return dma_page_bytes; }

 private:
  struct owned_block {
    std::size_t bytes;
    memory::resource* from;
  };
  void* allocate(std::size_t bytes, memory::resource& from);
  void add(void const* address, std::size_t bytes, bool host_reaches);
  void remove(void const* address, std::size_t bytes);

  dma_regions& regions_;
  dma_regions* of_host_;
  medium* told_;
  memory::resource& from_;
  memory::resource& for_gpu_;
  std::mutex mutex_;
  std::unordered_map<void*, owned_block> allocations_;
};

}  // namespace forebay::emulator
