// SPDX-License-Identifier: Apache-2.0
//! \file
//! A status in words, for messages. Host only.
#pragma once

#include <string>

#include "forebay/status.hpp"

namespace forebay {

/// "success", the name of Forebay's own fault, or the NVMe status by name and numbers.
std::string to_string(status s);

}  // namespace forebay
