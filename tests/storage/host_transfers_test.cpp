// SPDX-License-Identifier: Apache-2.0
//! \file
//! Transfers of the host in the background: what they move, how many are under way, and how they end.
#include "storage/host_transfers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "forebay/storage.hpp"
#include "storage/client.hpp"
#include "storage/client_device.hpp"
#include "storage/gpu_access.hpp"
#include "storage/layout.hpp"
#include "storage/options.hpp"
#include "storage/recovery_thread.hpp"
#include "storage/relay_thread.hpp"

namespace forebay {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

storage_options on_cpu(std::vector<std::string> drives) {
  storage_options o;
  o.drives = std::move(drives);
  o.device = "cpu";
  return o;
}

std::vector<unsigned char> random_bytes(std::uint64_t count, std::mt19937_64& random) {
  std::vector<unsigned char> all(count);
  for (unsigned char& byte : all) byte = static_cast<unsigned char>(random());
  return all;
}

nlohmann::json statistics_of(storage const& st) {
  return nlohmann::json::parse(st.report()).at("drives").at(0).at("statistics");
}

TEST(HostTransfers, WhatManyWriteAtATimeIsReadByMany) {
  storage st(on_cpu({"emulated:size=24M", "emulated:size=24M"}));
  std::mt19937_64 random(1);
  std::uint64_t const first = 777, bytes = 21'000'001;
  auto const data = random_bytes(bytes, random);
  std::vector<std::uint64_t> cuts{0, bytes};
  for (int i = 0; i < 30; ++i) cuts.push_back(random() % bytes);
  std::sort(cuts.begin(), cuts.end());
  std::vector<host_transfer> all;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    all.push_back(st.pwrite_async(data.data() + cuts[i - 1], cuts[i] - cuts[i - 1], first + cuts[i - 1]));
  }
  for (host_transfer const& t : all) t.wait();
  std::vector<unsigned char> back(bytes);
  all.clear();
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    all.push_back(st.pread_async(back.data() + cuts[i - 1], cuts[i] - cuts[i - 1], first + cuts[i - 1]));
  }
  for (host_transfer const& t : all) t.wait();
  EXPECT_EQ(back, data);
  EXPECT_EQ(nlohmann::json::parse(st.report()).at("transfers").at("host_bytes"), 2 * bytes);
}

/// Each write covers a part of a block, and reads the block first. Without a lock on blocks it would write back what
/// another write has changed since.
TEST(HostTransfers, WritesToPartsOfABlockKeepEachOthersBytes) {
  storage st(on_cpu({"emulated:size=2M,latency_us=200"}));
  std::vector<unsigned char> data(600 * 100);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(1));
  std::thread beside([&] {
    for (std::uint64_t at = 0; at < data.size(); at += 500) st.pwrite(data.data() + at, 100, at);
  });
  std::vector<host_transfer> all;
  for (std::uint64_t at = 0; at < data.size(); at += 100) {
    if (at % 500 != 0) all.push_back(st.pwrite_async(data.data() + at, 100, at));
  }
  beside.join();
  for (host_transfer const& t : all) t.wait();
  std::vector<unsigned char> back(data.size());
  st.pread(back.data(), back.size(), 0);
  EXPECT_EQ(back, data);
}

/// A machine that is busy may stop this test for longer than a read takes, and then the first reads are over before it
/// looks. So it tries again; if fewer reads than forty could be under way, no try would see them.
TEST(HostTransfers, FortyReadsAreOnTheDriveAtTheSameTime) {
  storage st(on_cpu({"emulated:size=2M,latency_us=500000"}));
  std::vector<std::vector<char>> buffers(40, std::vector<char>(4096));
  auto const settled = [&] {
    nlohmann::json const seen = statistics_of(st);
    return seen.at("completions_posted") == seen.at("commands_fetched");
  };
  bool all_at_once = false;
  for (int tries = 0; tries < 20 && !all_at_once; ++tries) {
    while (!settled()) std::this_thread::yield();  // the drive counts a completion after it has posted it
    st.reset_statistics();
    std::vector<host_transfer> all;
    for (std::size_t i = 0; i < buffers.size(); ++i) all.push_back(st.pread_async(buffers[i].data(), 4096, i * 4096));
    nlohmann::json seen;
    do seen = statistics_of(st);
    while (seen.at("commands_fetched") < buffers.size());
    all_at_once = seen.at("completions_posted") == 0;
    for (host_transfer const& t : all) t.wait();
  }
  EXPECT_TRUE(all_at_once) << "in each try a read was over before the last had begun";
}

TEST(HostTransfers, ALongTransferDoesNotKeepAShortOneWaiting) {
  storage st(on_cpu({"emulated:size=64M,bandwidth=10M"}));
  std::vector<char> large(60 << 20), small(512);
  host_transfer const long_one = st.pread_async(large.data(), large.size(), 0);
  host_transfer const short_one = st.pread_async(small.data(), small.size(), 0);
  short_one.wait();
  EXPECT_FALSE(long_one.ended());
  long_one.cancel();
  EXPECT_THROW(long_one.wait(), transfer_cancelled);
  EXPECT_LT(statistics_of(st).at("bytes_read"), large.size());
}

TEST(HostTransfers, AllAreCancelledAndTheStorageGoesOn) {
  storage st(on_cpu({"emulated:size=64M,bandwidth=5M"}));
  std::vector<char> large(30 << 20);
  std::vector<host_transfer> all;
  for (int i = 0; i < 3; ++i) all.push_back(st.pwrite_async(large.data(), large.size(), 0));
  st.cancel_transfers();
  for (host_transfer const& t : all) EXPECT_THROW(t.wait(), transfer_cancelled);
  EXPECT_NO_THROW(st.pread_async(large.data(), 512, 0).wait());
}

TEST(HostTransfers, ADriveThatFailsIsNamed) {
  // Every other command fails, so that some of the first ones open the storage.
  storage st(on_cpu({"emulated:size=4M,errors_ppm=500000,seed=3"}));
  std::vector<char> buffer(4 << 20);
  std::atomic<int> told = 0;
  host_transfer const read =
      st.pread_async(buffer.data(), buffer.size(), 0,
                     {.ended = [&](std::exception_ptr const& why) { told += why != nullptr ? 1 : 100; }});
  EXPECT_THAT([&] { read.wait(); }, ThrowsMessage<operation_failed>(AllOf(HasSubstr("read of"), HasSubstr("seed=3"))));
  while (told == 0) std::this_thread::yield();  // it is told after those that wait
  EXPECT_EQ(told, 1);
  int failed = 0;
  for (std::uint64_t at = 100; at < 100'000; at += 1000) {
    host_transfer const write = st.pwrite_async(buffer.data(), 100, at);
    try {
      write.wait();
    } catch (operation_failed const&) {
      ++failed;  // the read of the block, or its write
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 100) << "a failure must not keep what later transfers need";
}

TEST(HostTransfers, ACommandThatTakesTooLongIsAborted) {
  storage_options o = on_cpu({"emulated:size=2M,latency_us=1000000"});
  o.timeout_ns = 50'000'000;
  storage st(o);
  std::vector<char> buffer(4096);
  host_transfer const read = st.pread_async(buffer.data(), buffer.size(), 0);
  EXPECT_THAT([&] { read.wait(); }, ThrowsMessage<operation_failed>(HasSubstr("read of 4096 bytes at 0")));
}

TEST(HostTransfers, TheStorageWaitsForThemAndTheyMayOutliveIt) {
  std::vector<char> buffer(1 << 20);
  auto st = std::make_unique<storage>(on_cpu({"emulated:size=4M,bandwidth=20M"}));
  host_transfer const read = st->pread_async(buffer.data(), buffer.size(), 0);
  st.reset();
  EXPECT_TRUE(read.ended());
  EXPECT_NO_THROW(read.wait());
}

TEST(HostTransfers, NothingIsMovedInNoTime) {
  storage st(on_cpu({"emulated:size=2M"}));
  EXPECT_NO_THROW(st.pread_async(nullptr, 0, 2 << 20).wait());
}

TEST(HostTransfers, WhatCannotBeIsRefusedAtTheCall) {
  storage_options o = on_cpu({"emulated:size=2M"});
  o.read_only = true;
  storage st(o);
  char byte = 0;
  EXPECT_THROW((void)st.pread_async(&byte, 1, 2 << 20), refused_input);
  EXPECT_THROW((void)st.pwrite_async(&byte, 1, 0), refused_input);
  if (memory::device_count() != 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT([&] { (void)st.pread_async(&byte, 1, 0, {.on_gpu = true}); },
              ThrowsMessage<refused_input>(AllOf(HasSubstr("buffer"), HasSubstr("no GPU"))));
  EXPECT_THAT([&] { (void)st.pread_async(&byte, 1, 0, {.stream = 7}); },
              ThrowsMessage<refused_input>(AllOf(HasSubstr("stream: '7'"), HasSubstr("no GPU"))));
}

// ---- memory of a GPU, whose part ordinary memory plays

/// Allocations of a GPU that does nothing by itself: a copy is made when somebody has asked three times whether it has
/// ended, and a stream comes to its orders when the test says so.
class fake_gpu final : public detail::gpu_access {
 public:
  static constexpr int ordinal = 0;

  void add(void* first, std::uint64_t bytes, std::uint64_t id) {
    places_[reinterpret_cast<std::uintptr_t>(first)] = {
        .gpu = ordinal, .first = reinterpret_cast<std::uintptr_t>(first), .bytes = bytes, .id = id};
  }
  void map_by_pieces(void* first) { places_.at(reinterpret_cast<std::uintptr_t>(first)).by_pieces = true; }
  void forget(void* first) { places_.erase(reinterpret_cast<std::uintptr_t>(first)); }

  void allow_captures() override { may_capture = true; }
  memory::resource& locked_memory() override { return memory::host(); }
  detail::memory_place place_of(void const* address) override {
    auto const at = reinterpret_cast<std::uintptr_t>(address);
    for (auto const& [first, place] : places_) {
      if (at >= first && at - first < place.bytes) return place;
    }
    return {};
  }
  std::unique_ptr<detail::gpu_work> copy(int gpu, void* to, void const* from, std::size_t bytes) override {
    EXPECT_EQ(gpu, ordinal);
    copied_bytes += bytes;
    while (keeps_copies && streams_released == 0) std::this_thread::yield();
    return std::make_unique<late_copy>(to, from, bytes);
  }
  std::unique_ptr<detail::stream_order> order(std::uintptr_t stream, int gpu,
                                              std::function<bool()> const& gives_up) override {
    while (keeps_callers) {
      if (gives_up()) return nullptr;
      std::this_thread::yield();
    }
    if (stream == stream_of_another) throw refused_input("stream", "of cuda:1", "pass a stream of GPU 0");
    EXPECT_EQ(gpu, ordinal);
    return std::make_unique<held_order>(*this);
  }

  static constexpr std::uintptr_t stream_of_another = 99;
  std::atomic<bool> may_capture = false;
  std::atomic<bool> keeps_copies = false;  ///< until a stream goes on
  std::atomic<bool> stream_is_there = false;
  std::atomic<bool> keeps_callers = false;  ///< they wait for their turn
  std::atomic<int> streams_released = 0;
  std::atomic<std::uint64_t> copied_bytes = 0;

 private:
  struct late_copy final : detail::gpu_work {
    late_copy(void* t, void const* f, std::size_t n) : to(t), from(f), bytes(n) {}
    bool ended() override {
      if (++asked < 3) return false;
      std::memcpy(to, from, bytes);
      return true;
    }
    void* to;
    void const* from;
    std::size_t bytes;
    int asked = 0;
  };
  struct held_order final : detail::stream_order {
    explicit held_order(fake_gpu& g) : of(g) {}
    ~held_order() override { held_order::let_go(); }
    void begin() override {}
    void let_go() override {
      if (!gone.exchange(true)) ++of.streams_released;
    }
    bool reached() override { return of.stream_is_there; }
    fake_gpu& of;
    std::atomic<bool> gone = false;
  };
  std::map<std::uintptr_t, detail::memory_place> places_;
};

fake_gpu* the_gpu = nullptr;

/// The parts of a storage whose drives reach the memory of the fake, or do not.
class HostTransfersOfAGpu : public testing::TestWithParam<bool> {
 protected:
  HostTransfersOfAGpu() { the_gpu = &gpu; }
  ~HostTransfersOfAGpu() override { the_gpu = nullptr; }

  bool direct() const { return GetParam(); }
  void move(bool reads, void* memory, std::uint64_t bytes, std::uint64_t at) {
    host_transfer(transfers.start(reads, memory, bytes, at, {.on_gpu = true})).wait();
  }

  static constexpr std::uint64_t drive_bytes = 8 << 20;

  fake_gpu gpu;
  static detail::drive_plan with_pairs(detail::drive_plan plan) {
    plan.host_pairs = host_pairs;
    return plan;
  }

  static constexpr std::uint32_t host_pairs = 3;

  storage_options const options = on_cpu({"emulated:size=4M", "emulated:size=4M"});
  detail::client_device const device = detail::client_device::named("cpu");
  std::shared_ptr<detail::opened_drives> const drives = detail::open_drives(options, device);
  detail::drive_plan const plan = with_pairs(detail::plan_drives(options, detail::identities_of(*drives), false));
  detail::buffer_source const buffers{drives, device.memory()};
  detail::relay_thread const relay{drives, false, device.shared_memory()};
  detail::client client{device, drives, relay, plan, options, buffers, [](auto, auto) { return ""; }};
  detail::host_io host{drives, relay, plan, device.shared_memory(), options, buffers};
  detail::recovery_thread recovery{{client.for_recovery(), host.for_recovery()}};
  detail::host_transfers transfers{host,
                                   client,
                                   buffers,
                                   drives,
                                   []() -> detail::gpu_access* { return the_gpu; },
                                   direct() ? fake_gpu::ordinal : -1};
};

INSTANTIATE_TEST_SUITE_P(, HostTransfersOfAGpu, testing::Bool(),
                         [](auto const& one) { return one.param ? "Direct" : "Staged"; });

TEST_P(HostTransfersOfAGpu, EveryRangeIsMovedAndCounted) {
  std::mt19937_64 random(2);
  std::vector<unsigned char> memory(6 << 20), expected(drive_bytes);
  gpu.add(memory.data(), memory.size(), 1);
  std::uint64_t moved = 0;
  for (int i = 0; i < 60; ++i) {
    std::uint64_t const bytes = 1 + random() % (i % 10 == 0 ? 5'000'000 : 20'000);
    std::uint64_t const at = random() % (drive_bytes - bytes), from = random() % (memory.size() - bytes);
    moved += 2 * bytes;
    for (std::uint64_t k = 0; k < bytes; ++k) memory[from + k] = static_cast<unsigned char>(random());
    move(false, memory.data() + from, bytes, at);
    std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
    std::fill(memory.begin(), memory.end(), static_cast<unsigned char>(0));
    move(true, memory.data() + from, bytes, at);
    ASSERT_EQ(std::memcmp(memory.data() + from, expected.data() + at, bytes), 0) << "step " << i;
    ASSERT_TRUE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(from), [](auto b) {
      return b == 0;
    })) << "a read wrote before its memory";
  }
  detail::host_transfer_counts const counts = transfers.counts();
  EXPECT_EQ(counts.host_bytes, 0u);
  EXPECT_EQ(counts.gpu_direct_bytes + counts.gpu_copied_bytes + counts.gpu_staged_bytes, moved);
  EXPECT_EQ(counts.gpu_copied_bytes + counts.gpu_staged_bytes, gpu.copied_bytes);
  EXPECT_EQ((direct() ? counts.gpu_staged_bytes : counts.gpu_copied_bytes), 0u);
  EXPECT_EQ(counts.gpu_direct_bytes != 0, direct());
  EXPECT_EQ(transfers.registered_allocations(), direct() ? 1u : 0u);
  for (std::uint32_t pair = 0; pair < 2 * host_pairs; ++pair) {
    EXPECT_GT(host.queues().ref<simt::native>().progress({pair, 1}), 0u) << pair;
  }
}

TEST_P(HostTransfersOfAGpu, AQueuePairThatRecoveryDeletedIsLeftOut) {
  std::vector<unsigned char> memory(1 << 20);
  gpu.add(memory.data(), memory.size(), 1);
  host.queues().declare_dead(1);               // of the first drive
  host.queues().declare_dead(host_pairs + 2);  // of the second
  for (std::uint32_t i = 0; i < 4 * host_pairs; ++i) {
    move(i % 2 == 0, memory.data(), memory.size(), (i % 8) * std::uint64_t{1 << 20});
  }
}

TEST_P(HostTransfersOfAGpu, ACallThatWaitsForItsTurnEndsWhenItIsInterruptedOrTransfersAreCancelled) {
  std::vector<unsigned char> memory(1 << 20);
  gpu.add(memory.data(), memory.size(), 1);
  gpu.keeps_callers = true;
  auto const start = [&](std::function<bool()> const& interrupted) {
    (void)transfers.start(true, memory.data(), memory.size(), 0,
                          {.on_gpu = true, .stream = 7, .interrupted = interrupted});
  };
  EXPECT_THROW(start([] { return true; }), transfer_cancelled);
  std::atomic<bool> ended = false;
  std::thread caller([&] {
    EXPECT_THROW(start({}), transfer_cancelled);
    ended = true;
  });
  move(false, memory.data(), memory.size(), 0);  // others go on meanwhile
  while (!ended) transfers.cancel_all();         // again: the call may not have begun yet
  caller.join();
}

TEST_P(HostTransfersOfAGpu, WholeBlocksOfAlignedMemoryGoTheirWayAlone) {
  std::vector<unsigned char> memory(2 << 20);
  void* const aligned = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  gpu.add(aligned, 1 << 20, 1);
  move(false, aligned, 1 << 20, 512);
  EXPECT_EQ(transfers.counts().gpu_direct_bytes, direct() ? 1u << 20 : 0u);
  EXPECT_EQ(transfers.counts().gpu_staged_bytes, direct() ? 0u : 1u << 20);
}

TEST_P(HostTransfersOfAGpu, MemoryThatIsMappedByPiecesIsNotRegistered) {
  std::vector<unsigned char> memory(1 << 20, 7), back(1 << 20);
  gpu.add(memory.data(), memory.size(), 1);
  gpu.add(back.data(), back.size(), 2);
  gpu.map_by_pieces(memory.data());
  gpu.map_by_pieces(back.data());
  move(false, memory.data(), memory.size(), 0);
  move(true, back.data(), back.size(), 0);
  EXPECT_EQ(back, memory);
  EXPECT_EQ(transfers.registered_allocations(), 0);
  EXPECT_EQ(transfers.counts().gpu_direct_bytes, 0);
  EXPECT_EQ(transfers.counts().gpu_copied_bytes, direct() ? 2u << 20 : 0u) << "through what the drives reach there";
  EXPECT_EQ(transfers.counts().gpu_staged_bytes, direct() ? 0u : 2u << 20);
  EXPECT_TRUE(gpu.may_capture) << "by the thread of the transfers";
}

TEST_P(HostTransfersOfAGpu, AnAddressWithAnotherAllocationIsRegisteredAgain) {
  std::vector<unsigned char> memory(4 << 20), other(1 << 20);
  gpu.add(memory.data(), memory.size(), 1);
  gpu.add(other.data(), other.size(), 2);
  move(false, memory.data() + 8192, 65536, 0);
  move(false, other.data() + 8192, 65536, 0);
  EXPECT_EQ(transfers.registered_allocations(), direct() ? 2u : 0u);
  gpu.forget(other.data());
  gpu.add(memory.data(), 2 << 20, 3);
  move(true, memory.data() + 8192, 65536, 0);
  EXPECT_EQ(transfers.registered_allocations(), direct() ? 1u : 0u) << "two of the three are gone";
}

TEST_P(HostTransfersOfAGpu, ATransferBeginsAfterItsStreamAndLetsItGoOn) {
  std::vector<unsigned char> memory(1 << 20, 7);
  gpu.add(memory.data(), memory.size(), 1);
  auto const start = [&](bool reads, std::uintptr_t stream) {
    return host_transfer(transfers.start(reads, memory.data(), 4096, 0, {.on_gpu = true, .stream = stream}));
  };
  host_transfer const write = start(false, 5);
  // One without a stream is under way meanwhile, and overtakes it.
  move(true, memory.data() + 65536, 4096, 1 << 20);
  EXPECT_FALSE(write.ended());
  EXPECT_EQ(gpu.streams_released, 0);
  gpu.stream_is_there = true;
  write.wait();
  EXPECT_EQ(gpu.streams_released, 1);
  EXPECT_THROW((void)start(true, fake_gpu::stream_of_another), refused_input);
  gpu.stream_is_there = false;
  host_transfer const cancelled = start(true, 5);
  cancelled.cancel();
  EXPECT_THROW(cancelled.wait(), transfer_cancelled);
  EXPECT_EQ(gpu.streams_released, 2) << "a stream must not wait for ever";
}

TEST_P(HostTransfersOfAGpu, AStreamGoesOnIfACallToCudaWaitsForItAndKeepsTheTransferWaiting) {
  std::vector<unsigned char> memory(1 << 20);
  gpu.add(memory.data(), memory.size(), 1);
  gpu.map_by_pieces(memory.data());  // or nothing would be copied
  gpu.stream_is_there = true;
  gpu.keeps_copies = true;
  constexpr std::uint64_t patience_ns = 20'000'000;
  detail::host_transfers impatient{host,
                                   client,
                                   buffers,
                                   drives,
                                   []() -> detail::gpu_access* { return the_gpu; },
                                   direct() ? fake_gpu::ordinal : -1,
                                   patience_ns};
  host_transfer const read(impatient.start(true, memory.data(), 1 << 20, 0, {.on_gpu = true, .stream = 5}));
  EXPECT_THAT([&] { read.wait(); }, ThrowsMessage<operation_failed>(HasSubstr("cudaFree")));
  EXPECT_EQ(gpu.streams_released, 1);
  gpu.keeps_copies = false;
  host_transfer(impatient.start(true, memory.data(), 1 << 20, 0, {.on_gpu = true})).wait();
}

TEST_P(HostTransfersOfAGpu, MemoryThatIsNotThereIsRefused) {
  std::vector<unsigned char> memory(1 << 20);
  gpu.add(memory.data(), memory.size(), 1);
  EXPECT_THAT([&] { move(true, memory.data() + 4096, 1 << 20, 0); },
              ThrowsMessage<refused_input>(AllOf(HasSubstr("buffer"), HasSubstr("1044480"))));
  gpu.forget(memory.data());
  EXPECT_THAT([&] { move(true, memory.data(), 512, 0); }, ThrowsMessage<refused_input>(HasSubstr("not freed")));
}

}  // namespace
}  // namespace forebay
