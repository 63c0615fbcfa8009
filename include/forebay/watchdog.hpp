// SPDX-License-Identifier: Apache-2.0
//! \file
//! A thread of the host that notices when the kernels of a storage make no progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "forebay/detail/simt/language.hpp"

namespace forebay {

/// What a watchdog has to say.
struct stuck_report {
  /// Whether threads wait for each other, which only a build with `FOREBAY_DEBUG_WAITS` can tell.
  bool circular = false;
  std::string reason;  ///< one line
  std::string dump;    ///< as `storage::dump()`; where `circular`, it names the cycle
};

using stuck_handler = std::function<void(stuck_report const&)>;

struct watchdog_options {
  std::uint64_t interval_ns = 500'000'000;  ///< from one look to the next; less than the storage's `timeout_ns`
  std::uint32_t stuck_after = 4;            ///< looks in a row that show no progress, until that is reported
  /// Called by the watchdog's thread; must not throw. Empty: reason and dump go to standard error.
  stuck_handler report;
};

/// Looks at a storage from a thread of its own while it lives, and reports
///  - that nothing has moved for `stuck_after` looks though commands are in flight, or traced threads wait: no command
///    was submitted, none was delivered, no traced thread changed what it holds or waits for;
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
