// SPDX-License-Identifier: Apache-2.0
//! \file
//! A controller that does what a test tells it to, including what no working one does. It acts within each register
//! write, so that no test waits for it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::test {

/// Memory of this process whose bus address is the pointer. Counts allocations that are not freed.
class counted_memory final : public driver::dma_space {
 public:
  ~counted_memory() override {
    for (auto const& [address, bytes] : held_) std::free(address);
  }
  void* allocate(std::size_t bytes) override {
    std::lock_guard const lock(mutex_);
    bytes = (bytes + page_size - 1) / page_size * page_size;
    void* const address = std::aligned_alloc(page_size, bytes);
    std::memset(address, 0, bytes);
    held_[address] = bytes;
    return address;
  }
  void deallocate(void* address) noexcept override {
    std::lock_guard const lock(mutex_);
    std::memset(address, 0xdd, held_[address]);
    held_.erase(address);
    std::free(address);
  }
  void map(void*, std::size_t) override {}
  void unmap(void*, std::size_t) override {}
  std::uint64_t bus_address(void const* address) const override {
    auto const bus = reinterpret_cast<std::uint64_t>(address);
    return scattered ? bus ^ (bus & page_size) << 30 : bus;
  }
  std::size_t page_bytes() const override { return page_size; }
  std::size_t held() const {
    std::lock_guard const lock(mutex_);
    return held_.size();
  }

  bool scattered = false;  ///< every second page lies elsewhere on the bus

 private:
  static constexpr std::size_t page_size = 4096;
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> held_;
};

class fake_controller final : public driver::register_space {
 public:
  struct reply {
    std::uint16_t status_field = 0;
    std::uint32_t dw0 = 0;
  };
  struct write {
    std::uint32_t offset;
    std::uint32_t value;
    bool operator==(write const&) const = default;
  };

  fake_controller() {
    std::memset(identify.sn, ' ', sizeof identify.sn);
    std::memcpy(identify.sn, "FAKE 1", 6);
    std::memset(identify.mn, ' ', sizeof identify.mn);
    identify.ver = version;
    identify.mdts = 5;
    identify.nn = 1;
    identify.vwc = 1;
    name_space.nsze = name_space.ncap = name_space.nuse = 1000;
    name_space.lbaf[0].lbads = 9;
  }

  // Settings that the test may change before or between the driver's calls.
  std::uint64_t capabilities = nvme::controller_capabilities::make(1024, true, 1, 0, 1, 0, 4);
  nvme::identify_controller identify;
  nvme::identify_namespace name_space;
  std::vector<std::uint32_t> active = {1};
  std::uint32_t granted_queues = 4;
  bool removed = false;          ///< registers read as all ones
  bool becomes_ready = true;     ///< CSTS.RDY follows CC.EN when it is set
  bool stops = true;             ///< CSTS.RDY follows CC.EN when it is cleared
  bool fatal_at_enable = false;  ///< CSTS.CFS instead of CSTS.RDY
  bool completes_shutdown = true;
  bool hides_configuration = false;   ///< CC reads as 0
  std::uint64_t status_delay_ns = 0;  ///< after each change of CC.EN a read of CSTS is too early for this long
  std::uint32_t window_bytes = ~0u;   ///< of the registers: there are no doorbells of I/O queues behind it
  /// The status of each Create, Delete or other command by opcode; other commands succeed.
  std::map<nvme::admin_opcode, std::uint16_t> refuse;
  /// What to do with a command: reply, or say nothing. Commands without an answer stay with `withheld()`.
  std::function<std::optional<reply>(nvme::submission_entry const&)> handler = [this](nvme::submission_entry const& e) {
    return std::optional(answer(e));
  };

  // State that the test may look at.
  std::vector<write> writes() const {
    std::lock_guard const lock(mutex_);
    return writes_;
  }
  std::vector<nvme::submission_entry> commands() const {
    std::lock_guard const lock(mutex_);
    return commands_;
  }
  std::size_t withheld() const {
    std::lock_guard const lock(mutex_);
    return withheld_.size();
  }

  /// How often CSTS was read too early.
  std::uint32_t early_reads() const {
    std::lock_guard const lock(mutex_);
    return early_reads_;
  }

  /// The answer of a controller that works.
  reply answer(nvme::submission_entry const& e) {
    auto const opcode = static_cast<nvme::admin_opcode>(e.opcode());
    if (auto const found = refuse.find(opcode); found != refuse.end()) return {found->second, 0};
    switch (opcode) {
      case nvme::admin_opcode::identify: {
        auto* const page = reinterpret_cast<void*>(e.prp1);
        switch (static_cast<nvme::identify_cns>(e.cdw10 & 0xff)) {
          case nvme::identify_cns::identify_controller:
            std::memcpy(page, &identify, sizeof identify);
            break;
          case nvme::identify_cns::identify_namespace:
            std::memcpy(page, &name_space, sizeof name_space);
            break;
          case nvme::identify_cns::active_namespace_list: {
            auto* next = static_cast<std::uint32_t*>(page);
            for (std::uint32_t const id : active) {
              if (id > e.nsid) *next++ = id;
            }
            break;
          }
          default:
            return {nvme::status_field(nvme::generic_status::invalid_field_in_command), 0};
        }
        return {};
      }
      case nvme::admin_opcode::set_features:
        return {0, nvme::number_of_queues::make(granted_queues, granted_queues)};
      case nvme::admin_opcode::abort:
        return {0, 1};
      default:
        return {};
    }
  }

  /// Completes a command now, under whatever id.
  void complete(std::uint16_t command_id, reply const& r) {
    std::lock_guard const lock(mutex_);
    complete_locked(command_id, r);
  }
  void raise_fatal() {
    std::lock_guard const lock(mutex_);
    csts_ |= nvme::controller_status::fatal_bit;
  }

  std::uint32_t read32(std::uint32_t offset) override {
    std::lock_guard const lock(mutex_);
    if (removed) return nvme::removed_value;
    switch (offset) {
      case nvme::registers::cap:
        return static_cast<std::uint32_t>(capabilities);
      case nvme::registers::cap + 4:
        return static_cast<std::uint32_t>(capabilities >> 32);
      case nvme::registers::vs:
        return version;
      case nvme::registers::csts:
        if (simt::native::clock_ns() < readable_at_ns_) ++early_reads_;
        if (stops && !nvme::controller_configuration{file_[nvme::registers::cc]}.enabled()) csts_ = 0;
        return csts_;
      case nvme::registers::cc:
        return hides_configuration ? 0 : file_[offset];
      default:
        return file_[offset];
    }
  }

  void write32(std::uint32_t offset, std::uint32_t value) override {
    std::lock_guard const lock(mutex_);
    if (removed) return;
    writes_.push_back({offset, value});
    std::uint32_t const before = file_[offset];
    file_[offset] = value;
    if (offset == nvme::registers::cc) {
      if (nvme::controller_configuration{before}.enabled() != nvme::controller_configuration{value}.enabled()) {
        readable_at_ns_ = simt::native::clock_ns() + status_delay_ns;
      }
      configure_locked({value});
    }
    if (offset == nvme::registers::sq_tail_doorbell(0, stride())) fetch_locked(value);
  }

  std::uint32_t* doorbell(std::uint32_t offset) override {
    if (offset >= window_bytes) throw operation_failed("no register is there");
    return &doorbells_[offset];
  }

 private:
  static constexpr std::uint32_t version = nvme::controller_version::make(1, 4, 0);

  std::uint32_t stride() const { return nvme::controller_capabilities{capabilities}.doorbell_stride(); }
  nvme::admin_queue_attributes attributes_locked() { return {file_[nvme::registers::aqa]}; }
  std::uint64_t address_locked(std::uint32_t offset) {
    return file_[offset] | static_cast<std::uint64_t>(file_[offset + 4]) << 32;
  }

  void configure_locked(nvme::controller_configuration cc) {
    bool const ready = (csts_ & nvme::controller_status::ready_bit) != 0;
    if (cc.enabled() && !ready) {
      head_ = cq_tail_ = 0;
      phase_ = 1;
      csts_ = fatal_at_enable ? nvme::controller_status::fatal_bit
              : becomes_ready ? nvme::controller_status::ready_bit
                              : 0;
    } else if (!cc.enabled()) {
      withheld_.clear();
    }
    if (cc.shutdown() != nvme::shutdown_notification::none && completes_shutdown) {
      csts_ |= static_cast<std::uint32_t>(nvme::shutdown_status::complete) << 2;
    }
  }

  void fetch_locked(std::uint32_t tail) {
    auto const* const ring = reinterpret_cast<nvme::submission_entry const*>(address_locked(nvme::registers::asq));
    while (head_ != tail) {
      nvme::submission_entry const entry = ring[head_];
      head_ = (head_ + 1) % attributes_locked().sq_entries();
      commands_.push_back(entry);
      if (std::optional<reply> const r = handler(entry)) {
        complete_locked(entry.command_id(), *r);
      } else {
        withheld_.push_back(entry);
      }
    }
  }

  void complete_locked(std::uint16_t command_id, reply const& r) {
    auto* const ring = reinterpret_cast<nvme::completion_entry*>(address_locked(nvme::registers::acq));
    nvme::completion_entry& slot = ring[cq_tail_];
    slot.dw0 = r.dw0;
    slot.dw2 = nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(head_), 0);
    slot.dw3 = nvme::completion_entry::make_dw3(command_id, phase_, r.status_field);
    if (++cq_tail_ == attributes_locked().cq_entries()) {
      cq_tail_ = 0;
      phase_ ^= 1;
    }
    std::erase_if(withheld_, [&](nvme::submission_entry const& e) { return e.command_id() == command_id; });
  }

  /// Recursive: a handler may complete another command.
  mutable std::recursive_mutex mutex_;
  std::map<std::uint32_t, std::uint32_t> file_;
  std::map<std::uint32_t, std::uint32_t> doorbells_;
  std::vector<write> writes_;
  std::vector<nvme::submission_entry> commands_;
  std::vector<nvme::submission_entry> withheld_;
  std::uint32_t csts_ = 0;
  std::uint64_t readable_at_ns_ = 0;
  std::uint32_t early_reads_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t cq_tail_ = 0;
  std::uint32_t phase_ = 1;
};

}  // namespace forebay::test
