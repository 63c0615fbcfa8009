// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of a GPU as memory that a drive reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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
  /// Keeps what is behind a file when this process ends, until a function has stopped. `begin` returns a number for
  /// `end`, after which it does so no more.
  struct keeper {
    std::function<std::uint64_t(int file)> begin;
    std::function<void(std::uint64_t id, std::size_t bytes)> end;
  };

  /// `host` must outlive the object.
  gpu_dma_space(driver::dma_space& host, std::unique_ptr<gpu_addresses> addresses, gpu_memory gpu);
  /// What is still mapped or allocated stays as it is until the process ends: a function that did not stop may use it.
  ~gpu_dma_space() override;

  /// From now on `whose` keeps all that functions reach, until it leaves. Throws what `begin` throws.
  void join(void const* who, keeper whose);
  /// The keeper still keeps what it has.
  void leave(void const* who) noexcept;

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
  /// The first address on the bus of a part of an area.
  struct part {
    std::size_t offset_bytes;
    std::uint64_t first;
  };
  struct reached {
    open_file file;
    std::vector<part> parts;  ///< by offset
    std::map<void const*, std::uint64_t> kept;
  };
  using areas = mapped_areas<reached>;
  /// What outlives the object if a function may still use it.
  struct memory_of_functions {
    std::unique_ptr<gpu_addresses> addresses;
    areas mapped;
    std::unique_ptr<memory_of_functions> next;
  };

  bool has(void const* address) const;
  reached reach(void* address, std::size_t bytes);
  void keep(reached& its, void const* who, keeper const& whose);
  void let_go(reached& its, std::size_t bytes) noexcept;
  void end(areas::area& one) noexcept;

  driver::dma_space& host_;
  gpu_memory const gpu_;
  std::unique_ptr<memory_of_functions> its_ = std::make_unique<memory_of_functions>();
  gpu_addresses& addresses_;
  mutable std::mutex mutex_;  ///< of what follows
  std::map<void const*, keeper> keepers_;
  areas& areas_ = its_->mapped;
};

}  // namespace forebay::drive::pci
