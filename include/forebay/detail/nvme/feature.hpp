// SPDX-License-Identifier: Apache-2.0
//! \file
//! Features (NVM Express Base Specification 1.4, section 5.21.1): identifiers and the layout of their 32-bit values.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::nvme {

/// Figure 271 and figure 272.
enum class feature_id : std::uint8_t {
  arbitration = 0x01,
  power_management = 0x02,
  lba_range_type = 0x03,
  temperature_threshold = 0x04,
  error_recovery = 0x05,
  volatile_write_cache = 0x06,
  number_of_queues = 0x07,
  interrupt_coalescing = 0x08,
  interrupt_vector_configuration = 0x09,
  write_atomicity_normal = 0x0a,
  asynchronous_event_configuration = 0x0b,
  autonomous_power_state_transition = 0x0c,
  host_memory_buffer = 0x0d,
  timestamp = 0x0e,
  keep_alive_timer = 0x0f,
  host_controlled_thermal_management = 0x10,
  non_operational_power_state_config = 0x11,
  read_recovery_level_config = 0x12,
  predictable_latency_mode_config = 0x13,
  predictable_latency_mode_window = 0x14,
  lba_status_information_report_interval = 0x15,
  host_behavior_support = 0x16,
  sanitize_config = 0x17,
  endurance_group_event_configuration = 0x18,
  software_progress_marker = 0x80,
  host_identifier = 0x81,
  reservation_notification_mask = 0x82,
  reservation_persistence = 0x83,
  namespace_write_protection_config = 0x84,
};

/// SEL of Get Features: which value is asked for.
enum class feature_select : std::uint8_t { current = 0, default_value = 1, saved = 2, supported_capabilities = 3 };

/// SV of Set Features, CDW10 bit 31: keep the value across resets and power cycles.
inline constexpr std::uint32_t feature_save = std::uint32_t{1} << 31;

/// Feature 01h.
struct arbitration {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr std::uint32_t burst_log2() const { return value & 7; }  ///< AB; 7 means no limit
  FOREBAY_DEVICE constexpr std::uint32_t low_priority_weight() const { return (value >> 8 & 0xff) + 1; }
  FOREBAY_DEVICE constexpr std::uint32_t medium_priority_weight() const { return (value >> 16 & 0xff) + 1; }
  FOREBAY_DEVICE constexpr std::uint32_t high_priority_weight() const { return (value >> 24) + 1; }
  /// The same burst with weights of 1 to 256: commands that a class may have started in a round.
  FOREBAY_DEVICE constexpr arbitration with_weights(std::uint32_t high, std::uint32_t medium, std::uint32_t low) const {
    return {(value & 7) | (low - 1) << 8 | (medium - 1) << 16 | (high - 1) << 24};
  }
};

/// Feature 04h.
struct temperature_threshold {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr std::uint32_t threshold_kelvin() const { return value & 0xffff; }
  FOREBAY_DEVICE constexpr std::uint32_t sensor() const { return value >> 16 & 15; }          ///< TMPSEL; 0 composite
  FOREBAY_DEVICE constexpr bool under_temperature() const { return (value >> 20 & 3) == 1; }  ///< THSEL
};

/// Feature 06h.
struct volatile_write_cache {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr bool enabled() const { return (value & 1) != 0; }
};

/// Feature 07h, as Set Features takes it (wanted) and both commands return it (allocated). On the wire 0's based.
struct number_of_queues {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr std::uint32_t submission_queues() const { return (value & 0xffff) + 1; }
  FOREBAY_DEVICE constexpr std::uint32_t completion_queues() const { return (value >> 16) + 1; }
  /// Both from 1 to 65535.
  FOREBAY_DEVICE static constexpr std::uint32_t make(std::uint32_t submission_queues, std::uint32_t completion_queues) {
    return ((submission_queues - 1) & 0xffff) | (completion_queues - 1) << 16;
  }
};

/// Feature 08h.
struct interrupt_coalescing {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr std::uint32_t threshold_entries() const { return (value & 0xff) + 1; }
  FOREBAY_DEVICE constexpr std::uint32_t time_100us() const { return value >> 8 & 0xff; }
};

}  // namespace forebay::nvme
