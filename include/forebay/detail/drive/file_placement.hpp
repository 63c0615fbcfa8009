// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a file of a file system lies on its block device.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace forebay::drive {

/// `file`, `device` (a name such as `nbd0`), `file_bytes` and `extents[]` with `byte`, `byte_on_device` and `bytes`, by
/// `byte`. Writes back what the system has of the file in memory. Throws `refused_input` for a file that a drive
/// `file-extents:` cannot be. Another program may change the file at any time afterwards. Thread-safe.
nlohmann::json placement_of(std::string const& file);

}  // namespace forebay::drive
