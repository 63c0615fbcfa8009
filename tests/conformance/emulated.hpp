// SPDX-License-Identifier: Apache-2.0
//! \file
//! The emulated controller as a target, with its engine on CPU threads or on a GPU.
#pragma once

#include <optional>
#include <string>

#include "conformance/conformance.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/memory.hpp"

namespace forebay::conformance {

class emulated_target : public target {
 public:
  /// The bytes live in `media_memory`, what the driver allocates in `client_memory`.
  explicit emulated_target(std::optional<emulator::gpu_residency> const& gpu = std::nullopt,
                           memory::resource& media_memory = memory::host(),
                           memory::resource& client_memory = memory::host())
      : controller_(options(gpu), emulator::memory_backing(bytes, block, media_memory), client_memory) {}

  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  std::string serial() const override { return controller_.shared().options().serial; }
  std::uint64_t drive_bytes() const override { return bytes; }
  std::uint32_t block_bytes() const override { return block; }

 private:
  static constexpr std::uint64_t bytes = 64 << 20;
  static constexpr std::uint32_t block = 512;
  static emulator::subsystem_options options(std::optional<emulator::gpu_residency> const& gpu) {
    emulator::subsystem_options o;
    o.units = 2;
    o.max_queues = 16;
    o.mdts = 7;
    o.gpu = gpu;
    return o;
  }

  emulator::controller controller_;
};

}  // namespace forebay::conformance
