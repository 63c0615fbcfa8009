// SPDX-License-Identifier: Apache-2.0
//! \file
//! Controller registers (NVM Express Base Specification 1.4, section 3.1): offsets and bit fields.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::nvme {

/// Offsets into the controller's registers, in bytes.
namespace registers {
inline constexpr std::uint32_t cap = 0x00;      ///< controller capabilities, 64 bits
inline constexpr std::uint32_t vs = 0x08;       ///< version
inline constexpr std::uint32_t intms = 0x0c;    ///< interrupt mask set
inline constexpr std::uint32_t intmc = 0x10;    ///< interrupt mask clear
inline constexpr std::uint32_t cc = 0x14;       ///< controller configuration
inline constexpr std::uint32_t csts = 0x1c;     ///< controller status
inline constexpr std::uint32_t nssr = 0x20;     ///< NVM subsystem reset
inline constexpr std::uint32_t aqa = 0x24;      ///< admin queue attributes
inline constexpr std::uint32_t asq = 0x28;      ///< admin submission queue base address, 64 bits
inline constexpr std::uint32_t acq = 0x30;      ///< admin completion queue base address, 64 bits
inline constexpr std::uint32_t cmbloc = 0x38;   ///< controller memory buffer location
inline constexpr std::uint32_t cmbsz = 0x3c;    ///< controller memory buffer size
inline constexpr std::uint32_t bpinfo = 0x40;   ///< boot partition information
inline constexpr std::uint32_t bprsel = 0x44;   ///< boot partition read select
inline constexpr std::uint32_t bpmbl = 0x48;    ///< boot partition memory buffer location, 64 bits
inline constexpr std::uint32_t cmbmsc = 0x50;   ///< controller memory buffer memory space control, 64 bits
inline constexpr std::uint32_t cmbsts = 0x58;   ///< controller memory buffer status
inline constexpr std::uint32_t pmrcap = 0xe00;  ///< persistent memory region capabilities
inline constexpr std::uint32_t pmrctl = 0xe04;  ///< persistent memory region control
inline constexpr std::uint32_t pmrsts = 0xe08;  ///< persistent memory region status
inline constexpr std::uint32_t doorbell_base = 0x1000;

/// Distance between two doorbells; `dstrd` as in CAP.
FOREBAY_DEVICE constexpr std::uint32_t doorbell_stride_bytes(std::uint32_t dstrd) {
  return std::uint32_t{4} << dstrd;
}
/// Section 3.1.16: 1000h + (2y * (4 << CAP.DSTRD)).
FOREBAY_DEVICE constexpr std::uint32_t sq_tail_doorbell(std::uint32_t queue_id, std::uint32_t dstrd) {
  return doorbell_base + 2 * queue_id * doorbell_stride_bytes(dstrd);
}
/// Section 3.1.17: 1000h + ((2y + 1) * (4 << CAP.DSTRD)).
FOREBAY_DEVICE constexpr std::uint32_t cq_head_doorbell(std::uint32_t queue_id, std::uint32_t dstrd) {
  return doorbell_base + (2 * queue_id + 1) * doorbell_stride_bytes(dstrd);
}
}  // namespace registers

/// CAP: what the controller can do.
struct controller_capabilities {
  std::uint64_t value = 0;

  /// MQES: entries that a queue may have at most, not 0's based.
  FOREBAY_DEVICE constexpr std::uint32_t max_queue_entries() const {
    return static_cast<std::uint32_t>(value & 0xffff) + 1;
  }
  FOREBAY_DEVICE constexpr bool contiguous_queues_required() const { return (value >> 16 & 1) != 0; }  ///< CQR
  FOREBAY_DEVICE constexpr std::uint32_t arbitration_mechanisms() const { return value >> 17 & 3; }    ///< AMS
  /// Bit 0 of AMS: weighted round robin with an urgent class. Round robin is always there.
  FOREBAY_DEVICE constexpr bool weighted_round_robin() const { return (arbitration_mechanisms() & 1) != 0; }
  /// TO: longest time that a change of CC.EN may take to show in CSTS.RDY. The register counts 500 ms units.
  FOREBAY_DEVICE constexpr std::uint64_t timeout_ns() const { return (value >> 24 & 0xff) * 500'000'000; }
  FOREBAY_DEVICE constexpr std::uint32_t doorbell_stride() const { return value >> 32 & 15; }             ///< DSTRD
  FOREBAY_DEVICE constexpr bool nvm_subsystem_reset_supported() const { return (value >> 36 & 1) != 0; }  ///< NSSRS
  FOREBAY_DEVICE constexpr std::uint32_t command_sets() const { return value >> 37 & 0xff; }  ///< CSS, a mask
  FOREBAY_DEVICE constexpr bool nvm_command_set() const { return (value >> 37 & 1) != 0; }
  FOREBAY_DEVICE constexpr std::uint64_t min_page_bytes() const { return std::uint64_t{4096} << (value >> 48 & 15); }
  FOREBAY_DEVICE constexpr std::uint64_t max_page_bytes() const { return std::uint64_t{4096} << (value >> 52 & 15); }

  /// The bits of one field each, for a controller that composes the register.
  FOREBAY_DEVICE static constexpr std::uint64_t make(std::uint32_t max_queue_entries, bool contiguous_required,
                                                     std::uint32_t timeout_500ms, std::uint32_t dstrd,
                                                     std::uint32_t command_sets, std::uint32_t mpsmin,
                                                     std::uint32_t mpsmax) {
    return static_cast<std::uint64_t>((max_queue_entries - 1) & 0xffff) |
           static_cast<std::uint64_t>(contiguous_required) << 16 |
           static_cast<std::uint64_t>(timeout_500ms & 0xff) << 24 | static_cast<std::uint64_t>(dstrd & 15) << 32 |
           static_cast<std::uint64_t>(command_sets & 0xff) << 37 | static_cast<std::uint64_t>(mpsmin & 15) << 48 |
           static_cast<std::uint64_t>(mpsmax & 15) << 52;
  }
};

/// VS: the version of the specification that the controller follows.
struct controller_version {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr std::uint32_t major() const { return value >> 16; }
  FOREBAY_DEVICE constexpr std::uint32_t minor() const { return value >> 8 & 0xff; }
  FOREBAY_DEVICE constexpr std::uint32_t tertiary() const { return value & 0xff; }
  FOREBAY_DEVICE static constexpr std::uint32_t make(std::uint32_t major, std::uint32_t minor, std::uint32_t tertiary) {
    return major << 16 | minor << 8 | tertiary;
  }
};

/// CC.AMS.
enum class arbitration_mechanism : std::uint8_t { round_robin = 0, weighted_round_robin = 1 };
/// CC.SHN.
enum class shutdown_notification : std::uint8_t { none = 0, normal = 1, abrupt = 2 };
/// CSTS.SHST.
enum class shutdown_status : std::uint8_t { none = 0, occurring = 1, complete = 2 };

/// CC: how the host sets the controller up.
struct controller_configuration {
  std::uint32_t value = 0;

  static constexpr std::uint32_t enable_bit = 1;
  FOREBAY_DEVICE constexpr bool enabled() const { return (value & enable_bit) != 0; }    ///< EN
  FOREBAY_DEVICE constexpr std::uint32_t command_set() const { return value >> 4 & 7; }  ///< CSS
  FOREBAY_DEVICE constexpr std::uint64_t page_bytes() const {
    return std::uint64_t{4096} << (value >> 7 & 15);
  }  ///< MPS
  FOREBAY_DEVICE constexpr std::uint32_t arbitration() const { return value >> 11 & 7; }  ///< AMS
  FOREBAY_DEVICE constexpr shutdown_notification shutdown() const {                       ///< SHN
    return static_cast<shutdown_notification>(value >> 14 & 3);
  }
  FOREBAY_DEVICE constexpr std::uint32_t sq_entry_bytes_log2() const { return value >> 16 & 15; }  ///< IOSQES
  FOREBAY_DEVICE constexpr std::uint32_t cq_entry_bytes_log2() const { return value >> 20 & 15; }  ///< IOCQES

  /// `page_bytes` is a power of two from 4096 on; the NVM command set.
  FOREBAY_DEVICE static constexpr std::uint32_t make(
      bool enable, std::uint64_t page_bytes, std::uint32_t sq_entry_bytes_log2 = 6,
      std::uint32_t cq_entry_bytes_log2 = 4, arbitration_mechanism arbitration = arbitration_mechanism::round_robin) {
    std::uint32_t mps = 0;
    while (std::uint64_t{4096} << mps < page_bytes) ++mps;
    return (enable ? enable_bit : 0) | mps << 7 | static_cast<std::uint32_t>(arbitration) << 11 |
           sq_entry_bytes_log2 << 16 | cq_entry_bytes_log2 << 20;
  }
  FOREBAY_DEVICE static constexpr std::uint32_t with_shutdown(std::uint32_t value, shutdown_notification how) {
    return (value & ~(std::uint32_t{3} << 14)) | static_cast<std::uint32_t>(how) << 14;
  }
};

/// CSTS: how the controller is.
struct controller_status {
  std::uint32_t value = 0;

  static constexpr std::uint32_t ready_bit = 1;
  static constexpr std::uint32_t fatal_bit = 2;
  FOREBAY_DEVICE constexpr bool ready() const { return (value & ready_bit) != 0; }  ///< RDY
  FOREBAY_DEVICE constexpr bool fatal() const { return (value & fatal_bit) != 0; }  ///< CFS
  FOREBAY_DEVICE constexpr shutdown_status shutdown() const {                       ///< SHST
    return static_cast<shutdown_status>(value >> 2 & 3);
  }
  FOREBAY_DEVICE constexpr bool nvm_subsystem_reset_occurred() const { return (value >> 4 & 1) != 0; }  ///< NSSRO
  FOREBAY_DEVICE constexpr bool processing_paused() const { return (value >> 5 & 1) != 0; }             ///< PP
  FOREBAY_DEVICE static constexpr std::uint32_t make(bool ready, bool fatal, shutdown_status shutdown) {
    return (ready ? ready_bit : 0) | (fatal ? fatal_bit : 0) | static_cast<std::uint32_t>(shutdown) << 2;
  }
};

/// AQA: entries of the two admin queues, 2 to 4096 each, not 0's based.
struct admin_queue_attributes {
  std::uint32_t value = 0;
  FOREBAY_DEVICE constexpr std::uint32_t sq_entries() const { return (value & 0xfff) + 1; }
  FOREBAY_DEVICE constexpr std::uint32_t cq_entries() const { return (value >> 16 & 0xfff) + 1; }
  FOREBAY_DEVICE static constexpr std::uint32_t make(std::uint32_t sq_entries, std::uint32_t cq_entries) {
    return ((sq_entries - 1) & 0xfff) | ((cq_entries - 1) & 0xfff) << 16;
  }
};

/// What a register reads as once the device has left the bus.
inline constexpr std::uint32_t removed_value = 0xffffffff;

}  // namespace forebay::nvme
