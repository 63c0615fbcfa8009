// SPDX-License-Identifier: Apache-2.0
//! \file
//! The second example of docs/how-to/write-a-replacement-policy.md: a storage whose cache replaces pages by `lru`.
#pragma once

#include <string>

#include "docs/examples/lru.hpp"
#include "forebay/storage.hpp"

inline forebay::storage open_with_lru(std::string const& drive, std::string const& device) {
  forebay::storage_options options;
  options.drives = {drive};
  options.device = device;
  options.cache.size_bytes = 64 * 4096;
  options.cache.policy = forebay::replacement_policy::of<lru>();
  return forebay::storage(options);
}

struct cached_by_lru : forebay::cached {
  using policy = lru;
};

/// What a kernel takes by value.
template <class M>
auto ref_with_lru(forebay::storage const& opened) {
  return opened.ref<M, cached_by_lru>();
}
