// SPDX-License-Identifier: Apache-2.0
//! \file
//! Taking a PCI function from the system's driver, and giving it back whatever ends this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "../open_file.hpp"
#include "function.hpp"

namespace forebay::drive::pci {

enum class way : std::uint8_t { vfio, sysfs };

/// The driver of VFIO, which lets a process have the function.
inline constexpr char const* vfio_driver = "vfio-pci";

/// Locks the function, so that one process at a time takes it. `flags` are those of open(2): a user that may only read
/// its configuration can lock it too. Throws `refused_input` if another has the lock, and `operation_failed`.
open_file lock_of(function const& of, int flags);
/// Throws `refused_input` because another has the lock.
[[noreturn]] void refuse_taken(function const& of);

/// A function that was taken from the system's driver. A second process, the *guard*, gives it back: when this object
/// is destroyed, and also when this process ends in another way, even by SIGKILL. By sysfs no IOMMU stands between the
/// function and memory. Therefore the guard keeps the memory that the function may write, until it has disabled the
/// function. A function that `vfio-pci` had before stays with it, and needs no guard. `keep` and `let_go` are
/// thread-safe.
class takeover {
 public:
  /// What is checked once no other process can take the function. Throws to refuse. Returns files that are kept open
  /// until its driver has let go of it.
  using check = std::function<std::vector<open_file>(function const&)>;

  /// Takes the function away from its driver. For `way::vfio` it binds `vfio-pci`, for `way::sysfs` nothing: the
  /// function is then enabled, and a bus master. Throws `refused_input` if another process has taken it or the system
  /// does not allow it, and `operation_failed`; either has changed nothing in the end.
  takeover(function const& of, way how, check const& may);
  /// As `finish`, without throwing.
  ~takeover();
  takeover(takeover const&) = delete;
  takeover& operator=(takeover const&) = delete;

  /// The guard keeps the memory behind the file to the end, or until `let_go`, which wants the result and the size of
  /// the file.
  std::uint64_t keep(int file);
  /// The function does not use the memory any more.
  void let_go(std::uint64_t id, std::size_t bytes) noexcept;
  /// Lets the guard give the function back, and waits for it. Throws `operation_failed` with what could not be undone.
  void finish();

 private:
  void start_guard(way how);
  void detach(way how);

  function const of_;
  open_file lock_;  ///< only one process takes the function
  std::string driver_before_, override_before_;
  open_file socket_;   ///< to the guard
  std::mutex asking_;  ///< one thread at a time asks the guard
};

}  // namespace forebay::drive::pci
