// SPDX-License-Identifier: Apache-2.0
//! \file
//! cuFile (GPUDirect Storage), by a library that is loaded when the engine is opened.
#pragma once

#include <memory>
#include <string>

#include "apps/file_io/engine.hpp"

namespace forebay::file_io {

/// `open_cufile` with the library of another name.
std::unique_ptr<engine> open_cufile_of(std::string const& library, file const& from, blocks const& memory);

}  // namespace forebay::file_io
