// SPDX-License-Identifier: Apache-2.0
//! \file
//! An emulated drive that a daemon serves.
#pragma once

#include <memory>

#include "../emulated/emulated_drive.hpp"
#include "shared_drive.hpp"

namespace forebay::drive::served {

std::unique_ptr<shared_drive> share(std::shared_ptr<emulated_drive> drive);

}  // namespace forebay::drive::served
