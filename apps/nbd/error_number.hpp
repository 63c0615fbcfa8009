// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a client of a block device is told about a request that failed.
#pragma once

#include <cerrno>

#include "forebay/status.hpp"

namespace forebay::nbd {

/// The errno of a status that is no success. Codes are those of NVM Express Base 1.4, figures 126 to 131.
constexpr int error_number(status failed) {
  switch (failed.kind()) {
    case fault::none:
      break;
    case fault::out_of_range:
    case fault::bad_alignment:
      return EINVAL;
    case fault::read_only:
      return EROFS;
    case fault::no_record:
      return ENOMEM;
    case fault::timed_out:
    case fault::not_registered:
    case fault::no_frame:
    case fault::cancelled:
    case fault::busy:
      return EIO;
  }
  switch (failed.nvme_status_code_type() << 8 | failed.nvme_status_code()) {
    case 0x001:  // Invalid Command Opcode
      return EOPNOTSUPP;
    case 0x002:  // Invalid Field in Command
    case 0x080:  // LBA Out of Range
      return EINVAL;
    case 0x020:  // Namespace is Write Protected
    case 0x182:  // Attempted Write to Read Only Range
      return EROFS;
    case 0x081:  // Capacity Exceeded
    case 0x115:  // Namespace Insufficient Capacity
      return ENOSPC;
    default:  // media errors too: Write Fault, Unrecovered Read Error
      return EIO;
  }
}

}  // namespace forebay::nbd
