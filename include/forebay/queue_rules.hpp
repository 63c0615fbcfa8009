// SPDX-License-Identifier: Apache-2.0
//! \file
//! Who consumes completions, and whether drives may have different numbers of queues.
#pragma once

#include "forebay/detail/queue/queue_rules.hpp"

namespace forebay {

/// Completions are consumed by threads of `service_kernel` alone (service.hpp); waiting threads only look at what they
/// wait for.
struct service_rules : queue_rules {
  static constexpr bool waiters_help = false;
};

/// Drives may have different numbers of queue pairs: a type of its own, since to look those of a drive up takes
/// registers of every kernel that could. For `service_rules` too: `uneven_rules<service_rules>`.
template <class Rules = queue_rules>
struct uneven_rules : Rules {
  static constexpr bool even_pairs = false;
};

}  // namespace forebay
