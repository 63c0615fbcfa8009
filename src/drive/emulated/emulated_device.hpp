// SPDX-License-Identifier: Apache-2.0
//! \file
//! The schemes `emulated` and `file`.
#pragma once

#include <memory>

#include "forebay/detail/drive/scheme.hpp"

namespace forebay::drive {

scheme_syntax emulated_syntax();
scheme_syntax file_syntax();

/// Opens a drive of either: in this process, or of a daemon.
std::unique_ptr<device> open_emulated(uri const& from, open_options const& options);

}  // namespace forebay::drive
