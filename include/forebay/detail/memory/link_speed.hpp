// SPDX-License-Identifier: Apache-2.0
//! \file
//! PCI Express links by name, and what each carries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forebay::memory {

/// The name of a link, and what it carries each way. Rates are those of the physical layer after its line code (PCI
/// Express Base Specification 6.0, section 1.2): 8, 16 and 32 GT/s a lane x 128/130; 64 GT/s x 242/256 of a flit.
struct link_speed {
  std::string name;
  double bytes_per_second = 0;

  std::uint64_t byte_fs() const { return static_cast<std::uint64_t>(1e15 / bytes_per_second + 0.5); }
};

/// `gen3x4` to `gen6x16`: generations 3 to 6, with 4, 8 or 16 lanes.
std::vector<link_speed> const& link_speeds();
/// Throws `refused_input` that lists the known names.
link_speed const& find_link_speed(std::string const& name);

}  // namespace forebay::memory
