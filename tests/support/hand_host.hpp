// SPDX-License-Identifier: Apache-2.0
//! \file
//! A host that drives a controller by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::test {

namespace registers = nvme::registers;
using nvme::admin_opcode;
inline constexpr std::uint64_t patience_ns = 20'000'000'000;

template <class Predicate>
bool eventually(Predicate&& predicate) {
  return simt::native::wait_until(predicate, simt::native::clock_ns() + patience_ns);
}

/// A host that speaks to the registers and rings by hand.
class hand_host {
 public:
  hand_host(driver::register_space& registers, driver::dma_space& dma) : regs_(registers), dma_(dma) {
    asq_ = static_cast<nvme::submission_entry*>(dma_.allocate(4096));
    acq_ = static_cast<nvme::completion_entry*>(dma_.allocate(4096));
    data_ = static_cast<std::byte*>(dma_.allocate(1 << 20));
  }
  ~hand_host() {
    disable();
    for (void* memory : {static_cast<void*>(asq_), static_cast<void*>(acq_), static_cast<void*>(data_)}) {
      dma_.deallocate(memory);
    }
  }
  void set_up(std::uint64_t asq, std::uint64_t acq, std::uint32_t entries = entries_) {
    regs_.write32(registers::aqa, nvme::admin_queue_attributes::make(entries, entries));
    regs_.write64(registers::asq, asq);
    regs_.write64(registers::acq, acq);
    tail_ = 0;
    std::fill_n(acq_, 4096 / sizeof(nvme::completion_entry), nvme::completion_entry{});
    head_ = 0;
  }
  void enable() {
    set_up(address(asq_), address(acq_));
    regs_.write32(registers::cc, nvme::controller_configuration::make(true, 4096));
    ASSERT_TRUE(eventually([&] { return csts().ready(); }));
  }
  void disable() {
    regs_.write32(registers::cc, 0);
    ASSERT_TRUE(eventually([&] { return regs_.read32(registers::csts) == 0; }));
  }
  nvme::controller_status csts() { return {regs_.read32(registers::csts)}; }

  void start(nvme::submission_entry const& entry) {
    asq_[tail_ % entries_] = entry;
    asq_[tail_ % entries_].set_command_id(static_cast<std::uint16_t>(tail_));
    ++tail_;
    regs_.write32(registers::sq_tail_doorbell(0, 0), tail_ % entries_);
  }
  /// The next admin completion, in the order of posting.
  nvme::completion_entry take() {
    nvme::completion_entry& entry = acq_[head_ % entries_];
    std::uint32_t const phase = head_ / entries_ % 2 == 0 ? 1 : 0;
    // Acquire: pairs with the controller's release of the same word.
    EXPECT_TRUE(
        eventually([&] { return (std::atomic_ref(entry.dw3).load(std::memory_order_acquire) >> 16 & 1) == phase; }));
    nvme::completion_entry const copy = entry;
    ++head_;
    regs_.write32(registers::cq_head_doorbell(0, 0), head_ % entries_);
    return copy;
  }
  nvme::completion_entry run(nvme::submission_entry const& entry) {
    start(entry);
    return take();
  }
  std::uint16_t code(nvme::submission_entry const& entry) {
    return static_cast<std::uint16_t>(run(entry).status_field() & nvme::status_code_mask);
  }

  nvme::submission_entry admin(admin_opcode opcode, std::uint32_t cdw10 = 0, std::uint32_t cdw11 = 0) {
    nvme::submission_entry entry;
    entry.cdw0 = static_cast<std::uint8_t>(opcode);
    entry.prp1 = address(data_);
    entry.cdw10 = cdw10;
    entry.cdw11 = cdw11;
    return entry;
  }
  template <class T>
  T& data() {
    return *reinterpret_cast<T*>(data_);
  }
  std::uint64_t data_address(std::uint64_t offset = 0) { return address(data_) + offset; }
  driver::register_space& regs() { return regs_; }
  driver::dma_space& dma() { return dma_; }

 private:
  std::uint64_t address(void const* memory) const { return dma_.bus_address(memory); }
  static constexpr std::uint32_t entries_ = 16;
  driver::register_space& regs_;
  driver::dma_space& dma_;
  nvme::submission_entry* asq_;
  nvme::completion_entry* acq_;
  std::byte* data_;
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
};

}  // namespace forebay::test
