// SPDX-License-Identifier: Apache-2.0
//! \file
//! Completions are consumed here for threads that only look at what they wait for (`service_rules`).
#pragma once

#include <cstdint>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// A resident kernel whose warps share out the queue pairs; a warp looks at as many entries of a pair at a time as it
/// has lanes. `storage::service(stop)` makes it. It runs until the host, or any other thread, sets `*stop`. Threads
/// that wait by `service_rules` cannot go on without it: launch it before the kernels that need it, so that it runs
/// beside them.
template <class M, class Queues = io_queues_ref<M>>
struct service_kernel {
  Queues queues;                  ///< those of the storage's device
  std::uint32_t* stop = nullptr;  ///< in memory that its writer and the kernel reach
  /// If the service is launched in a grid with other work, blocks before this one do the other work.
  std::uint32_t first_block = 0;

  /// What each thread of the service runs.
  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const warps_per_block = (block.size() + 31) / 32;
    std::uint32_t const warp = (block.rank - first_block) * warps_per_block + block.thread_rank() / 32;
    std::uint32_t const warps = (M::thread_count() / block.size() - first_block) * warps_per_block;
    (void)M::wait_until(
        [&] {
          for (;;) {
            bool any = false;
            // At most one lap of a ring, then the next pair: a busy pair must not keep the others waiting.
            for (std::uint32_t k = warp; k < queues.pair_count(); k += warps) {
              do {
                if (!queues.help(k)) break;
                any = true;
              } while (!Queues::rules_type::goes_round);
            }
            // Acquire pairs with a release of the thread that stops the service.
            if (simt::atomic<M, simt::scope::system>(*stop).load(simt::order::acquire) != 0) return true;
            // A thread must have seen each ring empty before it goes to sleep.
            if (!any) return false;
          }
        },
        simt::no_deadline);
  }
};

}  // namespace forebay
