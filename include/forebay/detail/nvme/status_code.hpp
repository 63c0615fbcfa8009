// SPDX-License-Identifier: Apache-2.0
//! \file
//! Status codes (NVM Express Base Specification 1.4, figures 126 to 131) and the status field of a completion.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::nvme {

enum class status_code_type : std::uint8_t {
  generic_command_status = 0,
  command_specific_status = 1,
  media_and_data_integrity_errors = 2,
  path_related_status = 3,
  vendor_specific = 7,
};

/// Generic command status values, NVM command set included (0x80 and up).
enum class generic_status : std::uint8_t {
  successful_completion = 0x00,
  invalid_command_opcode = 0x01,
  invalid_field_in_command = 0x02,
  command_id_conflict = 0x03,
  data_transfer_error = 0x04,
  commands_aborted_due_to_power_loss_notification = 0x05,
  internal_error = 0x06,
  command_abort_requested = 0x07,
  command_aborted_due_to_sq_deletion = 0x08,
  command_aborted_due_to_failed_fused_command = 0x09,
  command_aborted_due_to_missing_fused_command = 0x0a,
  invalid_namespace_or_format = 0x0b,
  command_sequence_error = 0x0c,
  invalid_sgl_segment_descriptor = 0x0d,
  invalid_number_of_sgl_descriptors = 0x0e,
  data_sgl_length_invalid = 0x0f,
  metadata_sgl_length_invalid = 0x10,
  sgl_descriptor_type_invalid = 0x11,
  invalid_use_of_controller_memory_buffer = 0x12,
  prp_offset_invalid = 0x13,
  atomic_write_unit_exceeded = 0x14,
  operation_denied = 0x15,
  sgl_offset_invalid = 0x16,
  host_identifier_inconsistent_format = 0x18,
  keep_alive_timer_expired = 0x19,
  keep_alive_timeout_invalid = 0x1a,
  command_aborted_due_to_preempt_and_abort = 0x1b,
  sanitize_failed = 0x1c,
  sanitize_in_progress = 0x1d,
  sgl_data_block_granularity_invalid = 0x1e,
  command_not_supported_for_queue_in_cmb = 0x1f,
  namespace_is_write_protected = 0x20,
  command_interrupted = 0x21,
  transient_transport_error = 0x22,
  lba_out_of_range = 0x80,
  capacity_exceeded = 0x81,
  namespace_not_ready = 0x82,
  reservation_conflict = 0x83,
  format_in_progress = 0x84,
};

/// Command specific status values.
enum class command_specific_status : std::uint8_t {
  completion_queue_invalid = 0x00,
  invalid_queue_identifier = 0x01,
  invalid_queue_size = 0x02,
  abort_command_limit_exceeded = 0x03,
  asynchronous_event_request_limit_exceeded = 0x05,
  invalid_firmware_slot = 0x06,
  invalid_firmware_image = 0x07,
  invalid_interrupt_vector = 0x08,
  invalid_log_page = 0x09,
  invalid_format = 0x0a,
  firmware_activation_requires_conventional_reset = 0x0b,
  invalid_queue_deletion = 0x0c,
  feature_identifier_not_saveable = 0x0d,
  feature_not_changeable = 0x0e,
  feature_not_namespace_specific = 0x0f,
  firmware_activation_requires_nvm_subsystem_reset = 0x10,
  firmware_activation_requires_controller_level_reset = 0x11,
  firmware_activation_requires_maximum_time_violation = 0x12,
  firmware_activation_prohibited = 0x13,
  overlapping_range = 0x14,
  namespace_insufficient_capacity = 0x15,
  namespace_identifier_unavailable = 0x16,
  namespace_already_attached = 0x18,
  namespace_is_private = 0x19,
  namespace_not_attached = 0x1a,
  thin_provisioning_not_supported = 0x1b,
  controller_list_invalid = 0x1c,
  device_self_test_in_progress = 0x1d,
  conflicting_attributes = 0x80,              ///< NVM command set
  invalid_protection_information = 0x81,      ///< NVM command set
  attempted_write_to_read_only_range = 0x82,  ///< NVM command set
};

/// Media and data integrity error values.
enum class media_status : std::uint8_t {
  write_fault = 0x80,
  unrecovered_read_error = 0x81,
  end_to_end_guard_check_error = 0x82,
  end_to_end_application_tag_check_error = 0x83,
  end_to_end_reference_tag_check_error = 0x84,
  compare_failure = 0x85,
  access_denied = 0x86,
  deallocated_or_unwritten_logical_block = 0x87,
};

/// "Do Not Retry", bit 14 of the status field: the same command would fail again.
inline constexpr std::uint16_t do_not_retry = 0x4000;
/// "More", bit 13: the error log says more.
inline constexpr std::uint16_t more_information = 0x2000;
/// Status code and status code type: what remains when retry hints are masked off.
inline constexpr std::uint16_t status_code_mask = 0x07ff;

/// The 15-bit status field of a CQE (DW3 bits 31:17), without DNR and M.
FOREBAY_DEVICE constexpr std::uint16_t status_field(std::uint8_t type, std::uint8_t code) {
  return static_cast<std::uint16_t>((type & 7u) << 8 | code);
}
FOREBAY_DEVICE constexpr std::uint16_t status_field(status_code_type type, std::uint8_t code) {
  return status_field(static_cast<std::uint8_t>(type), code);
}
FOREBAY_DEVICE constexpr std::uint16_t status_field(generic_status code) {
  return status_field(status_code_type::generic_command_status, static_cast<std::uint8_t>(code));
}
FOREBAY_DEVICE constexpr std::uint16_t status_field(command_specific_status code) {
  return status_field(status_code_type::command_specific_status, static_cast<std::uint8_t>(code));
}
FOREBAY_DEVICE constexpr std::uint16_t status_field(media_status code) {
  return status_field(status_code_type::media_and_data_integrity_errors, static_cast<std::uint8_t>(code));
}

}  // namespace forebay::nvme
