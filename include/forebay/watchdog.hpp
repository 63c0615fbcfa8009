// SPDX-License-Identifier: Apache-2.0
//! \file
//! A host thread that notices when the kernels of a storage make no progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "forebay/detail/simt/language.hpp"

namespace forebay {

/// What a watchdog reports.
struct stuck_report {
  /// Whether threads wait for each other in a circle, which only a build with `FOREBAY_DEBUG_WAITS` can tell.
  bool circular = false;
  std::string reason;  ///< one line
  std::string dump;    ///< as `storage::dump()`; where `circular`, it names the cycle
};

/// What a watchdog calls with a report.
using stuck_handler = std::function<void(stuck_report const&)>;

/// How `storage::watch()` watches.
struct watchdog_options {
  /// From one look to the next: at least a millisecond, and less than the storage's `timeout_ns`.
  std::uint64_t interval_ns = 500'000'000;
  std::uint32_t stuck_after = 4;  ///< number of looks in a row without progress after which it reports
  /// The watchdog's thread calls it; it must not throw. Empty: reason and dump go to standard error.
  stuck_handler report;
};

/// While it lives, looks at a storage from a thread of its own, and reports
///  - that nothing has moved for `stuck_after` looks although commands are in flight or traced threads wait: no command
///    was submitted, none was delivered, and no traced thread changed what it holds or waits for;
///  - in a build with `FOREBAY_DEBUG_WAITS`, a circular wait that two looks in a row show.
/// Each once, until something has moved. A look at a GPU copies a few kilobytes for each queue, and what is traced; it
/// waits for no kernel. Move-only; to be destroyed before the storage.
class watchdog {
 public:
  watchdog(watchdog&&) noexcept;
  watchdog& operator=(watchdog&&) noexcept;
  ~watchdog();

 private:
  friend class storage;
  struct parts;
  explicit watchdog(std::unique_ptr<parts> p);
  std::unique_ptr<parts> parts_;
};

}  // namespace forebay
