// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of a GPU as memory that a drive reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "../open_file.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/memory.hpp"
#include "gpu_addresses.hpp"
#include "mapped_areas.hpp"

namespace forebay::drive::pci {

/// A GPU's memory, as this process has it. A test has other memory that stands in for it.
struct gpu_memory {
  memory::resource* from;                              ///< where it is allocated
  std::function<bool(void const*)> has;                ///< whether an address is in it
  std::function<open_file(void*, std::size_t)> share;  ///< whole pages of it as a dma-buf
  std::function<void(void*, std::size_t)> clear;

  static gpu_memory of(int ordinal);
};

/// Host memory of another space, and memory of a GPU. Thread-safe.
class gpu_dma_space final : public driver::dma_space {
 public:
  /// What else has to happen to memory while functions reach it: `begin` comes before they do, `end` after, with what
  /// `begin` returned. By sysfs a guard keeps the memory.
  struct keeping {
    std::function<std::uint64_t(int file)> begin = [](int) { return std::uint64_t{0}; };
    std::function<void(std::uint64_t id, std::size_t bytes)> end = [](std::uint64_t, std::size_t) {};
  };

  /// All of them must outlive the object.
  gpu_dma_space(driver::dma_space& host, gpu_addresses& addresses, gpu_memory gpu, keeping keeper);
  ~gpu_dma_space() override;

  void* allocate(std::size_t bytes) override { return host_.allocate(bytes); }
  void* allocate_for_gpu(std::size_t bytes) override;
  void deallocate(void* address) noexcept override;
  void clear(void* address, std::size_t bytes) override;
  void map(void* address, std::size_t bytes) override;
  void map_shared(void* address, std::size_t bytes, int file) override { host_.map_shared(address, bytes, file); }
  std::size_t shared_page_bytes() const override { return host_.shared_page_bytes(); }
  void unmap(void* address, std::size_t bytes) override;
  std::uint64_t bus_address(void const* address) const override;
  std::size_t page_bytes() const override { return host_.page_bytes(); }

 private:
  /// Where the bus has a part of an area.
  struct part {
    std::size_t offset_bytes;
    std::uint64_t first;
  };
  struct reached {
    open_file file;
    std::vector<part> parts;  ///< by offset
    std::uint64_t kept;
  };
  using areas = mapped_areas<reached>;

  reached reach(void* address, std::size_t bytes);
  void end(areas::area const& one) noexcept;

  driver::dma_space& host_;
  gpu_addresses& addresses_;
  gpu_memory const gpu_;
  keeping const keeper_;
  mutable std::mutex mutex_;  ///< of what follows
  areas areas_;
};

}  // namespace forebay::drive::pci
