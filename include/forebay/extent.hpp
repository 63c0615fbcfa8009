// SPDX-License-Identifier: Apache-2.0
//! \file
//! A named part of a storage.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/detail/simt/language.hpp"

namespace forebay {

/// A named range of a storage, whose own offsets start at 0.
struct extent {
  std::string name;              ///< what `storage::find_extent()` finds it by
  std::uint64_t first_byte = 0;  ///< where in the storage it begins
  std::uint64_t size_bytes = 0;  ///< as asked for; the extent owns its range up to the next multiple of 1 MiB
};

}  // namespace forebay
