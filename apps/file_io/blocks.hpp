// SPDX-License-Identifier: Apache-2.0
//! \file
//! The memory of a job's commands: a block for each command in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "apps/file_io/gpu.hpp"
#include "forebay/memory.hpp"

namespace forebay::file_io {

/// Each block has a part that CPU threads reach, and a part where the data of a read ends and that of a write begins.
/// They are the same one in host memory, unless a GPU is named: then the first is page-locked and the second is memory
/// of the GPU. Blocks begin at multiples of 4096 bytes if `block_bytes` is one; the first one always does.
class blocks {
 public:
  /// `gpu`: its number, or -1. Throws as `memory::resource::allocate` does.
  blocks(std::uint32_t count, std::uint64_t block_bytes, int gpu);

  int gpu() const { return gpu_; }
  std::uint32_t count() const { return count_; }
  std::uint64_t block_bytes() const { return block_bytes_; }
  std::byte* host(std::uint32_t slot) const { return host_.as<std::byte>() + slot * block_bytes_; }
  std::byte* end(std::uint32_t slot) const { return ends().as<std::byte>() + slot * block_bytes_; }
  std::uint64_t size_bytes() const { return count_ * block_bytes_; }

  /// For the calling thread's blocks; null where no GPU is named.
  std::unique_ptr<gpu_copies> copies() const;
  /// Puts into the host's part what is in the GPU's. Does nothing where no GPU is named.
  void take_from_gpu(std::uint32_t slot) const;
  /// Puts into the GPU's part what is in the host's, and clears the host's: only a copy brings the bytes back. Does
  /// nothing where no GPU is named.
  void give_to_gpu(std::uint32_t slot) const;

 private:
  memory::allocation const& ends() const { return gpu_ < 0 ? host_ : device_; }

  int gpu_;
  std::uint32_t count_;
  std::uint64_t block_bytes_;
  memory::allocation host_;
  memory::allocation device_;
  std::shared_ptr<void> locked_;
};

}  // namespace forebay::file_io
