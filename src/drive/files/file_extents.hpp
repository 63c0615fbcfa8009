// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives that are one file of a file system on a drive that a daemon has.
#pragma once

#include <memory>

#include "forebay/detail/drive/scheme.hpp"

namespace forebay::drive::files {

scheme_syntax syntax();

/// The bytes of the file, read from the drive itself while the file system stays mounted. The file cannot change
/// meanwhile: a program that wants to write it waits until the drive has let go of all queues, and from then on
/// this device counts as removed.
std::unique_ptr<device> open(uri const& from, open_options const& options);

}  // namespace forebay::drive::files
