// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/flash_state.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <thread>

#include "forebay/detail/memory/machine.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

using model = flash_model<simt::native>;

/// The least number of spare blocks in a die, where blocks can be made smaller to reach it. Of so many, the one or two
/// blocks that garbage collection keeps free are a small part.
constexpr std::uint64_t spare_blocks = 16;
constexpr std::uint64_t overwrites = 1;  ///< of every page, on the average

void write(model const& flash, std::uint64_t offset_bytes, std::uint64_t bytes) {
  timed_command command{.offset_bytes = offset_bytes, .bytes = bytes, .op = operation::write};
  model::assign(&flash, simt::team<simt::native>::here(), &command, 1, 0);
}

void precondition_die(model const& flash, std::uint32_t die, preconditioning start, std::uint64_t seed,
                      std::stop_token const& cancel) {
  flash_geometry const& g = flash.geometry();
  std::uint64_t const stretches = (g.pages + g.pages_per_program - 1) / g.pages_per_program;
  std::uint64_t pages = 0;
  for (std::uint64_t s = die; s < stretches && !cancel.stop_requested(); s += g.dies) {
    std::uint64_t const first = s * g.pages_per_program;
    std::uint64_t const here = std::min<std::uint64_t>(g.pages_per_program, g.pages - first);
    write(flash, first * g.page_bytes, here * g.page_bytes);
    pages += here;
  }
  if (start != preconditioning::random) return;
  for (std::uint64_t i = 0; i < pages * overwrites && !cancel.stop_requested(); ++i) {
    std::uint64_t const page = mix(mix(seed ^ std::uint64_t{die} << 40) + i) % pages;
    std::uint64_t const stretch = page / g.pages_per_program * g.dies + die;
    write(flash, (stretch * g.pages_per_program + page % g.pages_per_program) * g.page_bytes, g.page_bytes);
  }
}

}  // namespace

flash_geometry flash_geometry_of(flash_parameters const& parameters, std::uint64_t drive_bytes) {
  auto const refuse_unless = [](bool good, char const* field, auto value, std::string const& remedy) {
    if (!good) throw refused_input(field, std::to_string(value), remedy);
  };
  flash_parameters const& p = parameters;
  refuse_unless(p.channels >= 1 && p.channels <= 64, "flash.channels", p.channels, "give 1 to 64");
  refuse_unless(p.dies_per_channel >= 1 && p.dies_per_channel <= 64, "flash.dies_per_channel", p.dies_per_channel,
                "give 1 to 64");
  refuse_unless(p.page_bytes >= 512, "flash.page_bytes", p.page_bytes, "give at least 512");
  refuse_unless(p.read_bytes != 0 && p.read_bytes % p.page_bytes == 0, "flash.read_bytes", p.read_bytes,
                "give a multiple of page_bytes");
  refuse_unless(p.program_bytes != 0 && p.program_bytes % p.read_bytes == 0, "flash.program_bytes", p.program_bytes,
                "give a multiple of read_bytes");
  refuse_unless(p.block_bytes % p.program_bytes == 0 && p.block_bytes / p.program_bytes >= 2, "flash.block_bytes",
                p.block_bytes, "give a multiple of program_bytes, at least two of it");
  refuse_unless(p.spare_ppm >= 1, "flash.spare_percent", p.spare_ppm, "give more than 0");

  flash_geometry g;
  g.channels = p.channels;
  g.dies = p.channels * p.dies_per_channel;
  g.page_bytes = p.page_bytes;
  g.pages_per_read = p.read_bytes / p.page_bytes;
  g.pages_per_program = p.program_bytes / p.page_bytes;
  g.read_ps = p.read_ps;
  g.program_ps = p.program_ps;
  g.channel_byte_fs = p.channel_byte_fs;
  std::uint64_t const buffered = p.buffer_bytes / p.program_bytes / g.dies;
  refuse_unless(buffered >= 1 && buffered <= 1 << 16, "flash.buffer_bytes", p.buffer_bytes,
                "the buffer must hold at least one program of each die, which takes " +
                    std::to_string(std::uint64_t{g.dies} * p.program_bytes) + " bytes, and at most 65536 of each");
  g.buffered_programs = static_cast<std::uint32_t>(buffered);

  g.pages = (drive_bytes + p.page_bytes - 1) / p.page_bytes;
  std::uint64_t const stretches = (g.pages + g.pages_per_program - 1) / g.pages_per_program;
  std::uint64_t const pages = (stretches + g.dies - 1) / g.dies * g.pages_per_program;
  std::uint64_t const spare = pages * p.spare_ppm / 1'000'000;
  std::uint64_t const least = 2 * std::uint64_t{g.pages_per_program};
  std::uint64_t const largest = std::min<std::uint64_t>(p.block_bytes / p.page_bytes, spare / spare_blocks);
  std::uint64_t const per_block = std::max(least, largest / g.pages_per_program * g.pages_per_program);
  std::uint64_t const blocks = (pages + spare + per_block - 1) / per_block;
  // One block is open, one is in reserve, and of the others at least one must not be full of valid pages.
  if (blocks < pages / per_block + 3) {
    std::uint64_t const enough =
        (4 * least * 1'000'000 / p.spare_ppm / g.pages_per_program + 2) * g.dies * p.program_bytes;
    throw refused_input("size", std::to_string(drive_bytes),
                        "the flash of this profile has too little spare space for its blocks on so small a drive; "
                        "give at least " +
                            std::to_string((enough + (1 << 20) - 1) >> 20) + "M");
  }
  refuse_unless(blocks * per_block < 0xffff'ffff, "size", drive_bytes,
                "a die of the flash model has less than 2^32 pages; give less, or a larger flash.page_bytes");
  g.pages_per_die = static_cast<std::uint32_t>(pages);
  g.pages_per_block = static_cast<std::uint32_t>(per_block);
  g.blocks_per_die = static_cast<std::uint32_t>(blocks);
  g.erase_ps = p.erase_ps * per_block / (p.block_bytes / p.page_bytes);
  return g;
}

memory::allocation flash_memory(memory::resource& from, std::size_t bytes, preconditioning start,
                                std::uint64_t drive_bytes) {
  std::uint64_t const machine_bytes = memory::machine_bytes();
  bool const near = from.kind() != memory::kind::device;
  try {
    // A drive that is written touches all of its state; a fresh one touches a part that grows.
    if (near && start != preconditioning::fresh && bytes > machine_bytes) throw std::bad_alloc();
    return memory::allocation(from, bytes, 128);
  } catch (std::bad_alloc const&) {
    throw refused_input("size", std::to_string(drive_bytes),
                        "the state of its flash takes " + std::to_string(bytes >> 20) +
                            " MiB of memory, and the machine " + "has " + std::to_string(machine_bytes >> 20) +
                            "; give less, or a profile without a [flash] table");
  }
}

void precondition(flash_model<simt::native> const& fresh, preconditioning start, std::uint64_t seed,
                  std::stop_token const& cancel) {
  if (start == preconditioning::fresh) return;
  flash_geometry const& g = fresh.geometry();
  std::uint32_t const most = std::max(1u, std::thread::hardware_concurrency());
  std::uint32_t const count = std::min(most, g.dies);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint32_t die = t; die < g.dies; die += count) precondition_die(fresh, die, start, seed, cancel);
      });
    }
  }
  if (cancel.stop_requested()) throw operation_failed("the drive was not opened: its opening was cancelled");
  auto const& at = fresh.memory();
  for (std::uint32_t d = 0; d < g.dies; ++d) {
    at.dies[d].next_free_ps = 0;
    at.dies[d].counts = {};
  }
  std::fill_n(at.bus_free_ps, g.channels, 0);
  std::fill_n(at.program_done, std::size_t{g.dies} * g.buffered_programs, 0);
}

}  // namespace forebay::emulator
