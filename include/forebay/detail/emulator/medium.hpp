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

/// Which threads use a port, one at a time.
enum class port_use : std::uint8_t {
  by_one_thread,  ///< whichever makes the first call
  by_any_thread,  ///< a thread may end while pieces that it submitted are in flight
};

/// A service unit's way to a medium.
class medium_port {
 public:
  /// With so many pieces in flight, most media are as busy as they can be.
  static constexpr std::size_t keeps_busy = 24;

  /// No piece may be in flight.
  virtual ~medium_port() = default;

  /// Takes a piece. False: there is no room for it at the moment.
  [[nodiscard]] virtual bool submit(medium_piece const& piece) = 0;
  /// Begins what was submitted, and takes completions, at most as many as `into` has places. Returns how many. Does not
  /// wait. From then on nothing touches the memory of the pieces that they name.
  virtual std::size_t collect(std::span<medium_completion> into) = 0;
  /// Asks for an early end of a piece that was submitted. It completes as any other, done or not.
  virtual void cancel(std::uint64_t tag) = 0;
  /// Waits for a completion, for `most_ns` at most. It may return earlier for any reason. Any thread may call it, while
  /// another one makes any call but `leave`, if the port is used by any thread.
  virtual void wait(std::uint64_t most_ns) = 0;
  /// Called while nothing is in flight, as `collect` is while something is: lets go of memory that the medium was told
  /// to forget.
  virtual void keep_up() {}
  /// The last call of the port's thread. Nothing is in flight.
  virtual void leave() {}
};

/// The bytes of one drive. Thread-safe.
class medium {
 public:
  virtual ~medium() = default;
  /// The medium must outlive the port. Throws `operation_failed`.
  virtual std::unique_ptr<medium_port> open(port_use use) = 0;
  /// Commands of a client may name this memory, until it is removed. Pieces are faster on memory that the medium knows,
  /// and may name any other. Pages that do not exist yet may be made. `owner` only distinguishes clients.
  virtual void add_memory(void const* owner, void const* address, std::size_t bytes) {
    static_cast<void>(owner);
    static_cast<void>(address);
    static_cast<void>(bytes);
  }
  /// Undoes one `add_memory` with the same arguments, or does nothing. No piece may name the range. Ports may hold it
  /// until their next `keep_up`, but never touch what lies at its address later.
  virtual void remove_memory(void const* owner, void const* address, std::size_t bytes) noexcept {
    static_cast<void>(owner);
    static_cast<void>(address);
    static_cast<void>(bytes);
  }
  /// The same for all memory of an owner.
  virtual void remove_memory(void const* owner) noexcept { static_cast<void>(owner); }
};

}  // namespace forebay::emulator
