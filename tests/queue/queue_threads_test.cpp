// SPDX-License-Identifier: Apache-2.0
//! \file
//! The queues under real threads: what ThreadSanitizer sees of the compiled atomics, which the schedules replace.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/service.hpp"
#include "forebay/token.hpp"

namespace forebay {
namespace {

using native = simt::native;

constexpr std::uint32_t block_bytes = 512;

struct drive_and_queues {
  static constexpr std::uint32_t pairs = 2;

  explicit drive_and_queues(std::uint32_t depth_, std::uint32_t blocks, emulator::fault_plan const& faults)
      : depth(depth_), media_bytes(blocks * block_bytes) {
    memory_ = memory::allocation(memory::host(), 4 << 20, 4096);
    regions.add(memory_.data(), memory_.size_bytes());
    std::vector<queue_pair_rings> rings;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      rings.push_back({take<nvme::submission_entry>(depth), take<nvme::completion_entry>(depth),
                       take<std::uint32_t>(32), take<std::uint32_t>(32), depth, depth, i + 1});
    }
    io_queues_options options;
    options.records = 64;
    auto* const lists = take<std::byte>(4 * 4096);
    options.prp_pages = buffer_ref(lists, 4 * 4096, reinterpret_cast<std::uint64_t>(lists));
    queues = std::make_unique<io_queues>(rings, options, memory::host(), memory::host());
    emulator::engine_options drive;
    drive.units = 2;
    drive.queue_slots = pairs;
    drive.epoch_ns = native::clock_ns();
    drive.faults = faults;
    emulator::media media;
    media.data = media_bytes.data();
    media.bytes = media_bytes.size();
    media.block_bytes = block_bytes;
    engine = std::make_unique<emulator::engine<native>>(drive, media);
    for (queue_pair_rings const& r : rings) {
      engine->attach_completion_queue({r.queue_id - 1u, r.cq, r.cq_entries, r.cq_doorbell});
      engine->attach_submission_queue({.slot = r.queue_id - 1u,
                                       .id = static_cast<std::uint16_t>(r.queue_id),
                                       .entries = r.sq,
                                       .size = r.sq_entries,
                                       .tail_doorbell = r.sq_doorbell,
                                       .cq_slot = r.queue_id - 1u,
                                       .regions = regions.table()});
    }
    for (std::uint32_t unit = 0; unit < 2; ++unit) {
      units.emplace_back([this, unit] {
        (void)native::wait_until(
            [&] {
              while (engine->step(unit)) {
              }
              // Relaxed: nothing follows from it but the end of the thread.
              return stop.load(std::memory_order_relaxed);
            },
            simt::no_deadline);
      });
    }
  }
  ~drive_and_queues() {
    stop.store(true, std::memory_order_relaxed);
    for (std::thread& unit : units) unit.join();
  }
  /// Page-aligned, zeroed, registered.
  template <class T>
  T* take(std::size_t count) {
    auto* const at = memory_.as<std::byte>() + used;
    used += (count * sizeof(T) + 4095) / 4096 * 4096;
    return reinterpret_cast<T*>(at);
  }

  std::uint32_t depth;
  std::vector<std::byte> media_bytes;
  memory::allocation memory_;
  std::size_t used = 0;
  emulator::dma_regions regions{memory::host(), 8};
  std::unique_ptr<io_queues> queues;
  std::unique_ptr<emulator::engine<native>> engine;
  std::atomic<bool> stop = false;
  std::vector<std::thread> units;
};

/// Three threads write and read; by `service_rules` a fourth consumes for them.
template <class Rules>
void write_and_read() {
  constexpr std::uint32_t threads = 3;
  constexpr std::uint32_t rounds = 150;
  constexpr std::uint32_t blocks = 24;  // 12 KiB: a list
  emulator::fault_plan faults;
  faults.seed = 3;
  faults.delay_ppm = 200'000;
  faults.delay_max_ns = 50'000;
  for (std::uint32_t const depth : {2u, 3u, 32u}) {
    drive_and_queues drive(depth, threads * blocks, faults);
    auto const queues = drive.queues->ref<native, Rules>();
    std::uint32_t stop = 0;
    std::thread service;
    if (!Rules::waiters_help) {
      service = std::thread([&] { service_kernel<native>{drive.queues->ref<native>(), &stop}(); });
    }
    std::vector<std::uint32_t*> buffers;
    for (std::uint32_t t = 0; t < threads; ++t)
      buffers.push_back(drive.take<std::uint32_t>(2 * blocks * block_bytes / 4));
    std::atomic<std::uint32_t> wrong = 0;
    auto const client = [&](std::uint32_t me) {
      std::size_t const words = blocks * block_bytes / 4;
      std::uint32_t* const out = buffers[me];
      std::uint32_t* const in = buffers[me] + words;
      auto const request = [&](nvme::io_opcode opcode, std::uint32_t* data, std::uint32_t round) {
        auto const bytes = blocks * block_bytes;
        std::uint32_t const record = queues.records().try_open(1);
        std::uint32_t home = round % drive_and_queues::pairs;
        io_command const command{
            opcode,
            1,
            std::uint64_t{me} * blocks,
            blocks,
            bytes,
            buffer_ref(reinterpret_cast<std::byte*>(data), bytes, reinterpret_cast<std::uint64_t>(data))};
        pair_range const both{0, drive_and_queues::pairs};
        if (!queues.submit(both, home, command, record, native::clock_ns() + 60'000'000'000).ok()) ++wrong;
        if (!token<native, io_queues_ref<native, Rules>>(queues, record, both).wait().ok()) ++wrong;
      };
      for (std::uint32_t round = 0; round < rounds; ++round) {
        for (std::size_t w = 0; w < words; ++w) out[w] = round * 1000 + me + static_cast<std::uint32_t>(w);
        request(nvme::io_opcode::write, out, round);
        request(nvme::io_opcode::read, in, round + 1);
        for (std::size_t w = 0; w < words; ++w) wrong += in[w] == out[w] ? 0u : 1u;
      }
    };
    std::vector<std::thread> clients;
    for (std::uint32_t t = 0; t < threads; ++t) clients.emplace_back(client, t);
    for (std::thread& c : clients) c.join();
    // Release pairs with the acquire of the service.
    simt::atomic<native, simt::scope::system>(stop).store(1, simt::order::release);
    if (service.joinable()) service.join();
    EXPECT_EQ(wrong.load(), 0u) << "depth " << depth;
    for (std::uint32_t i = 0; i < drive_and_queues::pairs; ++i) {
      EXPECT_EQ(drive.queues->protocol_errors(i), 0u);
      // A poll that finds nothing gives the last credits back.
      queues.pair(i).try_poll(queues.prp_pages(), queues.records());
      EXPECT_TRUE(queues.pair(i).idle());
    }
  }
}

TEST(QueueThreads, WritesAndReadsOfThreeThreadsOnTwoSmallQueues) {
  write_and_read<queue_rules>();
}
TEST(QueueThreads, WritesAndReadsBesideAService) {
  write_and_read<service_rules>();
}

}  // namespace
}  // namespace forebay
