// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which threads consume completions, and whether drives may have different numbers of queues.
#pragma once

#include "forebay/detail/queue/queue_rules.hpp"

namespace forebay {

/// Only threads of `service_kernel` (service.hpp) consume completions. Waiting threads only look at what they wait for.
struct service_rules : queue_rules {
  static constexpr bool waiters_help = false;  ///< waiting threads do not consume completions
};

/// Drives may have different numbers of queue pairs, and the storage may be a file of a file system (`file-extents:`).
/// This is a type of its own because to look up the pairs of a drive, or the extents of a file, takes registers in
/// every kernel that could do so. For `service_rules` too: `uneven_rules<service_rules>`.
template <class Rules = queue_rules>
struct uneven_rules : Rules {
  static constexpr bool even_pairs = false;  ///< drives may have different numbers of queue pairs
};

}  // namespace forebay
