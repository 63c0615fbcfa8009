// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes drive profiles, which are TOML files.
#include "forebay/detail/drive/profile.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "fuzz/file_in_memory.hpp"
#include "fuzz/refusals.hpp"

namespace {

using namespace forebay;
using test::demand;

/// The largest transfer of an emulated drive (`subsystem_options::mdts`).
constexpr std::uint64_t most_bytes = std::uint64_t{4096} << 8;

void check(drive::profile const& found) {
  demand(!found.name.empty() && !found.sources.empty(), "a profile has a name and sources");
  emulator::timing_parameters const& timing = found.timing;
  demand(timing.channels >= 1 && timing.channels <= timing.max_channels, "channels have bounds");
  for (emulator::operation_cost const* cost : {&timing.read, &timing.write, &timing.other}) {
    demand(cost->granule_bytes != 0, "a granule has a byte");
    auto const bytes = (most_bytes + cost->granule_bytes - 1) / cost->granule_bytes * cost->granule_bytes;
    auto const exact = static_cast<long double>(cost->per_byte_fs) * static_cast<long double>(bytes);
    demand(exact < 0x1p64L, "the time of the largest transfer fits 64 bits");
    auto const whole = (static_cast<long double>(cost->per_command_ps) + exact / 1000) * timing.channels;
    demand(whole < 0x1p63L, "and so does its charge to a channel");
  }
  if (timing.flash.channels == 0) return;
  emulator::flash_parameters const& flash = timing.flash;
  demand(flash.page_bytes != 0 && flash.read_bytes % flash.page_bytes == 0 &&
             flash.program_bytes % flash.read_bytes == 0 && flash.block_bytes / flash.program_bytes >= 2,
         "the units of flash are multiples of each other");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::file_in_memory const file(data, size);
  fuzz::refuses([&] { check(drive::load_profile(file.path())); });
  return 0;
}
