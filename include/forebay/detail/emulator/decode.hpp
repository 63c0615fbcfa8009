// SPDX-License-Identifier: Apache-2.0
//! \file
//! Checks an NVM command against the namespace, before any of its data is read.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// The operation that a valid command asks for, or the status field with which an invalid one must fail.
struct decoded_command {
  std::uint16_t status_field = 0;
  nvme::io_opcode opcode = nvme::io_opcode::flush;
  operation op = operation::other;
  bool through = false;  ///< it completes when what it wrote is durable, as with Force Unit Access
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;           ///< of the namespace; 0 for Flush and Dataset Management
  std::uint64_t transfer_bytes = 0;  ///< of the data pointer
};

/// The one namespace that an emulated drive has.
inline constexpr std::uint32_t emulated_nsid = 1;

/// Whether the command changes the drive's data if it is valid.
FOREBAY_DEVICE constexpr bool changes_data(nvme::submission_entry const& entry) {
  using nvme::io_opcode;
  auto const opcode = static_cast<io_opcode>(entry.opcode());
  return opcode == io_opcode::write || opcode == io_opcode::write_zeroes ||
         (opcode == io_opcode::dataset_management && (entry.cdw11 & nvme::cdw11_attribute_deallocate) != 0);
}

/// `max_transfer_bytes` is what MDTS allows.
FOREBAY_DEVICE decoded_command decode(nvme::submission_entry const& entry, media const& drive,
                                      std::uint64_t max_transfer_bytes) {
  using nvme::generic_status;
  using nvme::io_opcode;
  decoded_command command;
  command.opcode = static_cast<io_opcode>(entry.opcode());
  auto const refuse = [&](generic_status code) {
    command.status_field = static_cast<std::uint16_t>(nvme::status_field(code) | nvme::do_not_retry);
    return command;
  };

  bool has_range = false;
  bool has_data = false;
  switch (command.opcode) {
    case io_opcode::flush:
      break;
    case io_opcode::read:
    case io_opcode::compare:
      command.op = operation::read;
      has_range = has_data = true;
      break;
    case io_opcode::write:
      command.op = operation::write;
      has_range = has_data = true;
      break;
    case io_opcode::write_zeroes:
      has_range = true;
      break;
    case io_opcode::dataset_management:
      command.transfer_bytes = ((entry.cdw10 & 0xff) + 1) * sizeof(nvme::dataset_management_range);
      break;
    default:
      return refuse(generic_status::invalid_command_opcode);
  }

  // Fused operations and SGLs are not offered; bits 13:10 are reserved.
  if (entry.fused() != 0 || entry.psdt() != 0 || (entry.cdw0 >> 10 & 15) != 0) {
    return refuse(generic_status::invalid_field_in_command);
  }
  bool const all = command.opcode == io_opcode::flush && entry.nsid == nvme::broadcast_nsid;
  if (entry.nsid != emulated_nsid && !all) return refuse(generic_status::invalid_namespace_or_format);
  bool const writes = changes_data(entry);
  if (drive.read_only && writes) return refuse(generic_status::namespace_is_write_protected);
  if (!has_range) return command;
  command.through = writes && (entry.cdw12 & nvme::cdw12_force_unit_access) != 0;

  if (command.opcode == io_opcode::write && (entry.cdw12 >> 20 & 15) != 0) {  // DTYPE: directives are not offered
    return refuse(generic_status::invalid_field_in_command);
  }
  std::uint64_t const count = entry.block_count();
  if (has_data && count * drive.block_bytes > max_transfer_bytes) {
    return refuse(generic_status::invalid_field_in_command);
  }
  std::uint64_t const blocks = drive.blocks();
  if (entry.slba() >= blocks || count > blocks - entry.slba()) return refuse(generic_status::lba_out_of_range);
  command.offset_bytes = entry.slba() * drive.block_bytes;
  command.bytes = count * drive.block_bytes;
  if (has_data) command.transfer_bytes = command.bytes;
  return command;
}

}  // namespace forebay::emulator
