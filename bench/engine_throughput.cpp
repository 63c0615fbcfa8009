// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands a second that one service unit of the emulator's engine completes on one CPU thread, unthrottled. The
//! client's work (filling and draining the rings) is not timed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "forebay/detail/emulator/engine.hpp"
#include "harness/benchmark.hpp"

namespace {

using forebay::simt::native;
namespace emulator = forebay::emulator;
namespace memory = forebay::memory;
namespace nvme = forebay::nvme;

constexpr std::uint32_t queues = 8;
constexpr std::uint32_t queue_entries = 1024;
constexpr std::uint64_t drive_bytes = std::uint64_t{512} << 20;
constexpr std::uint64_t buffer_bytes = std::uint64_t{64} << 20;

struct workload {
  char const* name;
  nvme::io_opcode opcode;
  std::uint32_t block_bytes;
  bool timed;  ///< with a timing model, of a latency that has passed when completions are looked for
  bool moves_data;
};

double commands_a_second(workload const& work, double seconds) {
  memory::allocation const store(memory::host(), drive_bytes, 4096);
  memory::allocation const buffers(memory::host(), buffer_bytes, 4096);
  memory::allocation const rings(memory::host(), queues * queue_entries * 80, 4096);
  std::fill_n(store.as<std::uint8_t>(), drive_bytes, std::uint8_t{1});
  std::fill_n(buffers.as<std::uint8_t>(), buffer_bytes, std::uint8_t{2});
  emulator::dma_regions regions;
  regions.add(buffers.data(), buffers.size_bytes());

  emulator::media const drive{work.moves_data ? store.as<std::byte>() : nullptr, drive_bytes, 512, nullptr};
  emulator::engine_options options;
  options.epoch_ns = native::clock_ns();
  if (work.timed) options.timing.read = options.timing.write = {.per_command_ps = 1000, .latency_min_ps = 1000};
  emulator::engine<native> engine(options, drive);

  auto* const sq = rings.as<nvme::submission_entry>();
  auto* const cq = reinterpret_cast<nvme::completion_entry*>(sq + queues * queue_entries);
  std::vector<std::uint32_t> doorbells(queues * 2 * 16);  // a cache line each
  auto const tail = [&](std::uint32_t q) -> std::uint32_t& { return doorbells[q * 32]; };
  auto const head = [&](std::uint32_t q) -> std::uint32_t& { return doorbells[q * 32 + 16]; };
  for (std::uint32_t q = 0; q < queues; ++q) {
    engine.attach_completion_queue({q, cq + q * queue_entries, queue_entries, &head(q)});
    engine.attach_submission_queue({.slot = q,
                                    .id = static_cast<std::uint16_t>(q + 1),
                                    .entries = sq + q * queue_entries,
                                    .size = queue_entries,
                                    .tail_doorbell = &tail(q),
                                    .cq_slot = q,
                                    .regions = regions.table()});
  }

  std::mt19937_64 random(1);
  std::uint64_t completed = 0;
  std::chrono::duration<double> busy{0};
  while (busy.count() < seconds) {
    constexpr std::uint32_t batch = queue_entries - 1;
    for (std::uint32_t q = 0; q < queues; ++q) {
      for (std::uint32_t i = 0; i < batch; ++i) {
        std::uint64_t const draw = random();
        auto entry = nvme::make_io_command(work.opcode, static_cast<std::uint16_t>(i), 1,
                                           (draw >> 32) % (drive_bytes / work.block_bytes) * (work.block_bytes / 512),
                                           work.block_bytes / 512);
        entry.prp1 = reinterpret_cast<std::uint64_t>(buffers.data()) +
                     (draw & 0xffffffff) % (buffer_bytes / work.block_bytes) * work.block_bytes;
        entry.prp2 = entry.prp1 + 4096;
        sq[q * queue_entries + (tail(q) + i) % queue_entries] = entry;
      }
      tail(q) = (tail(q) + batch) % queue_entries;
    }
    auto const start = std::chrono::steady_clock::now();
    while (engine.step(0)) {
    }
    busy += std::chrono::steady_clock::now() - start;
    completed += std::uint64_t{batch} * queues;
    for (std::uint32_t q = 0; q < queues; ++q) head(q) = tail(q);
  }
  auto const sum = std::make_unique<emulator::statistics>();
  engine.collect(*sum);
  if (sum->commands.completions_posted != completed || sum->commands.failed_commands != 0) return 0;
  return static_cast<double>(completed) / busy.count();
}

int run(forebay::bench::command_line const& given) {
  auto const seconds = given.number("--runtime", 2.0);
  if (seconds == 0) throw forebay::refused_input("--runtime", given.text("--runtime", ""), "give more than 0 seconds");
  constexpr workload workloads[] = {
      {"read 512 B", nvme::io_opcode::read, 512, false, true},
      {"read 512 B, timed", nvme::io_opcode::read, 512, true, true},
      {"write 512 B", nvme::io_opcode::write, 512, false, true},
      {"read 4 KiB", nvme::io_opcode::read, 4096, false, true},
      {"frontend alone", nvme::io_opcode::read, 512, false, false},
  };
  nlohmann::json results = nlohmann::json::array();
  bool good = true;
  for (workload const& work : workloads) {
    double const rate = commands_a_second(work, seconds);
    good = good && rate > 0;
    results.push_back({{"workload", work.name}, {"commands_per_second", rate}});
  }
  nlohmann::json const document = {{"schema_version", 1}, {"threads", 1}, {"queues", queues}, {"results", results}};
  given.write(document.dump(2));
  return good ? 0 : 1;
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = {{"--runtime", "seconds that each workload runs; default: 2"}},
    .switches = {},
    .environment = {},
    .run = run};
