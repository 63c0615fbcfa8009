// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes the emulated controller's reading of PRP entries and lists. Memory that is not registered faults when it is
//! touched.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emulator/fuzz_arena.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/demand.hpp"

namespace {

using namespace forebay;
using namespace forebay::emulator;
using emulator::testing::arena;
using emulator::testing::choices;
using emulator::testing::page;
using simt::native;
using test::demand;

/// An address that a list may hold: of registered memory most of the time, and at its borders often.
std::uint64_t address(arena const& memory, choices& pick) {
  switch (pick.below(8)) {
    case 0:
      return pick.word<std::uint64_t>();
    case 1:
      return memory.of(arena::data, pick.byte(), 4 * pick.below(1024));
    case 2:
      return memory.address(arena::data.first + arena::data.pages - 1, page - 8 * pick.below(4));
    case 3:
      return memory.of(arena::lists, pick.byte(), page - 8 * (1 + pick.below(4)));
    case 4:
      return memory.of(arena::lists, pick.byte());
    case 5:
      return memory.address(pick.below(arena::pages));
    default:
      return memory.of(arena::data, pick.byte());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static arena memory;
  static dma_regions regions(memory::host(), 6);
  static bool const registered = [] {
    for (arena::pool const& pool : {arena::lists, arena::data}) {
      memory.open(pool.first, pool.pages);
      regions.add(reinterpret_cast<void*>(memory.address(pool.first)), pool.pages * page);
    }
    return true;
  }();
  (void)registered;

  emulator::testing::fuzz_input const input(data, data + size);
  choices pick(input);
  // CC.MPS: the client chooses it.
  std::uint64_t const page_bytes = page << (pick.rarely(64) ? pick.below(5) : 0);
  std::uint64_t const bytes =
      4 * (1 + (pick.rarely(64) ? pick.word<std::uint32_t>() % (1u << 20) : pick.byte() * 256u));
  std::uint64_t const prp1 = address(memory, pick), prp2 = address(memory, pick);
  while (!pick.done()) {
    std::uint64_t const at = memory.of(arena::lists, pick.below(16), 8 * pick.below(512));
    for (std::uint32_t words = 1 + pick.below(8); words != 0; --words) {
      memory.store(at + 8 * (words - 1), address(memory, pick));
    }
  }

  std::uint64_t const most = max_segments(bytes, page_bytes);
  std::vector<dma_segment> segments(most);
  prp_walk const walk =
      walk_prps<native>(simt::team<native>::here(), regions.table(), prp1, prp2, bytes, page_bytes, segments.data());
  demand(walk.count <= most, "no more segments than were announced");
  if (walk.status_field != 0) {
    demand(walk.count == 0, "a command that fails has no segments");
    return 0;
  }
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < walk.count; ++i) {
    dma_segment const& s = segments[i];
    demand(s.bytes != 0 && s.bytes <= page_bytes && regions.table().contains<native>(s.address, s.bytes),
           "a segment is in registered memory");
    demand(i == 0 ? s.address == prp1 : s.address % page_bytes == 0, "segments after the first begin at pages");
    sum += s.bytes;
  }
  demand(sum == bytes, "the segments are the transfer");
  dma_segment piece;
  if (one_piece<native>(regions.table(), prp1, prp2, bytes, page_bytes, piece)) {
    demand(piece.address == prp1 && piece.bytes == bytes, "one piece is the transfer");
  }
  return 0;
}
