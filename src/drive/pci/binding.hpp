// SPDX-License-Identifier: Apache-2.0
//! \file
//! Giving a real drive to `vfio-pci` so that it stays there, and back.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "forebay/detail/drive/real.hpp"
#include "function.hpp"

namespace forebay::drive::pci {

/// `attach_real_drive` and `detach_real_drive`, of a function.
nlohmann::json attach(function const& of, bool dry_run, step_listener const& tell);
nlohmann::json detach(function const& of, bool dry_run, step_listener const& tell);

}  // namespace forebay::drive::pci
