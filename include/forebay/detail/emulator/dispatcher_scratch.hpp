// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory in which a dispatcher works on a batch.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/mover.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/timed_command.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Memory that the lanes of one dispatcher share while it works: shared memory on a GPU. Needs no initialisation before
/// the first step.
struct dispatcher_scratch {
  static constexpr std::uint32_t batch_entries = 32;
  static constexpr std::uint32_t staged_completions = 64;

  /// Entries lie 80 bytes apart, so that lanes that each read their own entry use different banks of a GPU's shared
  /// memory.
  struct padded_entry {
    simt::vec16 part[4];
    simt::vec16 padding;
  };
  padded_entry entries[batch_entries];
  decoded_command decoded[batch_entries];
  timed_command timed[batch_entries];
  pending_command commands[batch_entries];
  std::uint32_t slots[batch_entries];
  move_list moves;
  std::uint64_t channel_ps[timing_parameters::max_channels];
  std::uint64_t staged_due_ps[staged_completions];
  pending_command staged[staged_completions];
  std::uint32_t staged_slots[staged_completions];
  std::uint64_t visit_ps;  ///< when the last visit began to look for commands that were due
  std::uint32_t handled_requests;
};

}  // namespace forebay::emulator
