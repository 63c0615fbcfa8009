// SPDX-License-Identifier: Apache-2.0
//! \file
//! A ring of io_uring that has clients' memory registered. No files: the kernel lets go of registered files, and of the
//! lock of a drive's file, only some time after the ring was closed or its program killed.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client_memory.hpp"
#include "forebay/detail/emulator/medium.hpp"

namespace forebay::emulator {

/// For one thread at a time; with `port_use::by_one_thread` always the one that makes the first call after the
/// constructor.
class uring {
 public:
  enum class completes : std::uint8_t {
    by_interrupt,
    by_polling,  ///< only reads and writes of a file with O_DIRECT, on a device that has queues for that
  };

  /// Has room for `entries` requests that were prepared and not begun. `memory` may change while the ring exists, and
  /// must outlive it. Throws `operation_failed` if the system refuses a ring.
  uring(unsigned entries, completes how, port_use use, client_memory& memory);
  ~uring();
  uring(uring const&) = delete;
  uring& operator=(uring const&) = delete;

  /// Why this process cannot have a ring of so many entries and what to do about it, or empty.
  static std::string why_not(unsigned entries);
  /// Why this process may not register memory, or empty. That of clients may still be refused, since it is more.
  static std::string why_no_registered_memory();

  /// Room for a request; null if the kernel takes no more at the moment.
  io_uring_sqe* next_entry();
  /// The number by which a request may name registered memory that holds all of [address, address + bytes); -1: none.
  /// Call it before `next_entry`, since it may submit every entry that there is; a later call may change the number.
  int registered(void const* address, std::uint64_t bytes);

  /// Begins what was prepared, and lets the kernel complete what it can.
  void enter();
  /// Whether requests were prepared and not begun.
  bool has_prepared() const { return io_uring_sq_ready(&ring_) != 0; }
  /// The next completion, or null. It is valid until `seen`.
  io_uring_cqe* peek();
  void seen(io_uring_cqe* completion) { io_uring_cqe_seen(&ring_, completion); }
  /// Waits for a completion of what has begun, for `most_ns` at most. With `port_use::by_any_thread`, any thread may
  /// call it while another makes any call.
  void wait(std::uint64_t most_ns) const;
  /// Lets go of memory that clients removed, and registers what they added: not all of it in one call, since commands
  /// wait meanwhile.
  void keep_up();
  /// The last call but the destructor: lets go of all memory.
  void leave();

 private:
  /// A piece of a client's memory that the kernel has pinned.
  struct buffer {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;  ///< of its range
    unsigned place = 0;    ///< in the kernel's table
  };

  void enable();
  void enter_kernel();
  void note_submitter();
  void prod_submitters();
  bool follow(std::vector<client_memory::range> const& ranges, std::uint64_t version);
  int put(std::uint64_t address, std::uint64_t bytes, unsigned place);

  io_uring ring_{};
  bool const polls_;
  bool enabled_ = false;
  /// The kernel does not interrupt threads to complete what they submitted: they do that when they enter it.
  bool cooperative_ = false;
  void const* submitter_ = nullptr;    ///< the thread that submitted last
  unsigned others_in_flight_max_ = 0;  ///< requests of other threads that may be in flight, until that one has more
  client_memory& memory_;
  std::uint64_t version_ = 0;  ///< of `memory_`, which `buffers_` follows
  bool has_table_ = false;
  bool has_left_ = false;
  std::vector<buffer> buffers_;         ///< by address
  std::vector<std::uint64_t> refused_;  ///< ids of ranges that the kernel refused, until there may be room for them
  std::vector<unsigned> free_places_;   ///< in the kernel's table
};

}  // namespace forebay::emulator
