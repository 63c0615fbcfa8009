// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that callers took from CUDA: registered, and moved by the host's transfers, directly and staged, in the
//! order of streams.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "forebay/cuda_driver.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "support/foreign_gpu_memory.hpp"

namespace forebay {
namespace {

using memory::check_cuda;
using memory::check_driver;
using memory::driver_function;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A range of addresses with memory of GPU 0 for its first pieces and none behind them, as allocators that grow have
/// it.
class mapped_memory {
 public:
  explicit mapped_memory(std::size_t pieces) : pieces_(pieces) {
    memory::current_device const here(0);
    check_cuda(cudaFree(nullptr), "cudaFree");  // makes the context
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = 0;
    auto const reserve = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
    check_driver(reserve(&first_, (pieces + 1) * piece_bytes, 0, 0, 0), "cuMemAddressReserve");
    auto const create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
    auto const map = driver_function<decltype(&cuMemMap)>("cuMemMap");
    auto const release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
    for (std::size_t i = 0; i < pieces; ++i) {
      CUmemGenericAllocationHandle piece = 0;
      check_driver(create(&piece, piece_bytes, &wanted, 0), "cuMemCreate");
      check_driver(map(first_ + i * piece_bytes, piece_bytes, 0, piece, 0), "cuMemMap");
      check_driver(release(piece), "cuMemRelease");
    }
    CUmemAccessDesc const access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    auto const set_access = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
    check_driver(set_access(first_, pieces * piece_bytes, &access, 1), "cuMemSetAccess");
  }
  ~mapped_memory() {
    driver_function<decltype(&cuMemUnmap)>("cuMemUnmap")(first_, pieces_ * piece_bytes);
    driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree")(first_, (pieces_ + 1) * piece_bytes);
  }
  mapped_memory(mapped_memory const&) = delete;
  mapped_memory& operator=(mapped_memory const&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(first_); }
  std::size_t size_bytes() const { return pieces_ * piece_bytes; }

 private:
  static constexpr std::size_t piece_bytes = 2 << 20;
  std::size_t pieces_;
  CUdeviceptr first_ = 0;
};

std::vector<unsigned char> random_bytes(std::size_t count) {
  std::mt19937_64 random(5);
  std::vector<unsigned char> all(count);
  for (unsigned char& byte : all) byte = static_cast<unsigned char>(random());
  return all;
}

nlohmann::json transfers_of(storage const& st) {
  return nlohmann::json::parse(st.report()).at("transfers");
}

/// Whether the drive's engine runs on the GPU, and the client's device.
struct place {
  char const* name;
  bool direct;
  std::string keys;
  std::string device;
};

class HostTransfersOnGpu : public testing::TestWithParam<place> {
 protected:
  storage open() const {
    storage_options o;
    o.drives = {"emulated:size=16M" + GetParam().keys};
    o.device = GetParam().device;
    return storage(o);
  }
};

INSTANTIATE_TEST_SUITE_P(, HostTransfersOnGpu,
                         testing::Values(place{"Resident", true, ",backing=hbm,sms=4", "cuda:0"},
                                         place{"Staged", false, "", "cuda:0"},
                                         place{"StagedForTheCpu", false, "", "cpu"}),
                         [](auto const& one) { return one.param.name; });

TEST_P(HostTransfersOnGpu, AnyRangeIsWrittenAndReadBack) {
  storage st = open();
  auto const data = random_bytes(4 << 20);
  foreign_gpu_memory from(data.size()), to(data.size());
  from.fill(data);
  for (std::uint64_t const at : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{100}}) {
    st.pwrite_async(from.data(), data.size(), at, {.on_gpu = true}).wait();
    std::vector<unsigned char> on_drive(data.size());
    st.pread(on_drive.data(), on_drive.size(), at);
    EXPECT_EQ(on_drive, data) << at;
    to.fill(std::vector<unsigned char>(data.size()));
    st.pread_async(to.data(), data.size(), at, {.on_gpu = true}).wait();
    EXPECT_EQ(to.content(), data) << at;
  }
  nlohmann::json const moved = transfers_of(st);
  EXPECT_EQ(moved.at("gpu_direct_bytes") != 0, GetParam().direct);
  EXPECT_EQ(moved.at("registered_allocations"), GetParam().direct ? 2 : 0);
  // What the drives do not move themselves passes through memory of the same GPU, if they reach that.
  EXPECT_EQ(moved.at("gpu_direct_bytes").get<std::uint64_t>() +
                moved.at(GetParam().direct ? "gpu_copied_bytes" : "gpu_staged_bytes").get<std::uint64_t>(),
            6 * data.size());
}

TEST_P(HostTransfersOnGpu, ATransferIsOrderedWithItsStream) {
  storage st = open();
  auto const data = random_bytes(1 << 20);
  foreign_gpu_memory buffer(data.size());
  memory::cuda_stream const stream(0);
  std::vector<unsigned char> after(data.size());
  void* locked = nullptr;
  check_cuda(cudaHostAlloc(&locked, data.size(), cudaHostAllocDefault), "cudaHostAlloc");
  auto const handle = reinterpret_cast<std::uintptr_t>(stream.get());
  for (int i = 0; i < 20; ++i) {
    // The stream fills the buffer, the write takes it, the stream clears it, the read fills it, the stream copies it.
    std::memcpy(locked, data.data(), data.size());
    check_cuda(cudaMemcpyAsync(buffer.data(), locked, data.size(), cudaMemcpyDefault, stream.get()), "cudaMemcpy");
    host_transfer const write = st.pwrite_async(buffer.data(), data.size(), 0, {.on_gpu = true, .stream = handle});
    check_cuda(cudaMemsetAsync(buffer.data(), 0, data.size(), stream.get()), "cudaMemset");
    stream.synchronize();
    write.wait();
    host_transfer const read = st.pread_async(buffer.data(), data.size(), 0, {.on_gpu = true, .stream = handle});
    check_cuda(cudaMemcpyAsync(locked, buffer.data(), data.size(), cudaMemcpyDefault, stream.get()), "cudaMemcpy");
    stream.synchronize();
    read.wait();
    std::memcpy(after.data(), locked, after.size());
    ASSERT_EQ(after, data) << i;
  }
  check_cuda(cudaFreeHost(locked), "cudaFreeHost");
}

TEST_P(HostTransfersOnGpu, AnAddressThatIsTakenAgainIsAnotherAllocation) {
  storage st = open();
  auto const data = random_bytes(1 << 20);
  st.pwrite(data.data(), data.size(), 0);
  for (int i = 0; i < 4; ++i) {
    foreign_gpu_memory buffer(data.size() << (i % 2));
    st.pread_async(buffer.data(), data.size(), 0, {.on_gpu = true}).wait();
    auto content = buffer.content();
    content.resize(data.size());
    EXPECT_EQ(content, data);
  }
  EXPECT_LE(transfers_of(st).at("registered_allocations"), GetParam().direct ? 1 : 0);
}

TEST_P(HostTransfersOnGpu, MemoryOfTheCallersIsRegisteredWhereTheDrivesReachIt) {
  storage st = open();
  // Smaller allocations may begin anywhere in a page.
  foreign_gpu_memory mine(2 << 20);
  if (GetParam().direct) {
    registered_buffer const buffer = st.register_buffer(mine.data(), 2 << 20);
    EXPECT_EQ(buffer.data(), mine.data());
    EXPECT_EQ(buffer.ref().bus_address(4096), reinterpret_cast<std::uint64_t>(mine.data()) + 4096);
    EXPECT_THAT([&] { st.register_buffer(mine.data(), std::size_t{1} << 30); },
                ThrowsMessage<refused_input>(HasSubstr("one allocation")));
  } else {
    EXPECT_THAT([&] { st.register_buffer(mine.data(), 2 << 20); },
                ThrowsMessage<refused_input>(AllOf(HasSubstr("memory of cuda:0"), HasSubstr("pread_async"))));
  }
}

TEST_P(HostTransfersOnGpu, ACancelledTransferLetsItsStreamGoOn) {
  storage st = open();
  auto const data = random_bytes(1 << 20);
  st.pwrite(data.data(), data.size(), 0);
  foreign_gpu_memory buffer(data.size()), large(256 << 20);
  memory::cuda_stream const stream(0);
  for (int i = 0; i < 20; ++i) {
    buffer.fill(std::vector<unsigned char>(data.size()));
    for (int k = 0; k < 20; ++k) {
      check_cuda(cudaMemsetAsync(large.data(), k, 256 << 20, stream.get()), "cudaMemset");
    }
    host_transfer const read = st.pread_async(
        buffer.data(), 1 << 20, 0, {.on_gpu = true, .stream = reinterpret_cast<std::uintptr_t>(stream.get())});
    read.cancel();
    EXPECT_THROW(read.wait(), transfer_cancelled);
    // Before the stream has come to the first: it must wait for the end of this one too.
    host_transfer const next = st.pread_async(
        buffer.data(), 1 << 20, 0, {.on_gpu = true, .stream = reinterpret_cast<std::uintptr_t>(stream.get())});
    stream.synchronize();
    EXPECT_EQ(buffer.content(), data);
    next.wait();
  }
}

TEST_P(HostTransfersOnGpu, TransfersGoOnWhileACudaGraphIsCaptured) {
  storage st = open();
  auto const data = random_bytes(4 << 20);
  st.pwrite(data.data(), data.size(), 0);
  foreign_gpu_memory buffer(data.size()), other(4096);
  memory::cuda_stream const captured(0), stream(0);
  // The strictest: it forbids every thread what could disturb a capture.
  check_cuda(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  host_transfer const plain = st.pread_async(buffer.data(), data.size() / 2, 0, {.on_gpu = true});
  host_transfer const ordered =
      st.pread_async(buffer.data() + data.size() / 2, data.size() / 2, data.size() / 2,
                     {.on_gpu = true, .stream = reinterpret_cast<std::uintptr_t>(stream.get())});
  plain.wait();
  ordered.wait();
  check_cuda(cudaMemsetAsync(other.data(), 0, 4096, captured.get()), "cudaMemset");
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(captured.get(), &graph), "cudaStreamEndCapture");
  ASSERT_NE(graph, nullptr);
  cudaGraphDestroy(graph);
  EXPECT_EQ(buffer.content(), data);
}

TEST_P(HostTransfersOnGpu, MemoryThatIsMappedByPiecesIsMoved) {
  mapped_memory mine(2);
  storage st = open();
  auto const data = random_bytes(mine.size_bytes());
  st.pwrite(data.data(), data.size(), 0);
  st.pread_async(mine.data(), data.size(), 0, {.on_gpu = true}).wait();
  std::vector<unsigned char> content(data.size());
  memory::device(0).copy_out(content.data(), mine.data(), content.size());
  EXPECT_EQ(content, data);
  nlohmann::json const moved = transfers_of(st);
  EXPECT_EQ(moved.at(GetParam().direct ? "gpu_copied_bytes" : "gpu_staged_bytes"), data.size());
  EXPECT_EQ(moved.at("registered_allocations"), 0);
}

TEST_P(HostTransfersOnGpu, WhatCannotBeIsRefused) {
  storage st = open();
  foreign_gpu_memory mine(1 << 20);
  EXPECT_THAT([&] { (void)st.pread_async(mine.data() + 4096, 1 << 20, 0, {.on_gpu = true}); },
              ThrowsMessage<refused_input>(HasSubstr("one allocation")));
  char on_host = 0;
  EXPECT_THAT([&] { (void)st.pread_async(&on_host, 1, 0, {.on_gpu = true}); },
              ThrowsMessage<refused_input>(HasSubstr("CUDA knows no memory")));
  memory::cuda_stream const stream(0);
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  EXPECT_THAT(
      [&] {
        (void)st.pread_async(mine.data(), 512, 0,
                             {.on_gpu = true, .stream = reinterpret_cast<std::uintptr_t>(stream.get())});
      },
      ThrowsMessage<refused_input>(HasSubstr("captured")));
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream.get(), &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (memory::device_count() < 2) return;
  memory::cuda_stream const other(1);
  EXPECT_THAT(
      [&] {
        (void)st.pread_async(mine.data(), 512, 0,
                             {.on_gpu = true, .stream = reinterpret_cast<std::uintptr_t>(other.get())});
      },
      ThrowsMessage<refused_input>(AllOf(HasSubstr("stream: 'of cuda:1'"), HasSubstr("cuda:0"))));
}

}  // namespace
}  // namespace forebay
