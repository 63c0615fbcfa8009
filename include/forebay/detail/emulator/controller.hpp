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

/// One client's access to a subsystem. When it is destroyed, its queues go with it: nothing touches the client's memory
/// any more. Any thread may call its members.
class controller {
 public:
  /// Takes `queues` of the subsystem's I/O queue pairs. Registers and the DMA space's allocations lie in
  /// `client_memory`. For an engine on a GPU, what is allocated for a GPU lies in `gpu_memory`, which may be different.
  /// The I/O doorbells, which the engine polls, then lie in `doorbell_memory` (null: in the memory of the engine's GPU,
  /// and where `gpu_memory` is). Throws `refused_input` if fewer pairs are left.
  controller(std::shared_ptr<subsystem> of, std::uint32_t queues, memory::resource& client_memory = memory::host(),
             memory::resource* gpu_memory = nullptr, memory::resource* doorbell_memory = nullptr);
  /// A controller with a subsystem of its own, of which it is the only controller.
  controller(subsystem_options const& options, std::unique_ptr<backing_store> store,
             memory::resource& client_memory = memory::host());
  ~controller();
  controller(controller const&) = delete;
  controller& operator=(controller const&) = delete;

  /// Does what the destructor does, for a caller that must know whether it succeeded; no other member may be called
  /// afterwards. False: the engine did not release the controller's queues within
  /// `subsystem_options::leave_timeout_ns`, or has failed. Memory that was allocated here is then never freed. Memory
  /// from which `client_memory` and the like are made, and memory that was mapped, must not be freed either.
  bool leave() noexcept;

  driver::register_space& registers();
  driver::dma_space& dma();
  subsystem& shared() const;

 private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

}  // namespace forebay::emulator
