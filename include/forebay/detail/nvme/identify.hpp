// SPDX-License-Identifier: Apache-2.0
//! \file
//! Data structures of the Identify command (NVM Express Base Specification 1.4, section 5.15).
//! Fields carry the specification's abbreviations; multi-byte fields are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::nvme {

/// CNS: which structure Identify returns.
enum class identify_cns : std::uint8_t {
  identify_namespace = 0x00,
  identify_controller = 0x01,
  active_namespace_list = 0x02,
  namespace_identification_descriptor_list = 0x03,
  nvm_set_list = 0x04,
  allocated_namespace_list = 0x10,
  allocated_namespace = 0x11,
  namespace_controller_list = 0x12,
  controller_list = 0x13,
};

/// The namespace id that means "all namespaces".
inline constexpr std::uint32_t broadcast_nsid = 0xffffffff;

/// Figure 250.
struct power_state_descriptor {
  std::uint16_t mp = 0;  ///< maximum power, in units of 0.01 W unless flags say otherwise
  std::uint8_t reserved_2 = 0;
  std::uint8_t flags = 0;
  std::uint32_t enlat = 0;  ///< entry latency, microseconds
  std::uint32_t exlat = 0;  ///< exit latency, microseconds
  std::uint8_t rrt = 0;
  std::uint8_t rrl = 0;
  std::uint8_t rwt = 0;
  std::uint8_t rwl = 0;
  std::uint16_t idlp = 0;
  std::uint8_t ips = 0;
  std::uint8_t reserved_19 = 0;
  std::uint16_t actp = 0;
  std::uint8_t apws = 0;
  std::uint8_t reserved_23[9] = {};
};
static_assert(sizeof(power_state_descriptor) == 32);

/// Figure 249. A controller that is implemented here fills in what it supports; the rest stays zero.
struct identify_controller {
  std::uint16_t vid = 0;    ///< PCI vendor id
  std::uint16_t ssvid = 0;  ///< PCI subsystem vendor id
  char sn[20] = {};         ///< serial number, padded with spaces
  char mn[40] = {};         ///< model number, padded with spaces
  char fr[8] = {};          ///< firmware revision, padded with spaces
  std::uint8_t rab = 0;     ///< recommended arbitration burst, log2
  std::uint8_t ieee[3] = {};
  std::uint8_t cmic = 0;
  std::uint8_t mdts = 0;  ///< maximum data transfer: CAP.MPSMIN pages << mdts; 0 means no limit
  std::uint16_t cntlid = 0;
  std::uint32_t ver = 0;  ///< as register VS
  std::uint32_t rtd3r = 0;
  std::uint32_t rtd3e = 0;
  std::uint32_t oaes = 0;
  std::uint32_t ctratt = 0;
  std::uint16_t rrls = 0;
  std::uint8_t reserved_102[9] = {};
  std::uint8_t cntrltype = 0;  ///< 1 I/O controller
  std::uint8_t fguid[16] = {};
  std::uint16_t crdt1 = 0;
  std::uint16_t crdt2 = 0;
  std::uint16_t crdt3 = 0;
  std::uint8_t reserved_134[119] = {};
  std::uint8_t nvmsr = 0;
  std::uint8_t vwci = 0;
  std::uint8_t mec = 0;
  std::uint16_t oacs = 0;  ///< optional admin commands: see `optional_admin_command`
  std::uint8_t acl = 0;    ///< Aborts in flight, 0's based
  std::uint8_t aerl = 0;   ///< Asynchronous Event Requests in flight, 0's based
  std::uint8_t frmw = 0;
  std::uint8_t lpa = 0;
  std::uint8_t elpe = 0;  ///< error log entries, 0's based
  std::uint8_t npss = 0;
  std::uint8_t avscc = 0;
  std::uint8_t apsta = 0;
  std::uint16_t wctemp = 0;  ///< warning temperature, kelvin
  std::uint16_t cctemp = 0;  ///< critical temperature, kelvin
  std::uint16_t mtfa = 0;
  std::uint32_t hmpre = 0;
  std::uint32_t hmmin = 0;
  std::uint8_t tnvmcap[16] = {};  ///< total capacity in bytes
  std::uint8_t unvmcap[16] = {};
  std::uint32_t rpmbs = 0;
  std::uint16_t edstt = 0;
  std::uint8_t dsto = 0;
  std::uint8_t fwug = 0;
  std::uint16_t kas = 0;
  std::uint16_t hctma = 0;
  std::uint16_t mntmt = 0;
  std::uint16_t mxtmt = 0;
  std::uint32_t sanicap = 0;
  std::uint32_t hmminds = 0;
  std::uint16_t hmmaxd = 0;
  std::uint16_t nsetidmax = 0;
  std::uint16_t endgidmax = 0;
  std::uint8_t anatt = 0;
  std::uint8_t anacap = 0;
  std::uint32_t anagrpmax = 0;
  std::uint32_t nanagrpid = 0;
  std::uint32_t pels = 0;
  std::uint8_t reserved_356[156] = {};
  std::uint8_t sqes = 0;     ///< SQ entry size: required 3:0, maximum 7:4, log2
  std::uint8_t cqes = 0;     ///< CQ entry size: required 3:0, maximum 7:4, log2
  std::uint16_t maxcmd = 0;  ///< commands in flight per queue; 0 unreported
  std::uint32_t nn = 0;      ///< highest namespace id
  std::uint16_t oncs = 0;    ///< optional NVM commands: see `optional_nvm_command`
  std::uint16_t fuses = 0;
  std::uint8_t fna = 0;
  std::uint8_t vwc = 0;  ///< bit 0: a volatile write cache is present
  std::uint16_t awun = 0;
  std::uint16_t awupf = 0;
  std::uint8_t nvscc = 0;
  std::uint8_t nwpc = 0;
  std::uint16_t acwu = 0;
  std::uint8_t reserved_534[2] = {};
  std::uint32_t sgls = 0;
  std::uint32_t mnan = 0;
  std::uint8_t reserved_544[224] = {};
  char subnqn[256] = {};
  std::uint8_t reserved_1024[768] = {};
  std::uint8_t fabrics_1792[256] = {};  ///< meaningful for NVMe over Fabrics only
  power_state_descriptor psd[32] = {};
  std::uint8_t vendor_3072[1024] = {};

  FOREBAY_DEVICE constexpr bool volatile_write_cache_present() const { return (vwc & 1) != 0; }
  /// Largest data transfer in bytes; 0 means no limit. `min_page_bytes` as in CAP.
  FOREBAY_DEVICE constexpr std::uint64_t max_data_transfer_bytes(std::uint64_t min_page_bytes) const {
    return mdts == 0 || mdts >= 48 ? 0 : min_page_bytes << mdts;
  }
};
static_assert(sizeof(identify_controller) == 4096);
static_assert(offsetof(identify_controller, mdts) == 77 && offsetof(identify_controller, ver) == 80);
static_assert(offsetof(identify_controller, cntrltype) == 111 && offsetof(identify_controller, oacs) == 256);
static_assert(offsetof(identify_controller, wctemp) == 266 && offsetof(identify_controller, tnvmcap) == 280);
static_assert(offsetof(identify_controller, sanicap) == 328 && offsetof(identify_controller, pels) == 352);
static_assert(offsetof(identify_controller, sqes) == 512 && offsetof(identify_controller, nn) == 516);
static_assert(offsetof(identify_controller, oncs) == 520 && offsetof(identify_controller, vwc) == 525);
static_assert(offsetof(identify_controller, sgls) == 536 && offsetof(identify_controller, subnqn) == 768);
static_assert(offsetof(identify_controller, psd) == 2048 && offsetof(identify_controller, vendor_3072) == 3072);

/// Bits of OACS.
enum class optional_admin_command : std::uint16_t {
  security = 1 << 0,
  format_nvm = 1 << 1,
  firmware = 1 << 2,
  namespace_management = 1 << 3,
  device_self_test = 1 << 4,
  directives = 1 << 5,
  nvme_mi = 1 << 6,
  virtualization_management = 1 << 7,
  doorbell_buffer_config = 1 << 8,
  get_lba_status = 1 << 9,
};

/// Bits of ONCS.
enum class optional_nvm_command : std::uint16_t {
  compare = 1 << 0,
  write_uncorrectable = 1 << 1,
  dataset_management = 1 << 2,
  write_zeroes = 1 << 3,
  save_and_select = 1 << 4,  ///< the Save and Select fields of Set and Get Features
  reservations = 1 << 5,
  timestamp = 1 << 6,
  verify = 1 << 7,
};

/// Figure 246.
struct lba_format {
  std::uint16_t ms = 0;    ///< metadata bytes per block
  std::uint8_t lbads = 0;  ///< block bytes, log2
  std::uint8_t rp = 0;     ///< relative performance
};
static_assert(sizeof(lba_format) == 4);

/// Figure 245.
struct identify_namespace {
  std::uint64_t nsze = 0;   ///< size in blocks
  std::uint64_t ncap = 0;   ///< capacity in blocks
  std::uint64_t nuse = 0;   ///< blocks allocated
  std::uint8_t nsfeat = 0;  ///< bit 0 thin provisioning, bit 4 the npwg ... nows hints are valid
  std::uint8_t nlbaf = 0;   ///< LBA formats, 0's based
  std::uint8_t flbas = 0;   ///< format in use 3:0, metadata at the end of the data bit 4
  std::uint8_t mc = 0;
  std::uint8_t dpc = 0;
  std::uint8_t dps = 0;
  std::uint8_t nmic = 0;
  std::uint8_t rescap = 0;
  std::uint8_t fpi = 0;
  std::uint8_t dlfeat = 0;  ///< what a deallocated block reads as, 2:0: 0 unreported, 1 zeros, 2 ones
  std::uint16_t nawun = 0;
  std::uint16_t nawupf = 0;
  std::uint16_t nacwu = 0;
  std::uint16_t nabsn = 0;
  std::uint16_t nabo = 0;
  std::uint16_t nabspf = 0;
  std::uint16_t noiob = 0;
  std::uint8_t nvmcap[16] = {};
  std::uint16_t npwg = 0;
  std::uint16_t npwa = 0;
  std::uint16_t npdg = 0;
  std::uint16_t npda = 0;
  std::uint16_t nows = 0;
  std::uint8_t reserved_74[18] = {};
  std::uint32_t anagrpid = 0;
  std::uint8_t reserved_96[3] = {};
  std::uint8_t nsattr = 0;  ///< bit 0: write protected
  std::uint16_t nvmsetid = 0;
  std::uint16_t endgid = 0;
  std::uint8_t nguid[16] = {};
  std::uint8_t eui64[8] = {};
  lba_format lbaf[16] = {};
  std::uint8_t reserved_192[192] = {};
  std::uint8_t vendor_384[3712] = {};

  FOREBAY_DEVICE constexpr lba_format const& format() const { return lbaf[flbas & 15]; }
  FOREBAY_DEVICE constexpr std::uint64_t block_bytes() const { return std::uint64_t{1} << (format().lbads & 63); }
};
static_assert(sizeof(identify_namespace) == 4096);
static_assert(offsetof(identify_namespace, nsfeat) == 24 && offsetof(identify_namespace, dlfeat) == 33);
static_assert(offsetof(identify_namespace, nvmcap) == 48 && offsetof(identify_namespace, nows) == 72);
static_assert(offsetof(identify_namespace, anagrpid) == 92 && offsetof(identify_namespace, nguid) == 104);
static_assert(offsetof(identify_namespace, lbaf) == 128 && offsetof(identify_namespace, vendor_384) == 384);

/// CNS 02h and 10h: namespace ids in increasing order, the rest zero.
struct namespace_list {
  std::uint32_t nsid[1024] = {};
};
static_assert(sizeof(namespace_list) == 4096);

/// Head of one entry of CNS 03h (figure 247); `nidl` bytes of identifier follow. A type of 0 ends the list.
struct namespace_identification_descriptor {
  std::uint8_t nidt = 0;  ///< 1 EUI64, 2 NGUID, 3 UUID
  std::uint8_t nidl = 0;
  std::uint8_t reserved_2[2] = {};
};
static_assert(sizeof(namespace_identification_descriptor) == 4);

}  // namespace forebay::nvme
