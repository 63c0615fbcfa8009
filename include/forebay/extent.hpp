// SPDX-License-Identifier: Apache-2.0
//! \file
//! A named part of a storage.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/detail/simt/language.hpp"

namespace forebay {

/// A named range of a storage, with an offset 0 of its own.
struct extent {
  std::string name;
  std::uint64_t first_byte = 0;
  std::uint64_t size_bytes = 0;  ///< as asked for; the range up to the next multiple of 1 MiB is its own
};

}  // namespace forebay
