// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a kernel costs a GPU: registers, spills, and how many of its blocks are resident at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "forebay/detail/simt/vocabulary.hpp"

#if defined(__CUDACC__)
#include "forebay/detail/simt/cuda.hpp"
#endif

namespace forebay {

/// The resources that a launch of one kernel in one shape takes. Host only. docs/reference/launch-report.md explains
/// the numbers.
struct launch_report {
  /// What it takes of a GPU. On the CPU there is nothing to report: lanes have no registers and no multiprocessor.
  struct gpu_use {
    std::uint32_t registers_per_thread = 0;    ///< those that the compiler gave the kernel
    std::uint64_t local_bytes_per_thread = 0;  ///< spilled registers, arrays indexed at run time, frames of calls
    std::uint64_t static_shared_bytes = 0;     ///< of a block, in addition to `shape.shared_bytes`
    std::uint32_t max_threads_per_block = 0;   ///< the largest block with which the kernel can be launched
    std::uint32_t resident_blocks_per_sm = 0;  ///< 0: this shape cannot be launched
    std::uint32_t max_threads_per_sm = 0;      ///< threads that a multiprocessor has room for
    std::uint32_t sms = 0;                     ///< how many multiprocessors the GPU has
    /// What limits the number of resident blocks: `registers`, `shared_memory`, `threads`, `blocks`, or
    /// `max_threads_per_block` if that is why the shape cannot be launched.
    std::string limited_by;
  };

  std::string device;          ///< the GPU's name, or `cpu`
  simt::grid shape;            ///< of the launch
  std::optional<gpu_use> gpu;  ///< empty on the CPU

  /// The resident threads of an SM, divided by the threads that it has room for: 0 to 1. 0 on the CPU.
  double occupancy() const;
  /// Several lines of text for people; the last one ends with a newline too.
  std::string text() const;
  /// One JSON object.
  std::string json() const;
};

namespace detail {
/// \param entry a kernel's `__global__` function.
launch_report report_cuda_launch(void const* entry, simt::grid const& shape, int ordinal);
launch_report report_cpu_launch(simt::grid const& shape);
}  // namespace detail

/// The report on `simt::launch<M>(shape, kernel)`. The launch itself need not happen. For `simt::cuda`, in sources
/// compiled by nvcc, it is about GPU `ordinal`; for the other machines it says that the device is the CPU.
/// \throws refused_input if the shape has no blocks or no threads
/// \throws operation_failed if the GPU cannot be asked, or cannot give that much shared memory
template <class M, class Kernel>
launch_report report_launch(simt::grid const& shape, Kernel const&, [[maybe_unused]] int ordinal = 0) {
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<M, simt::cuda>) {
    return detail::report_cuda_launch(reinterpret_cast<void const*>(simt::detail::cuda_entry_of<Kernel>()), shape,
                                      ordinal);
  } else {
    return detail::report_cpu_launch(shape);
  }
#else
  return detail::report_cpu_launch(shape);
#endif
}

}  // namespace forebay
