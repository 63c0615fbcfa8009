// SPDX-License-Identifier: Apache-2.0
//! \file
//! The folders that the build knows to have profiles, in a file of their own: their paths differ from clone to clone,
//! and so does the object that holds them.
#pragma once

namespace forebay::drive {

/// Where `make install` puts the profiles.
extern char const* const installed_profiles;
/// Where the sources have them.
extern char const* const source_profiles;

}  // namespace forebay::drive
