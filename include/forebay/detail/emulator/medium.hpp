// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the bytes of a drive are if its units cannot reach them by loads and stores: pieces of commands go in, and
//! completions come out later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "forebay/detail/emulator/prp.hpp"

namespace forebay::emulator {

/// What a medium is asked to do with a range of the drive.
enum class medium_operation : std::uint8_t {
  read,
  write,
  zero,     ///< the range reads as zeros afterwards, and may give up the room that it took
  durable,  ///< what was complete before is on the medium afterwards; the range says nothing
};

/// A part of a command.
struct medium_piece {
  medium_operation operation = medium_operation::durable;
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;
  /// The memory to read into or to write from, `bytes` in all; valid until the piece is complete.
  std::span<dma_segment const> segments = {};
  bool through = false;   ///< a write or a zeroing is done when it is durable
  std::uint64_t tag = 0;  ///< comes back with the completion
};

struct medium_completion {
  std::uint64_t tag = 0;
  std::uint16_t status_field = 0;  ///< 0: the whole piece was done
};

/// A service unit's way to a medium. One thread uses it, whichever makes the first call.
class medium_port {
 public:
  /// No piece may be in flight.
  virtual ~medium_port() = default;

  /// Takes a piece. False: there is no room for it at the moment.
  [[nodiscard]] virtual bool submit(medium_piece const& piece) = 0;
  /// Begins what was submitted, and takes completions, at most as many as `into` has places. Returns how many. Does not
  /// wait. From then on nothing touches the memory of the pieces that they name.
  virtual std::size_t collect(std::span<medium_completion> into) = 0;
  /// Asks for an early end of a piece that was submitted. It completes as any other, done or not.
  virtual void cancel(std::uint64_t tag) = 0;
  /// Waits for a completion, for `most_ns` at most. It may return earlier for any reason.
  virtual void wait(std::uint64_t most_ns) = 0;
};

/// The bytes of one drive. Thread-safe.
class medium {
 public:
  virtual ~medium() = default;
  /// The medium must outlive the port. Throws `operation_failed`.
  virtual std::unique_ptr<medium_port> open() = 0;
};

}  // namespace forebay::emulator
