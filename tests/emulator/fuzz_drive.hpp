// SPDX-License-Identifier: Apache-2.0
//! \file
//! The drives that inputs of the controller fuzzer choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/fuzz_honest_host.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/emulator/flash_model.hpp"
#include "forebay/detail/emulator/subsystem.hpp"
#include "forebay/detail/nvme/status_code.hpp"

namespace forebay::emulator::testing {

enum class backing : std::uint8_t { memory, file, copy, none, file_read_only, count };

/// A drive, as the head of an input chooses it.
struct chosen_drive {
  subsystem_options options;
  drive_facts facts;
  backing kind = backing::memory;
  /// Commands keep away from the first blocks, whatever pieces of them are mixed. Otherwise queues, lists, ranges and
  /// data may lie in the same pages, and the test cannot know what is written.
  bool strict = true;
};

/// Blocks that hostile commands of a strict input do not write. Nobody writes the first half; the well-behaved host
/// that runs at the same time writes the other half.
inline constexpr std::uint32_t reserved_blocks = 64;

inline chosen_drive choose_drive(choices& pick) {
  chosen_drive drive;
  subsystem_options& o = drive.options;
  drive.strict = !pick.rarely(96);
  drive.kind = pick.one_of({backing::memory, backing::memory, backing::memory, backing::copy, backing::file,
                            backing::file_read_only, backing::none});
  bool const large_blocks = pick.rarely(80);
  drive.facts.block_bytes = large_blocks ? 4096 : 512;
  drive.facts.blocks = large_blocks ? 256 : 1024;
  drive.facts.read_only = drive.kind == backing::file_read_only;
  drive.facts.keeps_data = drive.kind != backing::none;
  o.mdts = drive.facts.mdts = pick.one_of<std::uint8_t>({1, 2, 3, 5, 8});
  o.units = pick.one_of({1u, 1u, 2u, 3u});
  o.max_queues = 4 + pick.below(6);
  o.max_queue_entries = pick.one_of({64u, 20u, 256u, 1024u, 65536u});
  o.leave_timeout_ns = 60'000'000'000;
  switch (pick.below(6)) {
    case 1:
    case 2:
      // Cheap commands: later commands wait for their cost, and there are thousands of hostile ones.
      o.timing.read = {.per_command_ps = 10'000, .per_byte_fs = 100, .latency_min_ps = 20'000'000};
      o.timing.write = {.per_command_ps = 30'000, .per_byte_fs = 100, .latency_min_ps = 10'000'000};
      o.timing.other = {.latency_min_ps = 5'000'000};
      o.timing.channels = 1 + pick.below(64);
      o.timing.channel_stride_bytes = pick.one_of({512u, 4096u, 65536u, 1000u});
      o.timing.jitter_ps = 10'000'000;
      o.timing.disorder_ps = pick.rarely(128) ? 2'000'000 : 0;
      if (pick.rarely(64)) o.link = "gen4x4";
      break;
    case 3:
      o.timing.flash = {.channels = 2,
                        .dies_per_channel = 2,
                        .page_bytes = 4096,
                        .read_bytes = 8192,
                        .program_bytes = 8192,
                        .block_bytes = 65536,
                        .read_ps = 100'000,
                        .program_ps = 300'000,
                        .erase_ps = 600'000,
                        .channel_byte_fs = 10,
                        .buffer_bytes = 65536,
                        .spare_ppm = 500'000,
                        .start = pick.one_of({preconditioning::fresh, preconditioning::full, preconditioning::random})};
      break;
    default:
      break;
  }
  if (pick.rarely(100)) {
    o.faults.seed = pick.byte();
    o.faults.error_ppm = pick.one_of({0u, 100'000u, 300'000u});
    o.faults.delay_ppm = pick.one_of({0u, 300'000u, 500'000u});
    o.faults.withhold_ppm = pick.one_of({0u, 0u, 150'000u});
    o.faults.delay_max_ns = 1 + pick.below(200) * 1000;
    o.faults.late_data = !pick.rarely(64);
    if (o.faults.error_ppm != 0) {
      drive.facts.injected_status = static_cast<std::uint16_t>(o.faults.error_status_field & nvme::status_code_mask);
    }
    drive.facts.withholds = o.faults.withhold_ppm != 0;
  }
  o.frontend.coalesced_fetch = !pick.rarely(32);
  o.frontend.aggregated_timing = !pick.rarely(32);
  return drive;
}

/// What a drive holds at first, in the part that the test looks at.
inline std::uint8_t const* medium_pattern() {
  static auto const& pattern = *new std::vector<std::uint8_t>([] {
    std::vector<std::uint8_t> bytes(std::size_t{1} << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 11 + (i >> 9) * 5 + 3);
    return bytes;
  }());
  return pattern.data();
}

}  // namespace forebay::emulator::testing
