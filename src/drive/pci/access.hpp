// SPDX-License-Identifier: Apache-2.0
//! \file
//! Ways to reach a PCI function from this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/memory.hpp"
#include "function.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {

/// A function that no driver of the system has any more, and that this process reaches. While it lives the function may
/// access memory by itself (it is a bus master). Thread-safe.
class access {
 public:
  virtual ~access() = default;
  virtual driver::dma_space& dma() = 0;
  /// Its registers, mapped: all of BAR 0.
  virtual std::byte volatile* registers() = 0;
  virtual std::size_t registers_bytes() const = 0;
  /// `vfio` or `sysfs`.
  virtual char const* name() const = 0;
  /// From now on `dma` reaches memory of a GPU too, which is in `folder` below /sys. Throws `refused_input` and
  /// `operation_failed`; then nothing has changed.
  virtual void reach_gpu(int ordinal, std::string const& folder) = 0;
};

/// Throws `refused_input` if the system lacks what `open_by_vfio` or `open_by_sysfs` needs, before anything is taken.
void require_vfio(function const& of);
void require_sysfs();
/// As `require_vfio`, but opens nothing: it does not find out what only opening tells. `in_use`: a program has the
/// function open.
void look_for_vfio(function const& of, bool in_use);

/// Throws `refused_input` if the memory at `address` is a GPU's own, or managed.
void require_host_memory(void const* address);

// Threads of GPUs reach what the DMA space allocates, at the same addresses, if `client_memory` is page-locked. That
// memory stays page-locked until the last function of the process is closed, or longer: to unlock memory waits for all
// kernels of the process, and some do not end. `client_memory` must last as long.

/// Through VFIO: an IOMMU lets the function reach nothing but what the DMA space has mapped. The function must be bound
/// to `vfio-pci`. Throws `refused_input` if the system does not allow it, and `operation_failed`.
std::unique_ptr<access> open_by_vfio(function const& of, memory::resource& client_memory);

/// Through the files of the function below /sys: nothing keeps it from any memory. Its own memory is huge pages, of
/// which `taken` keeps the files. Throws `refused_input` if the system has none to give or hides their addresses, and
/// `operation_failed`. `taken` must outlive it.
std::unique_ptr<access> open_by_sysfs(function const& of, takeover& taken, memory::resource& client_memory);

}  // namespace forebay::drive::pci
