// SPDX-License-Identifier: Apache-2.0
//! \file
//! The copies between page-locked host memory and a GPU's memory. Defined where CUDA is built in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace forebay::file_io {

class blocks;

/// While it lives, its GPU is current for the thread that made it. It copies the blocks of one thread: the copies run
/// one after the other, in the order in which they were started. Functions throw `operation_failed`.
class gpu_copies {
 public:
  virtual ~gpu_copies() = default;
  virtual void start_to_gpu(std::uint32_t slot) = 0;
  virtual void start_to_host(std::uint32_t slot) = 0;
  /// Whether the last copy of the block has ended.
  virtual bool ended(std::uint32_t slot) = 0;
  /// Waits for it.
  virtual void wait(std::uint32_t slot) = 0;
};

/// `memory` must outlive the copies.
std::unique_ptr<gpu_copies> make_gpu_copies(blocks const& memory);

/// Page-locks `bytes` bytes from `begin` on while the result lives.
std::shared_ptr<void> page_locked(void* begin, std::size_t bytes);

}  // namespace forebay::file_io
