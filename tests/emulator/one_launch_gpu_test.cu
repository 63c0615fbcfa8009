// SPDX-License-Identifier: Apache-2.0
//! \file
//! Engine and client as blocks of one launch, at small sizes: for tools that watch one kernel at a time, such as
//! compute-sanitizer.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "emulator/own_queue_client.hpp"
#include "emulator/raw_client.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/resident_units.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator::testing {
namespace {

using simt::cuda;

/// Blocks below `units` are the engine's, the others the client's; the last of these makes the engine leave.
template <class Client>
struct one_launch {
  static constexpr unsigned max_threads_per_block = resident_units<cuda>::max_threads_per_block;
  resident_units<cuda> engine;
  Client client;
  std::uint32_t* client_threads_left = nullptr;

  FOREBAY_DEVICE void operator()() const {
    if (cuda::this_block().rank < engine.view.options.units) return engine();
    client();
    // Acquire and release: the last one comes after all others.
    if (simt::atomic<cuda>(*client_threads_left).fetch_sub(1, simt::order::acq_rel) == 1) {
      // Relaxed: it carries nothing.
      simt::atomic<cuda, simt::scope::system>(engine.words->stop).store(1, simt::order::relaxed);
    }
  }
};

struct scenario {
  std::uint32_t queues = 2;
  std::uint32_t write_percent = 50;
  std::uint32_t block_bytes = 512;
  timing_parameters timing;
  bool own_queues = false;  ///< each warp of the client has one
};

void play(scenario const& s) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  constexpr std::uint32_t units = 2, threads_per_block = 64, client_blocks = 3, entries = 128, rounds = 5;
  constexpr std::uint64_t drive_bytes = 1 << 20;
  constexpr std::uint32_t client_threads = client_blocks * threads_per_block;
  std::uint32_t const queue_count = s.own_queues ? client_threads / 32 : s.queues;
  memory::resource& gpu = memory::device(0);
  std::size_t const ring_bytes = entries * (sizeof(nvme::submission_entry) + sizeof(nvme::completion_entry));
  memory::allocation const store(gpu, drive_bytes, 4096),
      area(gpu, bench::raw_area::bytes(client_threads, s.block_bytes), 4096),
      rings(gpu, queue_count * ring_bytes, 4096), doorbells(gpu, queue_count * 8, 128),
      told(gpu, client_threads * 4, 128), queue_states(gpu, queue_count * sizeof(bench::raw_queue), 128),
      words(gpu, sizeof(residency_words), 128), left(gpu, 4, 128), result(gpu, sizeof(bench::raw_result), 128);
  std::vector<std::uint32_t> bytes(drive_bytes / 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::uint32_t const in_block = s.block_bytes / 4;
    bytes[i] = bench::pattern(i / in_block, static_cast<std::uint32_t>(i % in_block));
  }
  gpu.copy_in(store.data(), bytes.data(), drive_bytes);

  dma_regions regions(gpu, 8);
  regions.add(rings.data(), rings.size_bytes());
  regions.add(area.data(), area.size_bytes());
  engine_options options;
  options.units = units;
  options.dispatchers_per_unit = threads_per_block / 32;
  options.queue_slots = queue_count;
  options.timing = s.timing;
  engine<cuda> drive(options, media{store.as<std::byte>(), drive_bytes, 512}, gpu);
  std::vector<bench::raw_queue> queues(queue_count);
  for (std::uint32_t q = 0; q < queue_count; ++q) {
    std::byte* const ring = rings.as<std::byte>() + q * ring_bytes;
    queues[q].sq = reinterpret_cast<nvme::submission_entry*>(ring);
    queues[q].cq = reinterpret_cast<nvme::completion_entry*>(ring + entries * sizeof(nvme::submission_entry));
    queues[q].tail_doorbell = doorbells.as<std::uint32_t>() + 2 * q;
    queues[q].head_doorbell = queues[q].tail_doorbell + 1;
    queues[q].entries = queues[q].cq_entries = entries;
    drive.attach_completion_queue({q, queues[q].cq, entries, queues[q].head_doorbell});
    drive.attach_submission_queue({.slot = q,
                                   .id = static_cast<std::uint16_t>(q + 1),
                                   .entries = queues[q].sq,
                                   .size = entries,
                                   .tail_doorbell = queues[q].tail_doorbell,
                                   .cq_slot = q,
                                   .regions = regions.table()});
  }
  gpu.copy_in(queue_states.data(), queues.data(), queue_states.size_bytes());
  residency_words const fresh;
  gpu.copy_in(words.data(), &fresh, sizeof fresh);
  gpu.copy_in(left.data(), &client_threads, sizeof client_threads);
  auto seen = std::make_unique<bench::raw_result>();
  gpu.copy_in(result.data(), seen.get(), sizeof *seen);

  bench::raw_workload work;
  work.blocks = drive_bytes / s.block_bytes;
  work.block_bytes = s.block_bytes;
  work.write_percent = s.write_percent;
  work.rounds = rounds;
  work.check_all = true;
  work.deadline_ns = 60'000'000'000;
  resident_units<cuda> const resident{drive.view(), words.as<residency_words>(), 0};
  simt::grid shape = resident.shape();
  shape.blocks = units + client_blocks;
  memory::cuda_stream const stream(0);
  auto const launch = [&](auto client) {
    client.queues = queue_states.as<bench::raw_queue>();
    client.area = {area.as<std::byte>(), 0, client_threads};
    client.work = work;
    client.result = result.as<bench::raw_result>();
    client.first_warp = units * threads_per_block / 32;
    simt::launch<cuda>(shape, one_launch<decltype(client)>{resident, client, left.as<std::uint32_t>()}, stream.get());
  };
  if (s.own_queues) {
    launch(bench::own_queue_client<cuda>());
  } else {
    bench::raw_client<cuda> client;
    client.queue_count = queue_count;
    client.told = told.as<std::uint32_t>();
    launch(client);
  }
  stream.synchronize();
  gpu.copy_out(seen.get(), result.data(), sizeof *seen);
  EXPECT_EQ(seen->commands, std::uint64_t{client_threads} * rounds);
  EXPECT_EQ(seen->failed, 0u);
  EXPECT_EQ(seen->wrong, 0u);
  EXPECT_EQ(seen->timed_out, 0u);
  auto const counted = std::make_unique<statistics>();
  drive.collect(*counted);
  EXPECT_EQ(counted->commands.completions_posted, seen->commands);
  EXPECT_EQ(counted->commands.write_commands, seen->writes);
  EXPECT_EQ(counted->commands.bytes_written, seen->writes * s.block_bytes);
}

TEST(OneLaunch, UnthrottledReadsAndWrites) {
  play({});
}
TEST(OneLaunch, OneHotQueue) {
  play({.queues = 1, .timing = {}});
}
TEST(OneLaunch, TwoPages) {
  play({.block_bytes = 8192, .timing = {}});
}
TEST(OneLaunch, ListsOfPages) {
  play({.block_bytes = 32768, .timing = {}});
}
TEST(OneLaunch, AQueueForEachWarp) {
  play({.timing = {}, .own_queues = true});
}
TEST(OneLaunch, Timed) {
  scenario s;
  s.timing.read = s.timing.write = {.per_command_ps = 100'000, .latency_min_ps = 20'000'000};
  s.timing.channels = 4;
  play(s);
}

}  // namespace
}  // namespace forebay::emulator::testing
