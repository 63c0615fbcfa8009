// SPDX-License-Identifier: Apache-2.0
//! \file
//! The folders that the build knows to have profiles, in a file of their own: their paths differ from clone to clone,
//! and so does the object that holds them.
#pragma once

namespace forebay::drive {

/// In the order in which they are searched; null ends them. A program of the build tree searches the sources' folder
/// alone. A program of an installed copy first searches the folder where `make install` put the profiles.
extern char const* const known_profile_folders[];

}  // namespace forebay::drive
