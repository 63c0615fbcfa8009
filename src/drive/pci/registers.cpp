// SPDX-License-Identifier: Apache-2.0
#include "registers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::pci {
namespace {

namespace registers = nvme::registers;
using simt::native;

/// A relay's words lie close together, as if the controller had the smallest stride.
constexpr std::uint32_t word_bytes = sizeof(std::uint32_t);

}  // namespace

doorbell_way doorbell_way_of(std::optional<std::string> const& asked) {
  if (!asked || *asked == "auto") return doorbell_way::any;
  if (*asked == "direct") return doorbell_way::direct;
  if (*asked == "relay") return doorbell_way::relay;
  throw refused_input("doorbells", *asked, "give auto, direct or relay");
}

mapped_registers::mapped_registers(std::byte volatile* first, std::size_t bytes, doorbell_options options)
    : first_(first), bytes_(bytes), options_(std::move(options)) {
  bool relays = options_.how == doorbell_way::relay;
  if (options_.gpu && !relays) {
    try {
      of_gpu_ = options_.lock_registers(*options_.gpu, const_cast<std::byte*>(first_), bytes_);
    } catch (std::runtime_error const& refused) {
      if (options_.how == doorbell_way::direct) {
        throw refused_input(
            "doorbells", "direct",
            fmt::format("NVIDIA's driver refuses to let GPU {} write to the drive's registers ({}); use auto or relay",
                        *options_.gpu, refused.what()));
      }
      relays = true;
    }
  }
  if (relays) start_relay();
}

mapped_registers::~mapped_registers() {
  relay_.reset();
  if (of_gpu_ != nullptr) options_.unlock_registers(const_cast<std::byte*>(first_));
}

void mapped_registers::start_relay() {
  nvme::controller_capabilities const capabilities{read64(registers::cap)};
  stride_bytes_ = registers::doorbell_stride_bytes(capabilities.doorbell_stride());
  // The admin queue's too, which nobody asks for, so that a word has the same place among words as its register.
  std::uint64_t const in_window =
      bytes_ > registers::doorbell_base ? (bytes_ - registers::doorbell_base) / stride_bytes_ : 0;
  std::uint64_t const wanted = 2 * (std::uint64_t{options_.queues} + 1);
  auto const words = static_cast<std::uint32_t>(std::max<std::uint64_t>(std::min(in_window, wanted), 1));
  relay_ = std::make_unique<driver::doorbell_relay>(
      *options_.words, words, [this](std::uint32_t offset_bytes, std::uint32_t value) {
        std::uint32_t const word = (offset_bytes - registers::doorbell_base) / word_bytes;
        // `relayed` gave this word out, so the register is in the window.
        native::st_mmio(const_cast<std::uint32_t*>(at(registers::doorbell_base + word * stride_bytes_)), value);
      });
}

std::uint32_t mapped_registers::read32(std::uint32_t offset_bytes) {
  return *at(offset_bytes);
}

void mapped_registers::write32(std::uint32_t offset_bytes, std::uint32_t value) {
  // The write cannot overtake a doorbell that was stored before it, as it could not on a bus: the doorbell might be
  // that of a queue which this write deletes.
  if (relay_) relay_->forward_stored();
  *at(offset_bytes) = value;
}

std::uint32_t* mapped_registers::doorbell(std::uint32_t offset_bytes) {
  if (relay_ && !options_.gpu) return relayed(offset_bytes);
  return const_cast<std::uint32_t*>(at(offset_bytes));
}

std::uint32_t* mapped_registers::doorbell_for_gpu(std::uint32_t offset_bytes) {
  if (relay_) return relayed(offset_bytes);
  auto* const here = const_cast<std::uint32_t*>(at(offset_bytes));
  return of_gpu_ == nullptr ? here : reinterpret_cast<std::uint32_t*>(of_gpu_ + offset_bytes);
}

std::uint32_t volatile* mapped_registers::at(std::uint32_t offset_bytes) const {
  if (offset_bytes % 4 != 0 || offset_bytes > bytes_ - 4) {
    throw operation_failed(
        fmt::format("the controller has no register at {}: its window has {} bytes", offset_bytes, bytes_));
  }
  return reinterpret_cast<std::uint32_t volatile*>(first_ + offset_bytes);
}

std::uint32_t* mapped_registers::relayed(std::uint32_t offset_bytes) const {
  at(offset_bytes);  // throws if there is no such register
  std::uint32_t const place = offset_bytes - registers::doorbell_base;
  try {
    if (offset_bytes >= registers::doorbell_base && place % stride_bytes_ == 0) {
      return relay_->word(registers::doorbell_base + place / stride_bytes_ * word_bytes);
    }
  } catch (std::out_of_range const&) {
    // Told below.
  }
  throw operation_failed(fmt::format("no doorbell of {} queue pairs is at {}", options_.queues, offset_bytes));
}

}  // namespace forebay::drive::pci
