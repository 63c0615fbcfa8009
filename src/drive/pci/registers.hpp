// SPDX-License-Identifier: Apache-2.0
//! \file
//! Registers of a controller that are mapped into this process, and which way its doorbells are rung.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "forebay/detail/driver/doorbell_relay.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/memory.hpp"

namespace forebay::drive::pci {

/// What stores to a doorbell's register: the thread that rings, or a `driver::doorbell_relay`. `any` relays where
/// threads of a GPU ring and the GPU cannot reach the registers.
enum class doorbell_way : std::uint8_t { any, direct, relay };

/// The value of a URI's key `doorbells`. Throws `refused_input`.
doorbell_way doorbell_way_of(std::optional<std::string> const& asked);

struct doorbell_options {
  doorbell_way how = doorbell_way::any;
  std::uint32_t queues = 1024;  ///< I/O queue pairs that the controller has at most
  /// Of a relay: memory that the threads that ring reach.
  memory::resource* words = &memory::host();
  /// The GPU whose threads ring doorbells too; none: those of the host alone ring.
  std::optional<int> gpu = std::nullopt;
  /// As in `memory`; a test has others.
  std::function<std::byte*(int ordinal, void* address, std::size_t bytes)> lock_registers = memory::lock_registers;
  std::function<void(void* address)> unlock_registers = memory::unlock_registers;
};

/// Thread-safe.
class mapped_registers final : public driver::register_space {
 public:
  /// `first` is mapped as long as the object lives. Throws `refused_input` if the GPU is to reach the registers and
  /// cannot, and what `words` throws if it has no memory.
  mapped_registers(std::byte volatile* first, std::size_t bytes, doorbell_options options);
  mapped_registers(mapped_registers const&) = delete;
  mapped_registers& operator=(mapped_registers const&) = delete;
  /// Ends the relay. To take the registers away from a GPU may wait for all kernels of the process.
  ~mapped_registers() override;

  std::uint32_t read32(std::uint32_t offset_bytes) override;
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override;
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override;
  std::uint32_t* doorbell_for_gpu(std::uint32_t offset_bytes) override;

  /// Whether a relay rings for the client's threads: those of the GPU, if there is one.
  bool relays() const { return relay_ != nullptr; }

 private:
  std::uint32_t volatile* at(std::uint32_t offset_bytes) const;
  std::uint32_t* relayed(std::uint32_t offset_bytes) const;
  void start_relay();

  std::byte volatile* const first_;
  std::size_t const bytes_;
  doorbell_options const options_;
  std::byte* of_gpu_ = nullptr;     ///< where the GPU reaches the registers
  std::uint32_t stride_bytes_ = 0;  ///< from one doorbell to the next, if there is a relay
  std::unique_ptr<driver::doorbell_relay> relay_;
};

}  // namespace forebay::drive::pci
