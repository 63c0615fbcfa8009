// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes a queue pair with a controller that posts any completion entry at any time.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emulator/fuzz_input.hpp"
#include "support/demand.hpp"
#include "support/hand_driven.hpp"

namespace {

using namespace forebay;
using emulator::testing::choices;
using test::demand;

constexpr std::uint32_t ring = 8;
constexpr std::uint32_t records = 6;

bool within(std::uint64_t address, void const* first, std::size_t bytes) {
  return address - reinterpret_cast<std::uint64_t>(first) < bytes;
}

void check_entry(test::hand_driven const& drive, nvme::submission_entry const& entry) {
  if (entry.prp1 == 0) return;
  demand(within(entry.prp1, drive.data.data(), drive.data.size()), "PRP entry 1 names the buffer");
  demand(entry.prp2 == 0 || within(entry.prp2, drive.data.data(), drive.data.size()) ||
             within(entry.prp2, drive.lists.data(), drive.lists.size()),
         "PRP entry 2 names the buffer, or a list");
  demand(entry.command_id() < ring - 1, "command ids are those of the queue");
}

io_command transfer(test::hand_driven& drive, choices& pick) {
  io_command command;
  if (pick.rarely(64)) return command;
  std::uint64_t const offset = 4 * pick.below(1024);
  command.opcode = pick.rarely(128) ? nvme::io_opcode::read : nvme::io_opcode::write;
  command.blocks = 1 + pick.below(24);
  command.bytes = command.blocks * 512;
  command.slba = pick.byte();
  command.buffer = buffer_ref(drive.data.data(), drive.data.size(), reinterpret_cast<std::uint64_t>(drive.data.data()))
                       .subspan(offset, command.bytes);
  if (command.buffer.size_bytes() == 0) command = {};
  return command;
}

void post(test::hand_driven& drive, choices& pick) {
  if (pick.rarely(128)) {
    // Where the queue looks next.
    auto const id = static_cast<std::uint16_t>(pick.rarely(32) ? pick.word<std::uint16_t>() : pick.below(ring));
    auto const head = static_cast<std::uint16_t>(pick.rarely(32) ? pick.word<std::uint16_t>() : pick.below(ring));
    drive.complete(id, head, pick.rarely(32) ? pick.word<std::uint16_t>() & 0x7fff : 0);
    return;
  }
  nvme::completion_entry entry;
  entry.dw0 = pick.word<std::uint32_t>();
  entry.dw2 = pick.word<std::uint32_t>();
  entry.dw3 = pick.rarely(128)
                  ? pick.word<std::uint32_t>()
                  : nvme::completion_entry::make_dw3(static_cast<std::uint16_t>(pick.below(ring)), pick.below(2), 0);
  drive.cq[pick.below(ring)] = entry;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  emulator::testing::fuzz_input const input(data, data + size);
  choices pick(input);
  test::hand_driven drive(records, test::hand_driven::patient, ring);
  std::vector<std::uint32_t> waited_for;
  while (!pick.done()) {
    switch (pick.below(4)) {
      case 0: {
        if (waited_for.size() == records) break;
        std::uint32_t const record = drive.ref().records().try_open(1);
        demand(record != slot_pool::none, "a record that nothing uses is free");
        waited_for.push_back(record);
        if (!drive.submit(record, transfer(drive, pick)).ok()) {
          drive.ref().records().complete(record, fault::busy, 1);
        }
        break;
      }
      case 1:
      case 2:
        post(drive, pick);
        break;
      default:
        drive.poll();
    }
    for (nvme::submission_entry const& entry : drive.sq) check_entry(drive, entry);
    demand(drive.sq_doorbell < ring && drive.cq_doorbell < ring, "doorbells are told places of the rings");
  }
  // As recovery does once it has deleted the queue.
  drive.queues.declare_dead(0);
  while (drive.poll()) {
  }
  for (std::uint32_t const record : waited_for) (void)drive.token_of(record).wait();
  for (std::uint32_t i = 0; i < records; ++i) {
    demand(drive.ref().records().try_open(1) != slot_pool::none, "every record is free again");
  }
  return 0;
}
