// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a writer that is going to be killed does, and what it writes: both follow from numbers that its parent knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "forebay/detail/emulator/timed_command.hpp"

namespace forebay::test::killed {

constexpr std::uint64_t block_bytes = 512;
constexpr std::uint64_t drive_blocks = 256;
constexpr std::uint64_t piece_blocks_max = 8;

/// The content of a block: its number, the generation, and a filling of both, so that no part of it fits any other.
/// Generation 0 is a block of zeros.
inline void fill(void* to, std::uint64_t block, std::uint64_t generation) {
  std::uint64_t words[block_bytes / 8] = {};
  if (generation != 0) {
    words[0] = block;
    words[1] = generation;
    for (std::uint64_t i = 2; i < std::size(words); ++i) words[i] = emulator::mix(block << 48 ^ generation << 8 ^ i);
  }
  std::memcpy(to, words, sizeof words);
}

/// Blocks that one command writes.
struct piece {
  std::uint64_t first_block = 0;
  std::uint64_t blocks = 0;
};

/// Writes that are in flight together, and name no block twice; or a Flush, where there is no piece.
using operation = std::vector<piece>;

/// The operation that writes this generation.
inline operation operation_of(std::uint64_t seed, std::uint64_t generation) {
  std::mt19937_64 random(emulator::mix(seed ^ generation));
  operation writes;
  if (random() % 6 == 0) return writes;
  std::uint64_t const wanted = 1 + random() % 4;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    piece const p{random() % (drive_blocks - piece_blocks_max), 1 + random() % piece_blocks_max};
    bool const free = std::none_of(writes.begin(), writes.end(), [&](piece const& other) {
      return p.first_block < other.first_block + other.blocks && other.first_block < p.first_block + p.blocks;
    });
    if (free) writes.push_back(p);
  }
  return writes;
}

}  // namespace forebay::test::killed
