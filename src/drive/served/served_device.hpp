// SPDX-License-Identifier: Apache-2.0
//! \file
//! A drive that a daemon serves, as one of its clients.
#pragma once

#include <memory>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/uri.hpp"

namespace forebay::drive::served {

/// Throws what the daemon throws, and `refused_input` where there is none.
std::unique_ptr<device> open(uri const& from, open_options const& options);

}  // namespace forebay::drive::served
