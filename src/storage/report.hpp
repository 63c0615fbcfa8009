// SPDX-License-Identifier: Apache-2.0
//! \file
//! The report of a storage on itself (docs/reference/json.md).
#pragma once

#include <string>

#include "forebay/detail/queue/recovery.hpp"
#include "storage/opened_drives.hpp"

namespace forebay::detail {

class client;
class host_transfers;
class relay_thread;

/// One JSON object. Thread-safe.
std::string report(opened_drives const& drives, client const& of, host_transfers const& transfers,
                   recovery::counters const& recovered, relay_thread const& relay);

}  // namespace forebay::detail
