// SPDX-License-Identifier: Apache-2.0
//! \file
//! Describes the state of a stuck kernel in words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forebay/detail/cache/inspection.hpp"
#include "forebay/detail/queue/inspection.hpp"
#include "forebay/memory.hpp"
#include "forebay/watchdog.hpp"

namespace forebay::detail {

/// Queue pairs for one kind of thread.
struct inspected_queues {
  std::string whose;  ///< e.g. "kernels"
  io_queues const* queues = nullptr;
  std::vector<memory::resource*> ring_memory;  ///< of each pair
  std::vector<std::size_t> drive_of;           ///< each pair
};

/// What an inspection looks at. All of it must outlive the inspection.
struct inspected {
  std::string title;
  std::vector<inspected_queues> queues;  ///< the kernels' first
  cache_state const* cache = nullptr;    ///< null: none
};

/// Describes queues, records, frames, locks and traced threads, and a circular wait if there is one. The result is some
/// lines, the last with its end of line. `now_ns`: by the clock of the kernels.
std::string dump(inspected const& what, std::uint64_t now_ns);

/// The successive looks of a watchdog.
class progress_watch {
 public:
  progress_watch(inspected what, std::uint64_t interval_ns, std::uint32_t stuck_after);

  /// The report after this look, if there is something to report. `now_ns`: as above.
  std::optional<stuck_report> look(std::uint64_t now_ns);

 private:
  /// The state that changes when anything moves.
  struct picture {
    std::vector<std::uint32_t> counts;  ///< commands submitted and ended, of every pair
    std::vector<traced_thread> threads;
    std::uint32_t in_flight = 0;
    std::uint32_t waiting = 0;
  };
  picture take_picture() const;
  std::optional<stuck_report> report_circular_wait(picture const& now, std::uint64_t now_ns);

  inspected what_;
  std::uint64_t interval_ns_;
  std::uint32_t stuck_after_;
  std::optional<picture> before_;
  std::uint32_t unmoved_looks_ = 0;
  std::vector<std::uint64_t> reported_;  ///< names and changes of the threads of the circular wait reported last
};

}  // namespace forebay::detail
