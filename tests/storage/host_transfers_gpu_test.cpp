// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that callers took by `cudaMalloc`: registered, and moved by the host's transfers, directly and staged, in the
//! order of streams.
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

#include "forebay/cuda_stream.hpp"
#include "forebay/storage.hpp"

namespace forebay {
namespace {

using memory::check_cuda;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint64_t drive_bytes = 16 << 20;

/// Memory of GPU 0 that the library knows nothing of.
class foreign_memory {
 public:
  explicit foreign_memory(std::size_t bytes) : bytes_(bytes) {
    memory::current_device const here(0);
    check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0, bytes), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  ~foreign_memory() { cudaFree(data_); }
  foreign_memory(foreign_memory const&) = delete;
  foreign_memory& operator=(foreign_memory const&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::vector<unsigned char> content() const {
    std::vector<unsigned char> all(bytes_);
    memory::device(0).copy_out(all.data(), data_, bytes_);
    return all;
  }
  void fill(std::vector<unsigned char> const& with) { memory::device(0).copy_in(data_, with.data(), with.size()); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
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
  foreign_memory from(data.size()), to(data.size());
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
  EXPECT_EQ(moved.at("gpu_direct_bytes").get<std::uint64_t>() + moved.at("gpu_staged_bytes").get<std::uint64_t>(),
            6 * data.size());
}

TEST_P(HostTransfersOnGpu, ATransferIsOrderedWithItsStream) {
  storage st = open();
  auto const data = random_bytes(1 << 20);
  foreign_memory buffer(data.size());
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
    EXPECT_TRUE(write.ended());
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
    foreign_memory buffer(data.size() << (i % 2));
    st.pread_async(buffer.data(), data.size(), 0, {.on_gpu = true}).wait();
    auto content = buffer.content();
    content.resize(data.size());
    EXPECT_EQ(content, data);
  }
  EXPECT_LE(transfers_of(st).at("registered_allocations"), GetParam().direct ? 1 : 0);
}

TEST_P(HostTransfersOnGpu, MemoryOfTheCallersIsRegisteredWhereTheDrivesReachIt) {
  storage st = open();
  foreign_memory mine(1 << 20);
  if (GetParam().direct) {
    registered_buffer const buffer = st.register_buffer(mine.data(), 1 << 20);
    EXPECT_EQ(buffer.data(), mine.data());
    EXPECT_EQ(buffer.ref().bus_address(4096), reinterpret_cast<std::uint64_t>(mine.data()) + 4096);
    EXPECT_THAT([&] { st.register_buffer(mine.data(), std::size_t{1} << 30); },
                ThrowsMessage<refused_input>(HasSubstr("one allocation")));
  } else {
    EXPECT_THAT([&] { st.register_buffer(mine.data(), 1 << 20); },
                ThrowsMessage<refused_input>(AllOf(HasSubstr("memory of cuda:0"), HasSubstr("pread_async"))));
  }
}

TEST_P(HostTransfersOnGpu, WhatCannotBeIsRefused) {
  storage st = open();
  foreign_memory mine(1 << 20);
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
