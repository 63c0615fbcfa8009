// SPDX-License-Identifier: Apache-2.0
#include "profile_folders.hpp"

namespace forebay::drive {

char const* const known_profile_folders[] = {FOREBAY_PROFILE_FOLDERS, nullptr};

}  // namespace forebay::drive
