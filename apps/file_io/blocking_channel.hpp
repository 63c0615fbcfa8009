// SPDX-License-Identifier: Apache-2.0
//! \file
//! Transfers that hold their thread up until they end.
#pragma once

#include "apps/file_io/engine.hpp"

namespace forebay::file_io {

/// A transfer runs within `ended`, not within `start`: so its time is that of the completion, as in fio.
class blocking_channel : public channel {
 public:
  void start(std::uint32_t, transfer const& what) final {
    what_ = what;
    due_ = true;
  }
  bool ended(std::uint32_t slot) final {
    if (due_) error_ = move(slot, what_);
    due_ = false;
    return true;
  }
  int take_error(std::uint32_t) final { return error_; }

 private:
  /// Returns 0 or why it failed.
  virtual int move(std::uint32_t slot, transfer const& what) = 0;

  transfer what_;
  bool due_ = false;
  int error_ = 0;
};

/// Transfers between the file and host memory, with a copy from or to the GPU where the data ends there.
class host_channel : public blocking_channel {
 public:
  host_channel(blocks const& memory, gpu_copies* copies) : memory_(memory), copies_(copies) {}

 private:
  /// Between the file and the host's part of the block; returns 0 or an errno.
  virtual int read(std::byte* to, std::uint64_t bytes, std::uint64_t offset_bytes) = 0;
  virtual int write(std::byte const* from, std::uint64_t bytes, std::uint64_t offset_bytes) = 0;

  int move(std::uint32_t slot, transfer const& what) final {
    std::uint64_t const bytes = memory_.block_bytes();
    if (what.is_write) {
      if (copies_ != nullptr) {
        copies_->start_to_host(slot);
        copies_->wait(slot);
      }
      return write(memory_.host(slot), bytes, what.offset_bytes);
    }
    int const error = read(memory_.host(slot), bytes, what.offset_bytes);
    if (error == 0 && copies_ != nullptr) {
      copies_->start_to_gpu(slot);
      copies_->wait(slot);
    }
    return error;
  }

  blocks const& memory_;
  gpu_copies* copies_;
};

}  // namespace forebay::file_io
