// SPDX-License-Identifier: Apache-2.0
//! \file
//! The PCI Express link that drives share.
#pragma once

#include <memory>

#include "forebay/detail/memory/link_speed.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// When each direction of a link is next free: two words in `where`. All drives of the process that have their units
/// there and name the same link share them.
std::shared_ptr<memory::allocation> shared_link(memory::resource& where, memory::link_speed const& speed);

}  // namespace forebay::emulator
