// SPDX-License-Identifier: Apache-2.0
//! \file
//! The table of schemes, of which a process has one. Its functions are thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "forebay/detail/drive/scheme.hpp"

namespace forebay::drive {

struct scheme {
  std::string name;
  scheme_syntax syntax;
  open_function open;
};

/// The scheme of that name; null: there is none. It stays valid, and never changes.
std::shared_ptr<scheme const> find_scheme(std::string_view name);

/// All of them, in words: `emulated:, file: or pci:`.
std::string known_schemes();

}  // namespace forebay::drive
