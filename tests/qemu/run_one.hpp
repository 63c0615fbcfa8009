// SPDX-License-Identifier: Apache-2.0
//! \file
//! One command at a time in a pair of queues, by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "forebay/detail/driver/io_queue.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::test {

/// Runs one I/O command in an otherwise idle queue, at the slot and phase that `turn` says. Returns its status field.
inline std::uint16_t run_one(driver::io_queue const& queue, nvme::submission_entry const& entry, std::uint32_t turn) {
  using simt::native;
  queue.submission_ring()[turn % queue.entries()] = entry;
  native::fence(simt::scope::system, simt::order::release);  // pairs with the relay's exchange of the doorbell word
  native::st_mmio(queue.sq_tail_doorbell(), (turn + 1) % queue.entries());
  nvme::completion_entry& slot = queue.completion_ring()[turn % queue.completion_entries()];
  std::uint32_t const phase = 1 ^ (turn / queue.completion_entries() & 1);
  nvme::completion_entry seen;
  bool const completed = native::wait_until(
      [&] {
        // Acquire: pairs with the controller's store of the phase tag.
        seen.dw3 = simt::atomic<native, simt::scope::system>(slot.dw3).load(simt::order::acquire);
        return seen.phase() == phase;
      },
      native::clock_ns() + 20'000'000'000);
  EXPECT_TRUE(completed) << "no completion";
  native::st_mmio(queue.cq_head_doorbell(), (turn + 1) % queue.completion_entries());
  return static_cast<std::uint16_t>(seen.status_field() & nvme::status_code_mask);
}

}  // namespace forebay::test
