// SPDX-License-Identifier: Apache-2.0
//! \file
//! The outcome of an operation, one register wide, on every machine.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// Outcomes of Forebay's own, which no controller reports. A `fault` converts to a `status`.
enum class fault : std::uint8_t {
  none = 0,  ///< no fault of Forebay's own
  /// The deadline passed; completions that had arrived by then are delivered. It says nothing about the drive
  /// (docs/concepts/deadlines.md). The command still owns its buffer, record and command id.
  timed_out,
  out_of_range,    ///< the byte range does not lie within the storage, the extent, the buffer or the view
  bad_alignment,   ///< an offset, a length or an address is not a multiple of the required number
  not_registered,  ///< the memory was not registered for DMA: the buffer is an empty `buffer_ref`
  no_frame,        ///< every cache frame that could hold the page is pinned
  /// As many requests are open as `queue_options::records` allows. Wait for a token and try again.
  no_record,
  read_only,  ///< the storage, or its part outside of extents, was opened without write access
  /// The command was aborted, its queue deleted or the controller reset, by recovery or another host. After a read the
  /// contents of the buffer are undefined.
  cancelled,
  busy,  ///< the queues had no room in time, for the request or for a part of it; a part may have been transferred
};

/// Success, a fault of Forebay's own, or the status field of an NVMe completion, one register wide. Value 0 is success.
/// Bits 0-14: NVMe status field as in CQE DW3 bits 31:17 (SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14).
/// Bits 16-23: `fault`.
class [[nodiscard]] status {
 public:
  constexpr status() = default;
  /// The status of a fault; success for `fault::none`.
  FOREBAY_DEVICE constexpr status(fault f) : bits_(static_cast<std::uint32_t>(f) << 16) {}
  /// From the 15-bit status field of a CQE. "Command Abort Requested" and "Command Aborted due to SQ Deletion" (generic
  /// status 07h and 08h; NVM Express Base 1.4, Figure 128) are `fault::cancelled`: a thread that waits for a command
  /// gets the same status whether the completion or the end of the queue comes first.
  FOREBAY_DEVICE static constexpr status from_nvme(std::uint32_t status_field) {
    std::uint32_t const type_and_code = status_field & 0x7ff;
    return type_and_code == 0x07 || type_and_code == 0x08 ? status(fault::cancelled) : from_bits(status_field & 0x7fff);
  }
  /// The status whose `bits()` these are.
  FOREBAY_DEVICE static constexpr status from_bits(std::uint32_t bits) {
    status s;
    s.bits_ = bits;
    return s;
  }

  /// True for success.
  FOREBAY_DEVICE constexpr explicit operator bool() const { return ok(); }
  FOREBAY_DEVICE constexpr bool ok() const { return bits_ == 0; }
  /// Which of Forebay's own faults the status is; `fault::none` for success and for an NVMe status.
  FOREBAY_DEVICE constexpr fault kind() const { return static_cast<fault>(bits_ >> 16); }
  /// The parts of an NVMe status: SC, 8 bits, and SCT, 3 bits.
  FOREBAY_DEVICE constexpr std::uint32_t nvme_status_code() const { return bits_ & 0xff; }
  FOREBAY_DEVICE constexpr std::uint32_t nvme_status_code_type() const { return bits_ >> 8 & 7; }
  /// The whole status as a number.
  FOREBAY_DEVICE constexpr std::uint32_t bits() const { return bits_; }
  FOREBAY_DEVICE friend constexpr bool operator==(status a, status b) { return a.bits_ == b.bits_; }

 private:
  std::uint32_t bits_ = 0;
};

}  // namespace forebay
