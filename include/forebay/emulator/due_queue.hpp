// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands of one submission queue that were fetched and not completed, by due time. Fixed capacity, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/emulator/timing_model.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

struct pending_command {
  static constexpr std::uint16_t not_held = 0xffff;

  std::uint64_t due_ps = 0;
  std::uint32_t order = 0;   ///< set by `due_queue::push`: equal due times keep the order in which they came
  std::uint32_t result = 0;  ///< CQE dword 0; while `waits_for_sync`, the ticket
  std::uint16_t command_id = 0;
  std::uint16_t status_field = 0;
  std::uint16_t held = not_held;  ///< index of the kept submission entry of a command that moves its data late
  bool waits_for_sync = false;    ///< a Flush that needs the host to write the backing file first
  bool timed = true;              ///< whether its lateness says something about the engine
};

/// A priority queue that is a plain ring as long as due times come in order, as they do on a busy drive, with a binary
/// heap for those that do not. Owned by one unit.
class due_queue {
 public:
  /// Bytes of storage for `capacity` (a power of two) commands.
  static constexpr std::size_t storage_bytes(std::uint32_t capacity) {
    return 2 * std::size_t{capacity} * sizeof(pending_command);
  }

  due_queue() = default;
  due_queue(void* storage, std::uint32_t capacity)
      : ring_(static_cast<pending_command*>(storage)), heap_(ring_ + capacity), capacity_(capacity) {}

  FOREBAY_DEVICE std::uint32_t size() const { return ring_tail_ - ring_head_ + heap_size_; }
  FOREBAY_DEVICE std::uint32_t free() const { return capacity_ - size(); }
  FOREBAY_DEVICE bool empty() const { return size() == 0; }

  /// When the next command is due; `never_ps` when there is none that ever will be.
  FOREBAY_DEVICE std::uint64_t next_due_ps() const {
    std::uint64_t const ring_due = ring_head_ != ring_tail_ ? ring(ring_head_).due_ps : never_ps;
    std::uint64_t const heap_due = heap_size_ != 0 ? heap_[0].due_ps : never_ps;
    return ring_due < heap_due ? ring_due : heap_due;
  }

  /// The caller checked `free()`.
  FOREBAY_DEVICE void push(pending_command command) {
    command.order = next_order_++;
    if (command.due_ps != never_ps && (ring_head_ == ring_tail_ || ring(ring_tail_ - 1).due_ps <= command.due_ps)) {
      ring(ring_tail_++) = command;
      return;
    }
    sift_up(heap_size_++, command);
  }

  /// Takes out the command that is due first; the queue is not empty.
  FOREBAY_DEVICE pending_command pop() {
    if (heap_size_ == 0 || (ring_head_ != ring_tail_ && !before(heap_[0], ring(ring_head_)))) {
      return ring(ring_head_++);
    }
    pending_command const first = heap_[0];
    if (--heap_size_ != 0) sift_down(0, heap_[heap_size_]);
    return first;
  }

  /// Takes out the command with `command_id`, if it is there.
  FOREBAY_DEVICE bool take(std::uint16_t command_id, pending_command& taken) {
    for (std::uint32_t i = ring_head_; i != ring_tail_; ++i) {
      if (ring(i).command_id != command_id) continue;
      taken = ring(i);
      for (; i + 1 != ring_tail_; ++i) ring(i) = ring(i + 1);
      --ring_tail_;
      return true;
    }
    for (std::uint32_t i = 0; i < heap_size_; ++i) {
      if (heap_[i].command_id != command_id) continue;
      taken = heap_[i];
      if (i != --heap_size_) {
        sift_down(i, heap_[heap_size_]);
        sift_up(i, heap_[i]);
      }
      return true;
    }
    return false;
  }

 private:
  FOREBAY_DEVICE static bool before(pending_command const& a, pending_command const& b) {
    return a.due_ps < b.due_ps || (a.due_ps == b.due_ps && static_cast<std::int32_t>(a.order - b.order) < 0);
  }
  FOREBAY_DEVICE pending_command& ring(std::uint32_t index) const { return ring_[index & (capacity_ - 1)]; }

  FOREBAY_DEVICE void sift_up(std::uint32_t hole, pending_command command) {
    while (hole != 0 && before(command, heap_[(hole - 1) / 2])) {
      heap_[hole] = heap_[(hole - 1) / 2];
      hole = (hole - 1) / 2;
    }
    heap_[hole] = command;
  }
  FOREBAY_DEVICE void sift_down(std::uint32_t hole, pending_command command) {
    for (;;) {
      std::uint32_t child = 2 * hole + 1;
      if (child >= heap_size_) break;
      if (child + 1 < heap_size_ && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], command)) break;
      heap_[hole] = heap_[child];
      hole = child;
    }
    heap_[hole] = command;
  }

  pending_command* ring_ = nullptr;
  pending_command* heap_ = nullptr;
  std::uint32_t capacity_ = 0;
  std::uint32_t ring_head_ = 0;
  std::uint32_t ring_tail_ = 0;
  std::uint32_t heap_size_ = 0;
  std::uint32_t next_order_ = 0;
};

}  // namespace forebay::emulator
