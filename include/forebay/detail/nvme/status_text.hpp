// SPDX-License-Identifier: Apache-2.0
//! \file
//! Status codes in words, for messages. Host only.
#pragma once

#include <string_view>

#include "forebay/detail/nvme/status_code.hpp"

namespace forebay::nvme {

/// The name that the specification gives the status, in lower case; "unknown status" for one it does not define.
constexpr std::string_view status_text(std::uint16_t field) {
  auto const code = static_cast<std::uint8_t>(field & 0xff);
  switch (static_cast<status_code_type>(field >> 8 & 7)) {
    case status_code_type::generic_command_status:
      switch (static_cast<generic_status>(code)) {
        case generic_status::successful_completion:
          return "successful completion";
        case generic_status::invalid_command_opcode:
          return "invalid command opcode";
        case generic_status::invalid_field_in_command:
          return "invalid field in command";
        case generic_status::command_id_conflict:
          return "command id conflict";
        case generic_status::data_transfer_error:
          return "data transfer error";
        case generic_status::commands_aborted_due_to_power_loss_notification:
          return "commands aborted due to power loss notification";
        case generic_status::internal_error:
          return "internal error";
        case generic_status::command_abort_requested:
          return "command abort requested";
        case generic_status::command_aborted_due_to_sq_deletion:
          return "command aborted due to SQ deletion";
        case generic_status::command_aborted_due_to_failed_fused_command:
          return "command aborted due to failed fused command";
        case generic_status::command_aborted_due_to_missing_fused_command:
          return "command aborted due to missing fused command";
        case generic_status::invalid_namespace_or_format:
          return "invalid namespace or format";
        case generic_status::command_sequence_error:
          return "command sequence error";
        case generic_status::invalid_sgl_segment_descriptor:
          return "invalid SGL segment descriptor";
        case generic_status::invalid_number_of_sgl_descriptors:
          return "invalid number of SGL descriptors";
        case generic_status::data_sgl_length_invalid:
          return "data SGL length invalid";
        case generic_status::metadata_sgl_length_invalid:
          return "metadata SGL length invalid";
        case generic_status::sgl_descriptor_type_invalid:
          return "SGL descriptor type invalid";
        case generic_status::invalid_use_of_controller_memory_buffer:
          return "invalid use of controller memory buffer";
        case generic_status::prp_offset_invalid:
          return "PRP offset invalid";
        case generic_status::atomic_write_unit_exceeded:
          return "atomic write unit exceeded";
        case generic_status::operation_denied:
          return "operation denied";
        case generic_status::sgl_offset_invalid:
          return "SGL offset invalid";
        case generic_status::host_identifier_inconsistent_format:
          return "host identifier inconsistent format";
        case generic_status::keep_alive_timer_expired:
          return "keep alive timer expired";
        case generic_status::keep_alive_timeout_invalid:
          return "keep alive timeout invalid";
        case generic_status::command_aborted_due_to_preempt_and_abort:
          return "command aborted due to preempt and abort";
        case generic_status::sanitize_failed:
          return "sanitize failed";
        case generic_status::sanitize_in_progress:
          return "sanitize in progress";
        case generic_status::sgl_data_block_granularity_invalid:
          return "SGL data block granularity invalid";
        case generic_status::command_not_supported_for_queue_in_cmb:
          return "command not supported for queue in CMB";
        case generic_status::namespace_is_write_protected:
          return "namespace is write protected";
        case generic_status::command_interrupted:
          return "command interrupted";
        case generic_status::transient_transport_error:
          return "transient transport error";
        case generic_status::lba_out_of_range:
          return "LBA out of range";
        case generic_status::capacity_exceeded:
          return "capacity exceeded";
        case generic_status::namespace_not_ready:
          return "namespace not ready";
        case generic_status::reservation_conflict:
          return "reservation conflict";
        case generic_status::format_in_progress:
          return "format in progress";
      }
      break;
    case status_code_type::command_specific_status:
      switch (static_cast<command_specific_status>(code)) {
        case command_specific_status::completion_queue_invalid:
          return "completion queue invalid";
        case command_specific_status::invalid_queue_identifier:
          return "invalid queue identifier";
        case command_specific_status::invalid_queue_size:
          return "invalid queue size";
        case command_specific_status::abort_command_limit_exceeded:
          return "abort command limit exceeded";
        case command_specific_status::asynchronous_event_request_limit_exceeded:
          return "asynchronous event request limit exceeded";
        case command_specific_status::invalid_firmware_slot:
          return "invalid firmware slot";
        case command_specific_status::invalid_firmware_image:
          return "invalid firmware image";
        case command_specific_status::invalid_interrupt_vector:
          return "invalid interrupt vector";
        case command_specific_status::invalid_log_page:
          return "invalid log page";
        case command_specific_status::invalid_format:
          return "invalid format";
        case command_specific_status::firmware_activation_requires_conventional_reset:
          return "firmware activation requires conventional reset";
        case command_specific_status::invalid_queue_deletion:
          return "invalid queue deletion";
        case command_specific_status::feature_identifier_not_saveable:
          return "feature identifier not saveable";
        case command_specific_status::feature_not_changeable:
          return "feature not changeable";
        case command_specific_status::feature_not_namespace_specific:
          return "feature not namespace specific";
        case command_specific_status::firmware_activation_requires_nvm_subsystem_reset:
          return "firmware activation requires NVM subsystem reset";
        case command_specific_status::firmware_activation_requires_controller_level_reset:
          return "firmware activation requires controller level reset";
        case command_specific_status::firmware_activation_requires_maximum_time_violation:
          return "firmware activation requires maximum time violation";
        case command_specific_status::firmware_activation_prohibited:
          return "firmware activation prohibited";
        case command_specific_status::overlapping_range:
          return "overlapping range";
        case command_specific_status::namespace_insufficient_capacity:
          return "namespace insufficient capacity";
        case command_specific_status::namespace_identifier_unavailable:
          return "namespace identifier unavailable";
        case command_specific_status::namespace_already_attached:
          return "namespace already attached";
        case command_specific_status::namespace_is_private:
          return "namespace is private";
        case command_specific_status::namespace_not_attached:
          return "namespace not attached";
        case command_specific_status::thin_provisioning_not_supported:
          return "thin provisioning not supported";
        case command_specific_status::controller_list_invalid:
          return "controller list invalid";
        case command_specific_status::device_self_test_in_progress:
          return "device self-test in progress";
        case command_specific_status::conflicting_attributes:
          return "conflicting attributes";
        case command_specific_status::invalid_protection_information:
          return "invalid protection information";
        case command_specific_status::attempted_write_to_read_only_range:
          return "attempted write to read only range";
      }
      break;
    case status_code_type::media_and_data_integrity_errors:
      switch (static_cast<media_status>(code)) {
        case media_status::write_fault:
          return "write fault";
        case media_status::unrecovered_read_error:
          return "unrecovered read error";
        case media_status::end_to_end_guard_check_error:
          return "end-to-end guard check error";
        case media_status::end_to_end_application_tag_check_error:
          return "end-to-end application tag check error";
        case media_status::end_to_end_reference_tag_check_error:
          return "end-to-end reference tag check error";
        case media_status::compare_failure:
          return "compare failure";
        case media_status::access_denied:
          return "access denied";
        case media_status::deallocated_or_unwritten_logical_block:
          return "deallocated or unwritten logical block";
      }
      break;
    case status_code_type::path_related_status:
      return "path related status";
    case status_code_type::vendor_specific:
      return "vendor specific status";
  }
  return "unknown status";
}

}  // namespace forebay::nvme
