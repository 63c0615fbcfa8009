// SPDX-License-Identifier: Apache-2.0
//! \file
//! A drive of scheduled runs that completes each command at once, and moves no data.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/fiber.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/memory.hpp"

namespace forebay::test {

/// The drive has this many queue pairs.
class prompt_drive {
 public:
  static constexpr std::uint32_t entries = 16;

  explicit prompt_drive(std::uint32_t pairs) : memory_(pairs) {
    std::vector<queue_pair_rings> rings;
    for (ring_memory& m : memory_) {
      rings.push_back({m.sq.data(), m.cq.data(), &m.sq_doorbell, &m.cq_doorbell, entries, entries,
                       static_cast<std::uint32_t>(rings.size()) + 1});
    }
    queues = std::make_unique<io_queues>(rings, io_queues_options{.records = 64}, memory::host(), memory::host());
  }

  std::vector<simt::agent> agents() {
    std::vector<simt::agent> all;
    for (std::uint32_t pair = 0; pair < memory_.size(); ++pair) {
      all.push_back({"pair " + std::to_string(pair), [this, pair] { serve(pair); }, true, 1});
    }
    return all;
  }

  std::unique_ptr<io_queues> queues;
  /// Called before a command of the pair is completed.
  std::function<void(std::uint32_t pair)> about_to_complete;

 private:
  using machine = simt::fiber;
  struct ring_memory {
    alignas(64) std::array<nvme::submission_entry, entries> sq{};
    std::array<nvme::completion_entry, entries> cq{};
    std::uint32_t sq_doorbell = 0;
    std::uint32_t cq_doorbell = 0;
  };

  void serve(std::uint32_t pair) {
    ring_memory& m = memory_[pair];
    for (std::uint32_t n = 0;; ++n) {
      std::uint32_t const slot = n % entries;
      (void)machine::wait_until(
          [&] {
            // Acquire pairs with the release before the doorbell is written.
            return simt::atomic<machine, simt::scope::system>(m.sq_doorbell).load(simt::order::acquire) != slot ||
                   machine::stopping();
          },
          simt::no_deadline);
      if (machine::stopping()) return;
      if (about_to_complete) about_to_complete(pair);
      machine::st(&m.cq[slot].dw2,
                  nvme::completion_entry::make_dw2(static_cast<std::uint16_t>((slot + 1) % entries), 1));
      auto const id = static_cast<std::uint16_t>(machine::ld(&m.sq[slot].cdw0) >> 16);
      // Release pairs with the acquire of the thread that consumes the completion.
      simt::atomic<machine, simt::scope::system>(m.cq[slot].dw3)
          .store(nvme::completion_entry::make_dw3(id, (n / entries & 1) ^ 1, 0), simt::order::release);
    }
  }

  std::vector<ring_memory> memory_;
};

}  // namespace forebay::test
