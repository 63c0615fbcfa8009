// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives that are real: NVMe controllers on the PCI bus.
#pragma once

#include <memory>
#include <string>

#include "forebay/detail/drive/scheme.hpp"

namespace forebay::drive::pci {

scheme_syntax syntax();

/// The drive, of this process or, with `residency=served`, of a daemon.
std::unique_ptr<device> open(uri const& from, open_options const& options);

/// Takes the controller from the system's driver, for as long as the result lives. Refuses what is in use, and, unless
/// it is opened to read only, what holds data that nobody allowed to destroy.
std::unique_ptr<device> open_here(uri const& from, open_options const& options);

/// URIs with the same name are one drive: the same namespace of the same controller.
std::string name_of(uri const& from);

}  // namespace forebay::drive::pci
