// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole NVMe controller, as of a real drive, that a daemon shares out.
#pragma once

#include <cstdint>
#include <memory>

#include "forebay/detail/drive/drive.hpp"
#include "shared_drive.hpp"

namespace forebay::drive::served {

/// Brings the controller up. Each client gets some of its I/O queue pairs, and what looks like a controller with only
/// these: registers and admin commands that this process answers. Commands and data go directly between the client's
/// memory and the drive; doorbells are relayed. A client can name any memory of the other clients, and any namespace,
/// in its commands, so clients must trust each other. A controller that does not answer an admin command within
/// `admin_timeout_ns` is reset, and then looks to all clients as if theirs had failed. Throws `operation_failed` if it
/// does not come up.
std::unique_ptr<shared_drive> share(std::unique_ptr<device> whole, std::uint64_t admin_timeout_ns = 5'000'000'000);

}  // namespace forebay::drive::served
