// SPDX-License-Identifier: Apache-2.0
//! \file
//! All that can be told of a real drive without changing anything.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "forebay/detail/drive/uri.hpp"
#include "function.hpp"

namespace forebay::drive::pci {

/// `inspect_real_drive` and `inspect_real_drives`, of a system whose files are in other places.
nlohmann::json inspect(uri const& from, places const& where = {});
nlohmann::json inspect_all(places const& where = {});

}  // namespace forebay::drive::pci
