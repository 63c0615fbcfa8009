// SPDX-License-Identifier: Apache-2.0
//! \file
//! Schemes of drive URIs: the part before the colon, and the function that opens such drives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/uri.hpp"

namespace forebay::drive {

/// What may follow the colon. By default nothing may follow.
struct scheme_syntax {
  std::string name;               ///< what a name stands for, as in "the path of a file"; empty: there is none
  std::vector<std::string> keys;  ///< any other key is refused
};

/// Opens the drive that `from` names. Throws `refused_input` for an invalid URI, before anything starts, and
/// `operation_failed` if the drive cannot be opened. Several threads may call it at once, and it may call `open`.
using open_function = std::function<std::unique_ptr<device>(uri const& from, open_options const& options)>;

/// Makes `open` take URIs that begin with `name` and a colon, from now until the process ends. Throws `refused_input`
/// if the name is not `[a-z][a-z0-9+.-]*` or is taken, if there is no function, or if a key is empty or contains a
/// comma or an equals sign. Thread-safe.
void add_scheme(std::string const& name, open_function open, scheme_syntax syntax = {});

}  // namespace forebay::drive
