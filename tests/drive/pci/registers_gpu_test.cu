// SPDX-License-Identifier: Apache-2.0
//! \file
//! Threads of a GPU ring doorbells of registers that are ordinary memory: a relay must forward what they store. That a
//! GPU reaches the registers of a device needs a device, and is not tested.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "drive/pci/registers.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/host_memory.hpp"
#include "forebay/memory.hpp"

namespace forebay::drive::pci {
namespace {

namespace reg = nvme::registers;

constexpr std::uint32_t window_bytes = 16384;

struct rings {
  std::uint32_t* tail;
  std::uint32_t* head;
  FOREBAY_DEVICE void operator()() const {
    using M = simt::cuda;
    M::fence(simt::scope::system, simt::order::release);
    M::st_mmio(tail, 21);
    M::st_mmio(head, 22);
  }
};

TEST(mapped_registers_on_gpu, a_relay_forwards_what_threads_of_a_gpu_store) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  std::vector<std::uint32_t> window(window_bytes / 4);
  mapped_registers registers(reinterpret_cast<std::byte*>(window.data()), window_bytes,
                             {.how = doorbell_way::relay, .queues = 8, .words = &memory::pinned(), .gpu = 0});
  std::uint32_t const tail = reg::sq_tail_doorbell(8, 0), head = reg::cq_head_doorbell(8, 0);
  memory::cuda_stream const stream(0);
  simt::launch<simt::cuda>({.blocks = 1, .threads_per_block = 1},
                           rings{registers.doorbell_for_gpu(tail), registers.doorbell_for_gpu(head)}, stream.get());
  stream.synchronize();
  registers.write32(reg::cc, 1);  // forwards first
  EXPECT_EQ(window[tail / 4], 21u);
  EXPECT_EQ(window[head / 4], 22u);
}

TEST(memory_that_a_drive_cannot_use, is_told_from_what_it_can) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  memory::allocation const moves(memory::managed(0), 4096, 4096), of_gpu(memory::device(0), 4096, 4096),
      locked(memory::pinned(), 4096, 4096), ordinary(memory::host(), 4096, 4096);
  EXPECT_TRUE(memory::is_managed(moves.data()));
  EXPECT_FALSE(memory::is_managed(of_gpu.data()));
  EXPECT_FALSE(memory::is_managed(locked.data()));
  EXPECT_FALSE(memory::is_managed(ordinary.data()));
  EXPECT_FALSE(memory::host_reaches(of_gpu.data()));
  EXPECT_TRUE(memory::host_reaches(ordinary.data()));
}

TEST(memory_that_a_drive_cannot_use, is_no_registers) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  EXPECT_THROW(memory::lock_registers(0, nullptr, 4096), operation_failed);
  // The refusal is not left for the next call to find.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace forebay::drive::pci
