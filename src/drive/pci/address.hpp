// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a function is on the PCI buses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace forebay::drive::pci {

/// Domain, bus, device and function.
struct address {
  std::uint32_t domain = 0;
  std::uint32_t bus = 0;       ///< to 255
  std::uint32_t device = 0;    ///< to 31
  std::uint32_t function = 0;  ///< to 7

  bool operator==(address const&) const = default;

  /// Reads `0000:01:00.0`, or `01:00.0` in domain 0, in hexadecimal digits. Throws `refused_input`.
  static address parse(std::string_view text);
  /// As the system writes it: `0000:01:00.0`.
  std::string text() const;
};

}  // namespace forebay::drive::pci
