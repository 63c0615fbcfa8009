// SPDX-License-Identifier: Apache-2.0
//! \file
//! Traits of refs as template arguments, for tests that go through many of them.
#pragma once

#include "forebay/queue_rules.hpp"
#include "forebay/traits.hpp"

namespace forebay::test {

/// `cached` with the parts given. A program writes a struct of its own.
template <class Policy = replacement::clock, bool Counted = false, class Pools = frame_pools<>,
          class QueueRules = queue_rules, class CacheRules = cache_rules>
struct traits : cached {
  using policy = Policy;
  static constexpr bool counted = Counted;
  using pools = Pools;
  using queue_rules = QueueRules;
  using cache_rules = CacheRules;
};

/// `uncached` with rules of the queue.
template <class QueueRules>
struct uncached_traits : uncached {
  using queue_rules = QueueRules;
};

}  // namespace forebay::test
