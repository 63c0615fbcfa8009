// SPDX-License-Identifier: Apache-2.0
//! \file
//! What is checked before a PCI function is taken from the system's driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../open_file.hpp"
#include "function.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {

/// `hold` keeps the system from beginning to use what was found unused. `look` changes nothing, not for a moment
/// either, and therefore does not find a program that has a namespace to itself.
enum class manner : std::uint8_t { hold, look };

/// What the function is to be used for.
struct wanted_use {
  std::uint32_t nsid = 0;        ///< a namespace that must be there; 0: none
  bool read_only = true;         ///< else data on it is refused
  std::string allowed_serial{};  ///< of the drive whose data may be destroyed; empty: of none
  way how = way::vfio;
};

/// Throws `refused_input` about the drive with this remedy.
[[noreturn]] void refuse(function const& of, std::string const& remedy);
/// Throws `refused_input` because the serial number is another one than `allowed`.
[[noreturn]] void refuse_serial(function const& of, std::string const& allowed, std::string const& serial);

/// Throws `refused_input` if it is not an NVMe controller, or one that cannot be driven.
void require_nvme(function const& of);

/// The way that a URI's `access` asks for, or that suits the function. Throws `refused_input` if it cannot be.
way way_of(std::optional<std::string> const& asked, function const& of);

/// Throws `refused_input` if a driver of the system has another function of its IOMMU group: all functions of a group
/// can reach each other's memory, so VFIO wants the system's drivers off all of them.
void require_own_group(function const& of);

/// Throws `refused_input` if the system uses the function, another driver has it, or it has data that may not be
/// destroyed. With `manner::hold` the caller has the lock on the function, and the result keeps the system from
/// using it.
std::vector<open_file> check_use(function const& of, wanted_use const& use, manner how = manner::hold);

/// Throws `refused_input` if the system uses the namespace, and `manner::hold` also if a program has it to itself.
/// Returns its device, open to read.
open_file open_unused(function const& of, block_node const& node, manner how);

/// What lies on a namespace whose device is open, by the first signature that libblkid knows, or why that cannot be
/// read; empty: nothing that it knows.
std::string contents_of(block_node const& node, open_file const& device);

}  // namespace forebay::drive::pci
