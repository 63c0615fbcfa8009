// SPDX-License-Identifier: Apache-2.0
//! \file
//! Schemes of drive URIs: what stands before the colon, and what opens such drives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/uri.hpp"

namespace forebay::drive {

/// What may follow the colon. By default nothing may.
struct scheme_syntax {
  std::string name;               ///< what a name stands for, as in "the path of a file"; empty: there is none
  std::vector<std::string> keys;  ///< any other key is refused
};

/// Opens the drive that `from` names. Throws `refused_input` for what it cannot mean, before anything starts, and
/// `operation_failed` when the drive cannot be opened. May be called by several threads at once, and may call `open`.
using open_function = std::function<std::unique_ptr<device>(uri const& from, open_options const& options)>;

/// Makes `open` take URIs that begin with `name` and a colon, from now until the process ends. Throws `refused_input`
/// where the name is not `[a-z][a-z0-9+.-]*` or is taken, and where there is no function or a key is empty or holds a
/// comma or an equals sign. Thread-safe.
void add_scheme(std::string const& name, open_function open, scheme_syntax syntax = {});

}  // namespace forebay::drive
