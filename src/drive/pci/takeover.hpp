// SPDX-License-Identifier: Apache-2.0
//! \file
//! Taking a PCI function from the system's driver, and giving it back whatever ends this process.
#pragma once

#include "../open_file.hpp"
#include "function.hpp"

namespace forebay::drive::pci {

enum class way : std::uint8_t { vfio, sysfs };

/// A function that was taken from the system's driver. A second process, the *guard*, gives it back: when this object
/// is destroyed, and also when this process ends in any other way, even by SIGKILL. By sysfs no IOMMU stands between
/// the function and memory. Therefore the guard keeps the files of the memory that the function may write, until it has
/// disabled the function. Not thread-safe.
class takeover {
 public:
  /// Starts the guard, and only then takes the function away from its driver. For `way::vfio` it binds `vfio-pci`, for
  /// `way::sysfs` nothing: the function is then enabled, and a bus master. Throws `refused_input` if another process
  /// has taken it or the system does not allow it, and `operation_failed`; either has changed nothing in the end.
  takeover(function const& of, way how);
  /// As `finish`, without throwing.
  ~takeover();
  takeover(takeover const&) = delete;
  takeover& operator=(takeover const&) = delete;

  /// The guard keeps the file open to the end.
  void keep(open_file const& file);
  /// Lets the guard give the function back, and waits for it. Throws `operation_failed` with what could not be undone.
  void finish();

 private:
  void start_guard(way how);
  void detach(way how);

  function const of_;
  std::string const driver_before_;
  open_file lock_;    ///< only one process takes the function
  open_file socket_;  ///< to the guard
};

}  // namespace forebay::drive::pci
