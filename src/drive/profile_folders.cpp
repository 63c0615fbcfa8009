// SPDX-License-Identifier: Apache-2.0
#include "profile_folders.hpp"

namespace forebay::drive {

char const* const installed_profiles = FOREBAY_PROFILE_INSTALL_DIR;
char const* const source_profiles = FOREBAY_PROFILE_SOURCE_DIR;

}  // namespace forebay::drive
