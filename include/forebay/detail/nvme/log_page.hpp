// SPDX-License-Identifier: Apache-2.0
//! \file
//! Log pages (NVM Express Base Specification 1.4, section 5.14).
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::nvme {

/// Figure 191.
enum class log_page_id : std::uint8_t {
  error_information = 0x01,
  smart_health_information = 0x02,
  firmware_slot_information = 0x03,
  changed_namespace_list = 0x04,
  commands_supported_and_effects = 0x05,
  device_self_test = 0x06,
  telemetry_host_initiated = 0x07,
  telemetry_controller_initiated = 0x08,
  endurance_group_information = 0x09,
  persistent_event_log = 0x0d,
  reservation_notification = 0x80,
  sanitize_status = 0x81,
};

/// CDW10 of Get Log Page: the identifier and the low half of NUMD. `bytes` is a multiple of 4, at least 4.
FOREBAY_DEVICE constexpr std::uint32_t get_log_page_cdw10(log_page_id id, std::uint64_t bytes) {
  return static_cast<std::uint32_t>(id) | static_cast<std::uint32_t>((bytes / 4 - 1) & 0xffff) << 16;
}
/// CDW11 of Get Log Page: the high half of NUMD.
FOREBAY_DEVICE constexpr std::uint32_t get_log_page_cdw11(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes / 4 - 1) >> 16 & 0xffff);
}

/// One entry of log page 01h (figure 192), newest first; `error_count` 0 marks an unused one.
struct error_information_entry {
  std::uint64_t error_count = 0;
  std::uint16_t sqid = 0;
  std::uint16_t cmdid = 0;
  std::uint16_t status_field = 0;  ///< status 15:1, phase tag 0
  std::uint16_t parameter_error_location = 0;
  std::uint64_t lba = 0;
  std::uint32_t nsid = 0;
  std::uint8_t vendor_specific_information = 0;
  std::uint8_t trtype = 0;
  std::uint8_t reserved_30[2] = {};
  std::uint64_t command_specific_information = 0;
  std::uint16_t transport_type_specific_information = 0;
  std::uint8_t reserved_42[22] = {};
};
static_assert(sizeof(error_information_entry) == 64);
static_assert(offsetof(error_information_entry, lba) == 16 && offsetof(error_information_entry, nsid) == 24);
static_assert(offsetof(error_information_entry, command_specific_information) == 32);

/// A 128-bit little-endian count.
struct count128 {
  std::uint32_t word[4] = {};
  /// The low 64 bits.
  FOREBAY_DEVICE constexpr std::uint64_t low64() const { return word[0] | static_cast<std::uint64_t>(word[1]) << 32; }
  FOREBAY_DEVICE static constexpr count128 from(std::uint64_t value) {
    return {{static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32), 0, 0}};
  }
};

/// Log page 02h (figure 194).
struct smart_health_information {
  std::uint8_t critical_warning = 0;
  std::uint8_t composite_temperature[2] = {};  ///< kelvin, little-endian, unaligned
  std::uint8_t available_spare = 0;            ///< percent
  std::uint8_t available_spare_threshold = 0;
  std::uint8_t percentage_used = 0;
  std::uint8_t endurance_group_critical_warning_summary = 0;
  std::uint8_t reserved_7[25] = {};
  count128 data_units_read;     ///< thousands of 512-byte units, rounded up
  count128 data_units_written;  ///< thousands of 512-byte units, rounded up
  count128 host_read_commands;
  count128 host_write_commands;
  count128 controller_busy_time;  ///< minutes
  count128 power_cycles;
  count128 power_on_hours;
  count128 unsafe_shutdowns;
  count128 media_and_data_integrity_errors;
  count128 number_of_error_information_log_entries;
  std::uint32_t warning_composite_temperature_time = 0;   ///< minutes
  std::uint32_t critical_composite_temperature_time = 0;  ///< minutes
  std::uint16_t temperature_sensor[8] = {};
  std::uint32_t thermal_management_temperature_transition_count[2] = {};
  std::uint32_t total_time_for_thermal_management_temperature[2] = {};
  std::uint8_t reserved_232[280] = {};

  FOREBAY_DEVICE constexpr std::uint32_t temperature_kelvin() const {
    return composite_temperature[0] | static_cast<std::uint32_t>(composite_temperature[1]) << 8;
  }
};
static_assert(sizeof(smart_health_information) == 512);
static_assert(offsetof(smart_health_information, data_units_read) == 32);
static_assert(offsetof(smart_health_information, number_of_error_information_log_entries) == 176);
static_assert(offsetof(smart_health_information, warning_composite_temperature_time) == 192);
static_assert(offsetof(smart_health_information, temperature_sensor) == 200);
static_assert(offsetof(smart_health_information, reserved_232) == 232);

/// Log page 03h (figure 195).
struct firmware_slot_information {
  std::uint8_t afi = 0;  ///< slot running 2:0, slot of the next reset 6:4
  std::uint8_t reserved_1[7] = {};
  char frs[7][8] = {};
  std::uint8_t reserved_64[448] = {};
};
static_assert(sizeof(firmware_slot_information) == 512 && offsetof(firmware_slot_information, frs) == 8);

/// Log page 05h (figure 202): one word for each opcode; bit 0 says "supported".
struct commands_supported_and_effects {
  std::uint32_t admin[256] = {};
  std::uint32_t io[256] = {};
  std::uint8_t reserved_2048[2048] = {};
};
static_assert(sizeof(commands_supported_and_effects) == 4096);

}  // namespace forebay::nvme
