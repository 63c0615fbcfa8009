// SPDX-License-Identifier: Apache-2.0
//! \file
//! The data mover of an engine on a GPU, alone: copies of blocks from anywhere in a region of the GPU's memory to
//! buffers, by loads and stores of a warp (what the engine does), by bulk copies through shared memory, and by the copy
//! engine in batches of copies.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/emulator/mover.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/bulk_barrier.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/event_timer.hpp"
#include "harness/repeated.hpp"

namespace {

using forebay::bench::runs_per_case;
using forebay::bench::seconds_of;
using forebay::simt::cuda;
using nlohmann::json;
namespace emulator = forebay::emulator;
namespace memory = forebay::memory;
namespace simt = forebay::simt;

constexpr std::uint64_t region_bytes = std::uint64_t{8} << 30;
constexpr std::uint32_t warps_per_block = 16;

struct copies {
  std::byte const* region;
  std::byte* buffers;  ///< 32 blocks for each warp
  std::uint32_t block_bytes;
  std::uint32_t rounds;

  FOREBAY_DEVICE std::byte const* source(std::uint32_t warp, std::uint32_t round, std::uint32_t i) const {
    std::uint64_t const draw = emulator::mix((std::uint64_t{warp} << 40) + (std::uint64_t{round} << 8) + i);
    return region + draw % (region_bytes / block_bytes) * block_bytes;
  }
  FOREBAY_DEVICE std::byte* target(std::uint32_t warp, std::uint32_t i) const {
    return buffers + (std::uint64_t{warp} * 32 + i) * block_bytes;
  }
};

/// Each warp makes `rounds` lists of 32 copies, as a dispatcher does.
struct by_loads {
  static constexpr unsigned max_threads_per_block = warps_per_block * 32;
  copies what;

  FOREBAY_DEVICE void operator()() const {
    auto const block = cuda::this_block();
    auto const lanes = simt::team<cuda>::here();
    emulator::move_list& list = *(&block.shared<emulator::move_list>() + block.thread_rank() / 32);
    std::uint32_t const warp = cuda::thread_rank() / 32;
    for (std::uint32_t round = 0; round < what.rounds; ++round) {
      list.clear(lanes);
      list.append(lanes, true, what.target(warp, lanes.rank()), what.source(warp, round, lanes.rank()),
                  what.block_bytes);
      list.run(lanes);
    }
  }
};

/// The same with one bulk copy into shared memory and one out of it for each block.
struct by_bulk_copies {
  static constexpr unsigned max_threads_per_block = warps_per_block * 32;
  copies what;
  std::uint32_t in_flight;

  static std::uint32_t shared_bytes(std::uint32_t in_flight, std::uint32_t block_bytes) {
    return warps_per_block * (in_flight * block_bytes + static_cast<std::uint32_t>(sizeof(simt::bulk_barrier<cuda>)));
  }

  FOREBAY_DEVICE void operator()() const {
    if constexpr (cuda::has_bulk_copies) {
      auto const block = cuda::this_block();
      auto const lanes = cuda::this_warp();
      std::uint32_t const warp_in_block = block.thread_rank() / 32;
      std::uint32_t const lane = lanes.thread_rank();
      std::uint32_t const warp = cuda::thread_rank() / 32;
      auto* const buffers = &block.shared<std::byte>();
      std::byte* const mine = buffers + std::size_t{warp_in_block} * in_flight * what.block_bytes;
      auto& barrier = reinterpret_cast<simt::bulk_barrier<cuda>*>(buffers + std::size_t{warps_per_block} * in_flight *
                                                                                what.block_bytes)[warp_in_block];
      if (lane == 0) barrier.init(1);
      lanes.sync();
      std::uint32_t parity = 0;
      for (std::uint32_t round = 0; round < what.rounds; ++round) {
        for (std::uint32_t first = 0; first < 32; first += in_flight, parity ^= 1) {
          if (lane == 0) {
            barrier.expect(in_flight * what.block_bytes);
            barrier.arrive();
          }
          lanes.sync();
          if (lane < in_flight) {
            barrier.copy_bulk(mine + lane * what.block_bytes, what.source(warp, round, first + lane), what.block_bytes);
          }
          barrier.wait(parity);
          if (lane < in_flight) {
            cuda::store_bulk(what.target(warp, first + lane), mine + lane * what.block_bytes, what.block_bytes);
            cuda::wait_bulk_reads();
          }
          lanes.sync();
        }
      }
      cuda::wait_bulk_stores();
    }
  }
};

bool has_bulk_copies() {
  int major = 0;
  memory::check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  return major >= 9;
}

struct measurement {
  std::string mover;
  std::uint32_t sms = 0;
  std::uint32_t block_bytes = 0;
  std::vector<double> copies_per_second;
  bool right = true;
};

/// The last list of every warp must have arrived.
bool check(copies const& what, std::uint32_t warps) {
  std::vector<std::byte> out(std::size_t{warps} * 32 * what.block_bytes), in(what.block_bytes);
  memory::resource& gpu = memory::device(0);
  gpu.copy_out(out.data(), what.buffers, out.size());
  for (std::uint32_t warp = 0; warp < warps; warp += 37) {
    for (std::uint32_t i = 0; i < 32; i += 5) {
      gpu.copy_out(in.data(), what.source(warp, what.rounds - 1, i), in.size());
      if (std::memcmp(in.data(), out.data() + (std::size_t{warp} * 32 + i) * what.block_bytes, in.size()) != 0) {
        return false;
      }
    }
  }
  return true;
}

measurement measure(std::string const& mover, std::uint32_t sms, std::uint32_t block_bytes, std::byte* region,
                    std::byte* buffers, memory::cuda_stream const& stream) {
  measurement m{mover, sms, block_bytes, {}, true};
  std::uint32_t const warps = sms * warps_per_block;
  copies what{region, buffers, block_bytes, (block_bytes > 512 ? 200u : 1000u)};
  double const count = 32.0 * warps * what.rounds;
  for (int i = 0; i <= runs_per_case; ++i) {
    cudaMemsetAsync(buffers, 0xee, std::size_t{warps} * 32 * block_bytes, stream.get());
    double seconds = 0;
    if (mover == "loads") {
      by_loads const kernel{what};
      seconds = seconds_of(stream, [&] {
        simt::launch<cuda>({.blocks = sms,
                            .threads_per_block = warps_per_block * 32,
                            .shared_bytes = static_cast<std::uint32_t>(warps_per_block * sizeof(emulator::move_list))},
                           kernel, stream.get());
      });
    } else {
      std::uint32_t const in_flight = block_bytes > 512 ? 2 : 16;
      seconds = seconds_of(stream, [&] {
        simt::launch<cuda>({.blocks = sms,
                            .threads_per_block = warps_per_block * 32,
                            .shared_bytes = by_bulk_copies::shared_bytes(in_flight, block_bytes)},
                           by_bulk_copies{what, in_flight}, stream.get());
      });
    }
    if (i == 0) continue;  // warm-up
    m.copies_per_second.push_back(count / seconds);
    m.right = m.right && check(what, warps);
  }
  return m;
}

measurement measure_copy_engine(std::uint32_t block_bytes, std::byte* region, std::byte* buffers,
                                memory::cuda_stream const& stream) {
  measurement m{"copy engine", 0, block_bytes, {}, true};
  copies const what{region, buffers, block_bytes, 1};
  constexpr std::uint32_t batch = 16'384;
  std::vector<void const*> from(batch);
  std::vector<void*> to(batch);
  std::vector<std::size_t> sizes(batch, block_bytes);
  for (std::uint32_t i = 0; i < batch; ++i) {
    from[i] = what.source(i / 32, 0, i % 32);
    to[i] = what.target(i / 32, i % 32);
  }
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  for (int run = 0; run <= runs_per_case; ++run) {
    cudaMemsetAsync(buffers, 0xee, std::size_t{batch} * block_bytes, stream.get());
    double const seconds = seconds_of(stream, [&] {
      memory::check_cuda(
          cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), batch, &attributes, &first, 1, stream.get()),
          "cudaMemcpyBatchAsync");
    });
    if (run == 0) continue;
    m.copies_per_second.push_back(batch / seconds);
    m.right = m.right && check(what, batch / 32);
  }
  return m;
}

void print(measurement const& m, double rate) {
  std::printf("%-12s %3u SMs %5u B %9.2f M/s %8.1f GB/s%s\n", m.mover.c_str(), m.sms, m.block_bytes, rate / 1e6,
              rate * m.block_bytes / 1e9, m.right ? "" : "  WRONG DATA");
  std::fflush(stdout);
}

int run(forebay::bench::command_line const& given) {
  memory::cuda_stream const stream(0);
  memory::allocation const region(memory::device(0), region_bytes, 4096);
  memory::allocation const buffers(memory::device(0), std::size_t{64} * warps_per_block * 32 * 4096, 4096);
  std::vector<std::uint64_t> words(region_bytes / 16 / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = emulator::mix(i + 1);
  for (int part = 0; part < 16; ++part) {
    words[0] = static_cast<std::uint64_t>(part);
    memory::device(0).copy_in(region.as<std::byte>() + part * (region_bytes / 16), words.data(), region_bytes / 16);
  }
  std::vector<measurement> all;
  for (std::uint32_t const block_bytes : {512u, 4096u}) {
    for (std::uint32_t const sms : {1u, 8u, 32u, 64u}) {
      for (char const* const mover : {"loads", "bulk copies"}) {
        if (std::strcmp(mover, "bulk copies") == 0 && !has_bulk_copies()) continue;
        all.push_back(measure(mover, sms, block_bytes, region.as<std::byte>(), buffers.as<std::byte>(), stream));
      }
    }
    all.push_back(measure_copy_engine(block_bytes, region.as<std::byte>(), buffers.as<std::byte>(), stream));
  }
  json document = forebay::bench::document_of("data_mover", given.as_typed());
  bool good = true;
  for (measurement& m : all) {
    std::sort(m.copies_per_second.begin(), m.copies_per_second.end());
    double const median = m.copies_per_second[m.copies_per_second.size() / 2];
    print(m, median);
    good = good && m.right;
    document["results"].push_back({{"mover", m.mover},
                                   {"sms", m.sms},
                                   {"block_bytes", m.block_bytes},
                                   {"copies_per_second", m.copies_per_second},
                                   {"median", median},
                                   {"bytes_per_second", median * m.block_bytes},
                                   {"right", m.right}});
  }
  given.write(document.dump(2));
  return good ? 0 : 1;
}

}  // namespace

forebay::bench::benchmark const forebay::bench::this_benchmark{
    .with_value = {}, .switches = {}, .environment = {}, .run = run};
