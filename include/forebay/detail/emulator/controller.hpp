// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole NVMe controller: registers and admin queue on the host, I/O queues served by the engine of its subsystem.
#pragma once

#include <cstdint>
#include <memory>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/emulator/subsystem.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// One client's way to a subsystem. When it goes, its queues go with it: nothing of the client's memory is touched any
/// more. Its members may be called from any thread.
class controller {
 public:
  /// Takes `queues` of the subsystem's I/O queue pairs. `client_memory` is where registers and the DMA space's
  /// allocations live; for an engine on a GPU, `gpu_memory` is where what is allocated for a GPU does, which may be
  /// another, and `doorbell_memory` where the I/O doorbells do, which the engine polls (null: in the engine's GPU's
  /// memory, and where `gpu_memory` is). Throws `refused_input` where fewer pairs are left.
  controller(std::shared_ptr<subsystem> of, std::uint32_t queues, memory::resource& client_memory = memory::host(),
             memory::resource* gpu_memory = nullptr, memory::resource* doorbell_memory = nullptr);
  /// The only controller of a subsystem of its own.
  controller(subsystem_options const& options, std::unique_ptr<backing_store> store,
             memory::resource& client_memory = memory::host());
  ~controller();
  controller(controller const&) = delete;
  controller& operator=(controller const&) = delete;

  /// What the destructor does, for who must know how it went; no other member may be called afterwards. False: the
  /// engine did not let go of the controller's queues in `subsystem_options::leave_timeout_ns`, or has failed. Then
  /// what was allocated here is never given back, and memory that `client_memory` and its like are made of, or that was
  /// mapped, must stay too.
  bool leave() noexcept;

  driver::register_space& registers();
  driver::dma_space& dma();
  subsystem& shared() const;

 private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

}  // namespace forebay::emulator
