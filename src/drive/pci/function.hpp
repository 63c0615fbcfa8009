// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the system tells of a PCI function, by files below /sys.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "address.hpp"
#include "emulator/block_device.hpp"

namespace forebay::drive::pci {

/// Where the system tells about PCI functions. Tests give other places.
struct places {
  std::string buses = "/sys/bus/pci";
  std::string blocks = "/sys/class/block";
  std::string nodes = "/dev";
  std::string locks = "/proc/locks";
  emulator::device_places system;

  /// All of them below another folder than the root.
  static places below(std::string const& root);
};

/// A block device that the system's driver made of a namespace.
struct block_node {
  std::string name;  ///< `nvme0n1`
  dev_t number = 0;
  std::uint32_t nsid = 0;
};

/// A function that is there. Reading it changes nothing.
class function {
 public:
  /// Throws `refused_input` if there is none at this address.
  explicit function(address const& at, places where = {});

  address const& at() const { return at_; }
  /// The folder below /sys that tells of it.
  std::string const& folder() const { return folder_; }
  places const& where() const { return where_; }
  /// Of class 01h, subclass 08h and interface 02h: an NVMe controller that does I/O.
  bool is_nvme() const { return number("class") == 0x010802; }
  std::uint32_t number(std::string const& file) const;
  std::uint32_t vendor() const { return number("vendor"); }
  std::uint32_t device() const { return number("device"); }
  /// What a file of its folder says, the first line; empty where there is none.
  std::string line(std::string const& file) const;
  /// The driver that has it; empty: none.
  std::string driver() const;
  /// The number of its IOMMU group; empty: no IOMMU translates for it.
  std::string iommu_group() const;
  /// Whether that IOMMU changes the addresses that the function uses: without a group nothing does.
  bool is_translated() const;
  /// All functions of that group that are no bridges, itself among them: they can reach each other's memory.
  std::vector<std::string> group_members() const;
  /// Of its first window onto its registers.
  std::uint64_t bar0_bytes() const;
  /// The serial number, as long as the system's driver has it; else empty.
  std::string serial() const { return controller_line("serial"); }
  /// What the system's driver tells of the controller in a file such as `model`; empty: nothing.
  std::string controller_line(std::string const& file) const;
  /// Whether the system's driver has brought the controller up, and not merely begun to.
  bool is_live() const { return controller_line("state") == "live"; }
  std::vector<block_node> block_nodes() const;
  /// The bridges between it and the processor, beginning there; first the host bridge's bus, as in `pci0000:00`.
  std::vector<std::string> path() const;

 private:
  std::vector<std::string> controllers() const;

  address const at_;
  places const where_;
  std::string const folder_;
};

}  // namespace forebay::drive::pci
