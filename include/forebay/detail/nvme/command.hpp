// SPDX-License-Identifier: Apache-2.0
//! \file
//! Submission and completion queue entries, opcodes and PRP arithmetic (NVM Express Base Specification 1.4, section 4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::nvme {

/// Admin commands (figure 139).
enum class admin_opcode : std::uint8_t {
  delete_io_submission_queue = 0x00,
  create_io_submission_queue = 0x01,
  get_log_page = 0x02,
  delete_io_completion_queue = 0x04,
  create_io_completion_queue = 0x05,
  identify = 0x06,
  abort = 0x08,
  set_features = 0x09,
  get_features = 0x0a,
  asynchronous_event_request = 0x0c,
  namespace_management = 0x0d,
  firmware_commit = 0x10,
  firmware_image_download = 0x11,
  device_self_test = 0x14,
  namespace_attachment = 0x15,
  keep_alive = 0x18,
  directive_send = 0x19,
  directive_receive = 0x1a,
  virtualization_management = 0x1c,
  nvme_mi_send = 0x1d,
  nvme_mi_receive = 0x1e,
  doorbell_buffer_config = 0x7c,
  format_nvm = 0x80,
  security_send = 0x81,
  security_receive = 0x82,
  sanitize = 0x84,
  get_lba_status = 0x86,
};

/// Commands of the NVM command set (figure 346).
enum class io_opcode : std::uint8_t {
  flush = 0x00,
  write = 0x01,
  read = 0x02,
  write_uncorrectable = 0x04,
  compare = 0x05,
  write_zeroes = 0x08,
  dataset_management = 0x09,
  verify = 0x0c,
  reservation_register = 0x0d,
  reservation_report = 0x0e,
  reservation_acquire = 0x11,
  reservation_release = 0x15,
};

/// One slot of a submission queue (figure 105). A command's data pointer is `prp1` and `prp2`.
struct alignas(64) submission_entry {
  std::uint32_t cdw0 = 0;  ///< opcode 7:0, fused 9:8, PSDT 15:14, command id 31:16
  std::uint32_t nsid = 0;
  std::uint64_t cdw2_3 = 0;
  std::uint64_t mptr = 0;
  std::uint64_t prp1 = 0;
  std::uint64_t prp2 = 0;
  std::uint32_t cdw10 = 0;
  std::uint32_t cdw11 = 0;
  std::uint32_t cdw12 = 0;
  std::uint32_t cdw13 = 0;
  std::uint32_t cdw14 = 0;
  std::uint32_t cdw15 = 0;

  FOREBAY_DEVICE constexpr std::uint8_t opcode() const { return static_cast<std::uint8_t>(cdw0 & 0xff); }
  FOREBAY_DEVICE constexpr std::uint32_t fused() const { return cdw0 >> 8 & 3; }
  /// PRP or SGL for data transfer: 0 means PRPs.
  FOREBAY_DEVICE constexpr std::uint32_t psdt() const { return cdw0 >> 14 & 3; }
  FOREBAY_DEVICE constexpr std::uint16_t command_id() const { return static_cast<std::uint16_t>(cdw0 >> 16); }
  FOREBAY_DEVICE constexpr void set_command_id(std::uint16_t id) {
    cdw0 = (cdw0 & 0xffff) | static_cast<std::uint32_t>(id) << 16;
  }
  /// Starting LBA of the commands that have one.
  FOREBAY_DEVICE constexpr std::uint64_t slba() const { return cdw10 | static_cast<std::uint64_t>(cdw11) << 32; }
  /// How many blocks the command names: the field on the wire is 0's based.
  FOREBAY_DEVICE constexpr std::uint32_t block_count() const { return (cdw12 & 0xffff) + 1; }
};
static_assert(sizeof(submission_entry) == 64 && alignof(submission_entry) == 64);
static_assert(offsetof(submission_entry, nsid) == 4 && offsetof(submission_entry, cdw2_3) == 8);
static_assert(offsetof(submission_entry, mptr) == 16 && offsetof(submission_entry, prp1) == 24);
static_assert(offsetof(submission_entry, prp2) == 32 && offsetof(submission_entry, cdw10) == 40);
static_assert(offsetof(submission_entry, cdw15) == 60);

/// One slot of a completion queue (figure 122). `dw3` carries the phase tag: a controller writes it last.
struct alignas(16) completion_entry {
  std::uint32_t dw0 = 0;  ///< command specific result
  std::uint32_t dw1 = 0;
  std::uint32_t dw2 = 0;  ///< SQ head pointer 15:0, SQ identifier 31:16
  std::uint32_t dw3 = 0;  ///< command id 15:0, phase tag 16, status field 31:17

  FOREBAY_DEVICE constexpr std::uint16_t sq_head() const { return static_cast<std::uint16_t>(dw2 & 0xffff); }
  FOREBAY_DEVICE constexpr std::uint16_t sq_id() const { return static_cast<std::uint16_t>(dw2 >> 16); }
  FOREBAY_DEVICE constexpr std::uint16_t command_id() const { return static_cast<std::uint16_t>(dw3 & 0xffff); }
  FOREBAY_DEVICE constexpr std::uint32_t phase() const { return dw3 >> 16 & 1; }
  /// The 15 bits that `status::from_nvme` takes; 0 is success.
  FOREBAY_DEVICE constexpr std::uint16_t status_field() const { return static_cast<std::uint16_t>(dw3 >> 17); }
  FOREBAY_DEVICE static constexpr std::uint32_t make_dw2(std::uint16_t sq_head, std::uint16_t sq_id) {
    return sq_head | static_cast<std::uint32_t>(sq_id) << 16;
  }
  FOREBAY_DEVICE static constexpr std::uint32_t make_dw3(std::uint16_t command_id, std::uint32_t phase,
                                                         std::uint16_t status_field) {
    return command_id | (phase & 1) << 16 | static_cast<std::uint32_t>(status_field) << 17;
  }
};
static_assert(sizeof(completion_entry) == 16 && alignof(completion_entry) == 16);
static_assert(offsetof(completion_entry, dw2) == 8 && offsetof(completion_entry, dw3) == 12);

FOREBAY_DEVICE constexpr std::uint32_t make_cdw0(std::uint8_t opcode, std::uint16_t command_id) {
  return opcode | static_cast<std::uint32_t>(command_id) << 16;
}
FOREBAY_DEVICE constexpr std::uint32_t make_cdw0(io_opcode opcode, std::uint16_t command_id) {
  return make_cdw0(static_cast<std::uint8_t>(opcode), command_id);
}
FOREBAY_DEVICE constexpr std::uint32_t make_cdw0(admin_opcode opcode, std::uint16_t command_id) {
  return make_cdw0(static_cast<std::uint8_t>(opcode), command_id);
}

/// Read, Write, Compare, Write Zeroes or Verify of `blocks` (1 to 65536) blocks from `slba`. The data pointer is left
/// 0.
FOREBAY_DEVICE constexpr submission_entry make_io_command(io_opcode opcode, std::uint16_t command_id,
                                                          std::uint32_t nsid, std::uint64_t slba,
                                                          std::uint32_t blocks) {
  submission_entry entry;
  entry.cdw0 = make_cdw0(opcode, command_id);
  entry.nsid = nsid;
  entry.cdw10 = static_cast<std::uint32_t>(slba);
  entry.cdw11 = static_cast<std::uint32_t>(slba >> 32);
  entry.cdw12 = (blocks - 1) & 0xffff;
  return entry;
}

/// CDW12 of Read, Write, Compare and Write Zeroes.
inline constexpr std::uint32_t cdw12_deallocate = std::uint32_t{1} << 25;  ///< Write Zeroes only
inline constexpr std::uint32_t cdw12_force_unit_access = std::uint32_t{1} << 30;
inline constexpr std::uint32_t cdw12_limited_retry = std::uint32_t{1} << 31;

/// CDW11 of Dataset Management.
inline constexpr std::uint32_t cdw11_attribute_deallocate = std::uint32_t{1} << 2;

/// One range of Dataset Management (figure 364); a command carries up to 256.
struct dataset_management_range {
  std::uint32_t context_attributes = 0;
  std::uint32_t length_blocks = 0;  ///< not 0's based
  std::uint64_t slba = 0;
};
static_assert(sizeof(dataset_management_range) == 16 && offsetof(dataset_management_range, slba) == 8);

/// CDW11 of Create I/O Completion Queue and Create I/O Submission Queue.
inline constexpr std::uint32_t queue_physically_contiguous = 1;
inline constexpr std::uint32_t queue_interrupts_enabled = 2;  ///< completion queues only
/// QPRIO of Create I/O Submission Queue: from which queues a controller takes commands first. It takes effect only with
/// weighted round robin arbitration (section 4.13.2): urgent queues before all others, these by their weights.
enum class queue_priority : std::uint8_t { urgent = 0, high = 1, medium = 2, low = 3 };
FOREBAY_DEVICE constexpr std::uint32_t queue_priority_bits(queue_priority p) {
  return static_cast<std::uint32_t>(p) << 1;
}

/// How many PRP entries `bytes` bytes need whose first byte lies `offset` bytes into a page (section 4.3).
FOREBAY_DEVICE constexpr std::uint64_t prp_count(std::uint64_t offset, std::uint64_t bytes, std::uint64_t page_bytes) {
  return (offset + bytes + page_bytes - 1) / page_bytes;
}

}  // namespace forebay::nvme
