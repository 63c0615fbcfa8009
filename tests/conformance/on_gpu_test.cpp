// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on the emulated controller with its engine on a GPU: always there, and there only while it is
//! needed; with the bytes in the GPU's memory and in the host's.
#include <gtest/gtest.h>

#include <memory>

#include "conformance/emulated.hpp"
#include "conformance/suite.hpp"
#include "conformance/whole_list.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/memory.hpp"
#include "support/hand_host.hpp"

namespace forebay::conformance {
namespace {

class resident_target final : public emulated_target {
 public:
  resident_target()
      : emulated_target(emulator::gpu_residency{.ordinal = 0, .stays = true}, memory::device(0), memory::pinned()) {}
};
class visiting_target final : public emulated_target {
 public:
  visiting_target()
      : emulated_target(emulator::gpu_residency{.ordinal = 0, .stays = false}, memory::pinned(), memory::pinned()) {}
};

}  // namespace

using resident = suite<resident_target>;
using visiting = suite<visiting_target>;

TEST_P(resident, conforms) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  run(on(), GetParam());
}
TEST_P(visiting, conforms) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  run(on(), GetParam());
}
TEST(conformance_list, is_run_whole_by_every_target_on_a_gpu) {
  expect_whole_list("on_gpu/", {"resident", "visiting"});
}
TEST(controller_on_gpu, admin_commands_do_not_reach_memory_of_the_gpu) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  emulator::subsystem_options options;
  options.gpu = emulator::gpu_residency{.ordinal = 0, .stays = false};
  auto const drive =
      std::make_shared<emulator::subsystem>(options, emulator::memory_backing(1 << 20, 512, memory::device(0)));
  emulator::controller one(drive, 2, memory::pinned(), &memory::device(0));
  test::hand_host client(one.registers(), one.dma());
  memory::allocation const mapped(memory::device(0), 65536, 65536);
  one.dma().map(mapped.data(), mapped.size_bytes());
  void* const given = one.dma().allocate_for_gpu(65536);
  client.enable();
  auto identify = client.admin(nvme::admin_opcode::identify, 1);
  EXPECT_EQ(client.code(identify), 0) << "page-locked host memory";
  for (void const* const memory : {given, static_cast<void*>(mapped.data())}) {
    identify.prp1 = one.dma().bus_address(memory);
    EXPECT_EQ(client.code(identify), nvme::status_field(nvme::generic_status::data_transfer_error));
    auto queue = client.admin(nvme::admin_opcode::create_io_completion_queue, 1 | 7u << 16, 1);
    queue.prp1 = identify.prp1;
    EXPECT_EQ(client.code(queue), 0) << "I/O queues may lie there";
    EXPECT_EQ(client.code(client.admin(nvme::admin_opcode::delete_io_completion_queue, 1)), 0);
  }
  client.disable();
  one.dma().deallocate(given);
  one.dma().unmap(mapped.data(), mapped.size_bytes());
}

INSTANTIATE_TEST_SUITE_P(on_gpu, resident, testing::ValuesIn(checks()), name_of);
INSTANTIATE_TEST_SUITE_P(on_gpu, visiting, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
