// SPDX-License-Identifier: Apache-2.0
//! \file
//! Consumes what is left in the queues when no thread waits for it any more.
#pragma once

#include <cstdint>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// A kernel whose threads share out the pairs and consume completions until no command is in flight.
template <class M, class Targets = record_pool<M>>
struct drain_kernel {
  io_queues_ref<M, queue_rules, Targets> queues;
  std::uint64_t timeout_ns;
  std::uint32_t* busy_pairs;  ///< receives how many pairs were still busy at the deadline; zeroed before

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const now_ns = M::clock_ns();
    std::uint64_t const deadline_ns = timeout_ns < simt::no_deadline - now_ns ? now_ns + timeout_ns : simt::no_deadline;
    std::uint32_t const busy = queues.drain_share(deadline_ns);
    // Relaxed: the launch orders it before the host's read.
    if (busy != 0) simt::atomic<M>(*busy_pairs).fetch_add(busy, simt::order::relaxed);
  }
};

/// A kernel whose threads share out the command ids, and wait until every command that is in flight when it begins has
/// ended. This includes detached commands, and those whose waiters gave up.
template <class M, class Targets = record_pool<M>>
struct settle_kernel {
  io_queues_ref<M, queue_rules, Targets> queues;
  std::uint32_t* given_up;  ///< receives how many have not ended, since their drive completes nothing; zeroed before

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const commands = queues.settle_share();
    // Relaxed: the launch orders it before the host's read.
    if (commands != 0) simt::atomic<M>(*given_up).fetch_add(commands, simt::order::relaxed);
  }
};

}  // namespace forebay
