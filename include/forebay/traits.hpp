// SPDX-License-Identifier: Apache-2.0
//! \file
//! The properties for which a kernel's handle on a storage is compiled.
#pragma once

#include <concepts>

#include "forebay/clock.hpp"
#include "forebay/detail/cache/cache_rules.hpp"
#include "forebay/detail/queue/queue_rules.hpp"
#include "forebay/frame_pools.hpp"

namespace forebay {

/// The traits of `storage::ref<M>()`: the storage has no cache, and reads and writes go directly to the drives.
///
/// Traits are types, so that a feature that a kernel does not use costs it no register. To change one, derive and say
/// what is different:
///
/// ```
/// struct serviced : forebay::uncached {
///   using queue_rules = forebay::service_rules;
/// };
/// auto const ref = storage.ref<M, serviced>();
/// ```
struct uncached {
  static constexpr bool uses_cache = false;  ///< whether refs go through the cache
  /// Which threads consume completions, and whether drives may have different numbers of queues: `queue_rules`,
  /// `service_rules`, `uneven_rules<>` or `uneven_rules<service_rules>`.
  using queue_rules = forebay::queue_rules;
};

/// The traits of `storage::ref<M, cached>()`: through the cache. The members must match the storage's options.
struct cached : uncached {
  static constexpr bool uses_cache = true;  ///< refs go through the cache
  /// The policy that chooses the page to leave a full set: as `cache_options::policy`.
  using policy = replacement::clock;
  /// Whether accesses are counted: as `cache_options::statistics`.
  static constexpr bool counted = false;
  /// Where pages may lie in addition to the cache's own frames, and how they get into those: as
  /// `cache_options::user_frames`, `cache_options::host_size_bytes` and `cache_options::staging_pages`.
  using pools = frame_pools<>;
  /// The decisions of the cache itself. Tests replace some by wrong ones; programs leave them alone.
  using cache_rules = forebay::cache_rules;
};

/// What the traits of a ref may be: `uncached`, `cached`, or a struct derived from one of them.
template <class T>
concept ref_traits = std::derived_from<T, uncached>;

/// What the traits of a ref through the cache may be: `cached`, or a struct derived from it.
template <class T>
concept cached_traits = ref_traits<T> && std::derived_from<T, cached> && T::uses_cache;

}  // namespace forebay
