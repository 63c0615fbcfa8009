// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "support/hand_host.hpp"

namespace forebay::emulator::testing {

/// A drive, and the results of its commands. It has one queue pair, of 64 entries.
class file_rig {
 public:
  explicit file_rig(std::string const& path, file_io io = file_io::automatic) : file_rig(make(path, io)) {}
  explicit file_rig(std::shared_ptr<subsystem> of) : drive(std::move(of)), controller_(drive, 1) {
    host_.enable();
    auto cq = host_.admin(nvme::admin_opcode::create_io_completion_queue, 1 | 63u << 16, 1);
    cq.prp1 = host_.data_address();
    EXPECT_EQ(host_.code(cq), 0);
    auto sq = host_.admin(nvme::admin_opcode::create_io_submission_queue, 1 | 63u << 16, 1 | 1u << 16);
    sq.prp1 = host_.data_address(4096);
    EXPECT_EQ(host_.code(sq), 0);
  }

  /// Submits a command on `pages` pages from page `page` on. Returns its number.
  std::uint32_t submit(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t pages = 1) {
    return submit_blocks(opcode, page * 8, pages * 8);
  }
  /// The same for blocks of 512 bytes, of which there are at most 16. Their data is at `data()`.
  std::uint32_t submit_blocks(nvme::io_opcode opcode, std::uint64_t block, std::uint32_t blocks) {
    std::uint32_t const number = static_cast<std::uint32_t>(statuses_.size());
    auto entry = nvme::make_io_command(opcode, static_cast<std::uint16_t>(number), 1, block, blocks);
    if (opcode == nvme::io_opcode::dataset_management) {
      entry.cdw10 = 0;
      entry.cdw11 = nvme::cdw11_attribute_deallocate;
      nvme::dataset_management_range const range{0, blocks, block};
      std::memcpy(data(), &range, sizeof range);
    }
    entry.prp1 = host_.data_address(65536);
    if (blocks > 8) entry.prp2 = host_.data_address(65536 + 4096);
    reinterpret_cast<nvme::submission_entry*>(host_.data_address(4096))[number % 64] = entry;
    statuses_.emplace_back();
    host_.regs().write32(nvme::registers::sq_tail_doorbell(1, 0), (number + 1) % 64);
    return number;
  }
  /// The status of a command; none while it is under way.
  std::optional<std::uint16_t> status_of(std::uint32_t number) {
    for (;;) {
      auto* const entries = reinterpret_cast<nvme::completion_entry*>(host_.data_address());
      nvme::completion_entry& entry = entries[completed_ % 64];
      std::uint32_t const phase = completed_ / 64 % 2 == 0 ? 1 : 0;
      // Acquire: pairs with the engine's release of the same word.
      std::uint32_t const dw3 = std::atomic_ref(entry.dw3).load(std::memory_order_acquire);
      if ((dw3 >> 16 & 1) != phase) return statuses_.at(number);
      statuses_.at(dw3 & 0xffff) = entry.status_field() & nvme::status_code_mask;
      ++completed_;
      host_.regs().write32(nvme::registers::cq_head_doorbell(1, 0), completed_ % 64);
    }
  }
  std::uint16_t wait(std::uint32_t number) {
    EXPECT_TRUE(test::eventually([&] { return status_of(number).has_value(); }));
    return status_of(number).value_or(0xffff);
  }
  std::uint16_t run(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t pages = 1) {
    return wait(submit(opcode, page, pages));
  }

  std::uint16_t run_blocks(nvme::io_opcode opcode, std::uint64_t block, std::uint32_t blocks) {
    return wait(submit_blocks(opcode, block, blocks));
  }

  char* data() { return reinterpret_cast<char*>(host_.data_address(65536)); }

  std::shared_ptr<subsystem> const drive;

 private:
  static std::shared_ptr<subsystem> make(std::string const& path, file_io io) {
    subsystem_options options;
    options.serial = "SERIAL7";
    options.max_queues = 1;
    return std::make_shared<subsystem>(options, file_backing(path, 0, 512, false, {}, io));
  }

  controller controller_;
  test::hand_host host_{controller_.registers(), controller_.dma()};
  std::vector<std::optional<std::uint16_t>> statuses_;
  std::uint32_t completed_ = 0;
};

}  // namespace forebay::emulator::testing
