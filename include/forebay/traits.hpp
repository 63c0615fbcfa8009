// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a kernel's handle on a storage is compiled for.
#pragma once

#include <concepts>

#include "forebay/clock.hpp"
#include "forebay/detail/cache/cache_rules.hpp"
#include "forebay/detail/queue/queue_rules.hpp"
#include "forebay/frame_pools.hpp"

namespace forebay {

/// Of `storage::ref<M>()`: the storage has no cache, and reads and writes go straight to the drives.
///
/// Traits are types, so that what a kernel does not use costs it no register. To change one, derive and say what is
/// different:
///
/// ```
/// struct serviced : forebay::uncached {
///   using queue_rules = forebay::service_rules;
/// };
/// auto const ref = storage.ref<M, serviced>();
/// ```
struct uncached {
  static constexpr bool uses_cache = false;
  /// Who consumes completions, and whether drives may have different numbers of queues: `queue_rules`,
  /// `service_rules`, `uneven_rules<>` or `uneven_rules<service_rules>`.
  using queue_rules = forebay::queue_rules;
};

/// Of `storage::ref<M, cached>()`: through the cache. Its members must match the storage's options.
struct cached : uncached {
  static constexpr bool uses_cache = true;
  /// Which page leaves a full set: as `cache_options::policy`.
  using policy = replacement::clock;
  /// Whether accesses are counted: as `cache_options::statistics`.
  static constexpr bool counted = false;
  /// Where pages may lie beside the cache's own frames.
  using pools = frame_pools<>;
  /// The decisions of the cache itself. Tests plant wrong ones; programs leave them alone.
  using cache_rules = forebay::cache_rules;
};

/// What may be the traits of a ref: `uncached`, `cached`, or a struct that is derived from one of them.
template <class T>
concept ref_traits = std::derived_from<T, uncached>;

/// What may be the traits of a ref through the cache: `cached`, or a struct that is derived from it.
template <class T>
concept cached_traits = ref_traits<T> && std::derived_from<T, cached> && T::uses_cache;

}  // namespace forebay
