// SPDX-License-Identifier: Apache-2.0
//! \file
//! The loop of a block over its tiles, and the shared memory that it takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "apps/transfer/workload.hpp"
#include "forebay/error.hpp"
#include "forebay/stager.hpp"

namespace forebay::transfer {

/// Four floats that a thread loads or stores at a time. Their address is a multiple of 16.
struct alignas(16) quad {
  float of[4];

  FOREBAY_DEVICE static quad at(float const* from) { return *reinterpret_cast<quad const*>(from); }
  FOREBAY_DEVICE void store(float* to) const { *reinterpret_cast<quad*>(to) = *this; }
};

/// What a block of a GPU of compute capability 9.0 has at most: 227 KiB (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
inline constexpr std::uint32_t shared_bytes_max = 227 * 1024;
inline constexpr std::uint32_t threads_max = 1024;

/// Calls `fill(item)` and `work(item, tile)` for each item `first`, `first + step`, ... below `end`. `fill` acquires a
/// tile of `staged`, starts its copies and commits it; that happens up to `stages` items ahead of the work. All lanes
/// of the block call this with the same arguments.
template <class Stager, class Fill, class Work>
FOREBAY_DEVICE void for_each_tile(Stager& staged, std::uint32_t stages, std::uint64_t first, std::uint64_t step,
                                  std::uint64_t end, Fill&& fill, Work&& work) {
  std::uint64_t ahead = first;
  for (std::uint32_t i = 1; i < stages && ahead < end; ++i, ahead += step) fill(ahead);
  for (std::uint64_t item = first; item < end; item += step) {
    if (ahead < end) {
      fill(ahead);
      ahead += step;
    }
    work(item, staged.wait());
    staged.release();
  }
}

/// Calls `store(i, value)` for the lane's places i of [0, count), where `step(value)` was called `steps` times on what
/// `load(i)` returned. Takes four places at a time while there are as many, so that a step of one need not wait for
/// that before it.
template <class Block, class Load, class Step, class Store>
FOREBAY_DEVICE void step_each(Block const& block, std::uint32_t count, int steps, Load&& load, Step&& step,
                              Store&& store) {
  constexpr std::uint32_t together = 4;
  std::uint32_t const size = block.size();
  std::uint32_t i = block.thread_rank();
  for (; i + (together - 1) * size < count; i += together * size) {
    decltype(load(i)) values[together];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < together; ++k) values[k] = load(i + k * size);
    for (int done = 0; done < steps; ++done) {
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < together; ++k) step(values[k]);
    }
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < together; ++k) store(i + k * size, values[k]);
  }
  for (; i < count; i += size) {
    auto value = load(i);
    for (int done = 0; done < steps; ++done) step(value);
    store(i, value);
  }
}

/// The number of blocks of the calling thread's grid.
template <class M>
FOREBAY_DEVICE std::uint32_t block_count() {
  return M::thread_count() / M::this_block().size();
}

/// Shared memory for a stager of any policy.
template <class T>
constexpr std::uint32_t staged_bytes(std::uint32_t tile, std::uint32_t stages) {
  return simt::stager<simt::fiber, simt::stage_policy::bulk, T>::shared_bytes(tile, stages);
}

/// What `given` leaves 0, from `usual`. Refuses blocks, threads and stages out of range; the tile is the workload's to
/// check.
inline launch_shape completed(launch_shape given, launch_shape usual) {
  launch_shape const shape{given.blocks != 0 ? given.blocks : usual.blocks,
                           given.threads != 0 ? given.threads : usual.threads,
                           given.tile != 0 ? given.tile : usual.tile, given.stages != 0 ? given.stages : usual.stages};
  if (shape.threads > threads_max) {
    throw refused_input("--threads", std::to_string(shape.threads), "a block has at most 1024 threads");
  }
  // A thread's rank in its grid is a number of 32 bits, and CUDA has fewer than 2^31 blocks.
  std::uint32_t const blocks_max =
      std::min(std::numeric_limits<std::uint32_t>::max() / shape.threads, (std::uint32_t{1} << 31) - 1);
  if (shape.blocks > blocks_max) {
    throw refused_input("--blocks", std::to_string(shape.blocks),
                        "blocks of " + std::to_string(shape.threads) + " threads are at most " +
                            std::to_string(blocks_max) + " in a grid");
  }
  if (shape.stages > 8) throw refused_input("--stages", std::to_string(shape.stages), "use 1 to 8");
  return shape;
}

/// Refuses a tile unless it is one to `most`, a multiple of `unit`, and divides `whole`.
inline void require_tile(std::uint32_t tile, std::uint32_t unit, std::uint64_t whole, std::uint64_t most) {
  auto const refuse = [&](std::string const& remedy) { throw refused_input("--tile", std::to_string(tile), remedy); };
  if (tile > most) refuse("must be at most " + std::to_string(most));
  if (tile % unit != 0) refuse("must be a multiple of " + std::to_string(unit));
  if (whole % tile != 0) refuse("must divide " + std::to_string(whole));
}

/// Refuses a shape whose blocks take more shared memory than a GPU has.
inline void require_shared_bytes(std::uint64_t bytes) {
  if (bytes <= shared_bytes_max) return;
  throw refused_input(
      "--tile", std::to_string(bytes) + " bytes of shared memory with its stages",
      "a block has at most " + std::to_string(shared_bytes_max) + ": take a smaller tile or fewer stages");
}

}  // namespace forebay::transfer
