// SPDX-License-Identifier: Apache-2.0
//! \file
//! A replacement policy as an option of a storage.
#pragma once

#include <cstddef>
#include <string>

#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/policy.hpp"

namespace forebay {

/// What host code needs to know of a replacement policy.
struct replacement_policy {
  std::string name;             ///< of the policy: `clock`, `s3_fifo`, or the user's
  std::size_t set_bytes = 0;    ///< of a set of the cache
  std::size_t state_bytes = 0;  ///< of the policy's part of it

  /// `replacement_policy::of<replacement::clock>()`, or the same with a policy of the user's.
  template <replacement::policy<simt::native> Policy>
  static replacement_policy of() {
    return {Policy::name, sizeof(cache_set<Policy>), sizeof(typename Policy::set_state)};
  }
};

}  // namespace forebay
