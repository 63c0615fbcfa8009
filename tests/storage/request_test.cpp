// SPDX-License-Identifier: Apache-2.0
//! \file
//! Requests of several commands whose submission ends midway.
#include "forebay/detail/storage/request.hpp"

#include <gtest/gtest.h>

#include "forebay/status_text.hpp"
#include "forebay/storage_ref.hpp"
#include "support/hand_driven.hpp"

namespace forebay {
namespace {

using native = simt::native;
using test::hand_driven;

constexpr std::uint32_t commands = 8;
constexpr std::uint64_t block_bytes = 512;

storage_layout one_block_a_command() {
  storage_layout layout;
  layout.size_bytes = 1 << 20;
  layout.command_bytes_max = block_bytes;
  return layout;
}

/// For every k: the queue accepts k commands, and no more in time.
TEST(Request, WhoseKthCommandFindsNoRoomEndsOnceTheOthersHave) {
  for (std::uint32_t taken = 1; taken < commands; ++taken) {
    SCOPED_TRACE("of " + std::to_string(commands) + " commands " + std::to_string(taken));
    hand_driven drive(1, hand_driven::hasty, taken + 1);
    storage_ref<native> const storage(drive.ref(), one_block_a_command(), 0, 1 << 20, true);
    buffer_ref const buffer(drive.data.data(), drive.data.size(), reinterpret_cast<std::uint64_t>(drive.data.data()));
    auto token = storage.read_async(buffer, 0, commands * block_bytes);
    for (std::uint32_t k = 0; k < taken; ++k) {
      EXPECT_FALSE(token.ready()) << "the drive may still write to the buffer";
      EXPECT_EQ(drive.sq[k].slba(), k);
      drive.complete(drive.sq[k].command_id(), static_cast<std::uint16_t>((k + 1) % drive.entries));
    }
    EXPECT_EQ(to_string(token.wait(native::clock_ns() + 1'000'000'000)), to_string(status(fault::busy)));
    EXPECT_NE(drive.ref().records().try_open(1), slot_pool::none) << "its record is free again";
  }
}

TEST(Request, WhoseQueueDiesMidwayIsCancelledOnce) {
  hand_driven drive(1, hand_driven::hasty, 4);
  storage_ref<native> const storage(drive.ref(), one_block_a_command(), 0, 1 << 20, true);
  buffer_ref const buffer(drive.data.data(), drive.data.size(), reinterpret_cast<std::uint64_t>(drive.data.data()));
  drive.queues.declare_dead(0);
  EXPECT_EQ(to_string(storage.read(buffer, 0, commands * block_bytes)), to_string(status(fault::cancelled)));
  EXPECT_NE(drive.ref().records().try_open(1), slot_pool::none);
}

}  // namespace
}  // namespace forebay
