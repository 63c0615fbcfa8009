// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives that are real: NVMe controllers on the PCI bus.
#pragma once

#include <memory>

#include "forebay/detail/drive/scheme.hpp"

namespace forebay::drive::pci {

scheme_syntax syntax();

/// Takes the controller from the system's driver, for as long as the result lives. Refuses what is in use, and, unless
/// it is opened to read only, what holds data that nobody allowed to destroy.
std::unique_ptr<device> open(uri const& from, open_options const& options);

}  // namespace forebay::drive::pci
