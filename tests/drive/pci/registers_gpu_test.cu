// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a drive on the bus needs of a GPU, as far as that can be seen without a drive. Threads of a GPU ring doorbells
//! of registers that are ordinary memory: a relay must forward what they store. That a GPU reaches the registers of a
//! device needs a device, and is not tested.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "drive/open_file.hpp"
#include "drive/pci/gpu_addresses.hpp"
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

TEST(drive_on_the_bus, has_a_relay_that_forwards_what_threads_of_a_gpu_store) {
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

TEST(drive_on_the_bus, is_told_which_memory_it_can_use) {
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

TEST(drive_on_the_bus, is_not_what_is_no_device) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  EXPECT_THROW(memory::lock_registers(0, nullptr, 4096), operation_failed);
  // The refusal is not left for the next call to find.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// Runs until it is told to end, or for 20 s.
struct stays {
  std::uint32_t* word;  ///< 1: it runs; 2: it is to end; 3: it has ended by itself
  FOREBAY_DEVICE void operator()() const {
    using M = simt::cuda;
    auto shared = simt::atomic<M, simt::scope::system>(*word);
    shared.store(1, simt::order::relaxed);
    auto const told = [&] { return shared.load(simt::order::relaxed) == 2; };
    if (!M::wait_until(told, M::clock_ns() + 20'000'000'000)) shared.store(3, simt::order::relaxed);
  }
};

// Placement 2: a thread of the host calls it while kernels of any length run.
TEST(drive_on_the_bus, has_its_writes_ordered_beside_kernels_that_run) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  using native = simt::native;
  memory::allocation const word(memory::pinned(), 64, 64);
  auto state = simt::atomic<native, simt::scope::system>(*word.as<std::uint32_t>());
  memory::cuda_stream const stream(0);
  simt::launch<simt::cuda>({.blocks = 1, .threads_per_block = 1}, stays{word.as<std::uint32_t>()}, stream.get());
  auto const runs = [&] { return state.load(simt::order::relaxed) == 1; };
  ASSERT_TRUE(native::wait_until(runs, native::clock_ns() + 20'000'000'000));
  for (int i = 0; i < 1000; ++i) memory::order_remote_writes(0);
  EXPECT_TRUE(runs());
  state.store(2, simt::order::relaxed);
  stream.synchronize();
  EXPECT_EQ(state.load(simt::order::relaxed), 2u);
}

TEST(drive_on_the_bus, gets_a_gpus_memory_as_a_dma_buf_where_the_driver_can) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  constexpr auto dma_buf_supported = static_cast<cudaDeviceAttr>(124);  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
  int can = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&can, dma_buf_supported, 0), cudaSuccess);
  RecordProperty("dma_buf_supported", can);
  memory::allocation const its(memory::device(0), 1 << 20, 65536);
  if (can == 0) {
    EXPECT_THROW(memory::share_device_memory(0, its.data(), 65536), operation_failed);
    return;
  }
  open_file const file(memory::share_device_memory(0, its.data(), 65536));
  struct stat about{};
  ASSERT_EQ(::fstat(file.get(), &about), 0);
  RecordProperty("dma_buf_file_bytes", static_cast<int>(about.st_size));
  memory::allocation const on_host(memory::pinned(), 65536, 65536);
  EXPECT_THROW(memory::share_device_memory(0, on_host.data(), 65536), operation_failed);
}

TEST(drive_on_the_bus, finds_a_gpus_memory_in_a_window) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  std::string const folder = "/sys/bus/pci/devices/" + address::parse(memory::bus_address_of_gpu(0)).text();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not to be seen here";
  auto const windows = windows_of(folder);
  std::uint64_t largest = 0;
  for (auto const& one : windows) largest = std::max(largest, one.bytes);
  RecordProperty("largest_window_mib", static_cast<int>(largest >> 20));
  EXPECT_GE(largest, std::uint64_t{64} << 20);
}

}  // namespace
}  // namespace forebay::drive::pci
