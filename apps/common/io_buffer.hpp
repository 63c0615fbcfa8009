// SPDX-License-Identifier: Apache-2.0
//! \file
//! A registered buffer that outlives every command which names it, even commands that a kernel gave up.
#pragma once

#include <cstddef>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/storage.hpp"

namespace forebay::apps {

class io_buffer {
 public:
  io_buffer(storage& drives, std::size_t bytes) : drives_(drives), buffer_(drives.allocate_device_buffer(bytes)) {}
  io_buffer(io_buffer const&) = delete;
  io_buffer& operator=(io_buffer const&) = delete;
  ~io_buffer() {
    try {
      if (drives_.drain(drain_timeout_ns)) return;
    } catch (operation_failed const&) {
      // The GPU failed: nobody can tell what its commands still hold.
    }
    // A controller that answers neither commands nor recovery may still write: lost memory is better than wrong memory.
    [[maybe_unused]] auto const* kept = new registered_buffer(std::move(buffer_));
  }
  buffer_ref ref() const { return buffer_.ref(); }

 private:
  static constexpr std::uint64_t drain_timeout_ns = 30'000'000'000;
  storage& drives_;
  registered_buffer buffer_;
};

}  // namespace forebay::apps
