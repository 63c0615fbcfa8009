// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which controllers have quirks, by the numbers of vendor and device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "forebay/detail/driver/quirks.hpp"

namespace forebay::drive::pci {

/// From what Linux, kernels of its distributors, and SPDK know of controllers: as far as a driver of I/O queues must
/// know it too. Quirks of power states, temperatures and names, and of speed alone, are left out.
driver::quirks quirks_of(std::uint32_t vendor, std::uint32_t device);

/// Bus addresses end here for all controllers. Those of Amazon drop the bits above, and no machine has so much memory.
inline constexpr std::uint64_t most_bus_address = (std::uint64_t{1} << 48) - 1;

/// Why such a controller cannot be driven at all; empty: it can.
std::string why_undrivable(std::uint32_t vendor, std::uint32_t device);

/// The same in words, one text for each.
std::vector<std::string> describe(driver::quirks const& its);

}  // namespace forebay::drive::pci
