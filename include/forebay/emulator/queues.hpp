// SPDX-License-Identifier: Apache-2.0
//! \file
//! The engine's side of submission and completion queues.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/emulator/due_queue.hpp"
#include "forebay/nvme/command.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

/// A completion queue as the client made it. Units that post to it take turns by a try-lock, which none waits for.
class alignas(128) completion_queue {
 public:
  FOREBAY_DEVICE void open(nvme::completion_entry* entries, std::uint32_t size, std::uint32_t* head_doorbell) {
    entries_ = entries;
    size_ = size;
    head_doorbell_ = head_doorbell;
    tail_ = 0;
    head_ = 0;
    phase_ = 1;
  }
  FOREBAY_DEVICE void close() { size_ = 0; }
  FOREBAY_DEVICE bool is_open() const { return size_ != 0; }
  FOREBAY_DEVICE std::uint32_t size() const { return size_; }

  template <class M>
  [[nodiscard]] FOREBAY_DEVICE bool try_lock() {
    std::uint32_t unlocked = 0;
    // Acquire: pairs with the release in `unlock`, so that tail and phase are the last holder's.
    return simt::atomic<M, simt::scope::device>(lock_).compare_exchange(unlocked, 1, simt::order::acquire);
  }
  template <class M>
  FOREBAY_DEVICE void unlock() {
    // Release: pairs with the acquire in `try_lock`.
    simt::atomic<M, simt::scope::device>(lock_).store(0, simt::order::release);
  }

  /// Entries that may be written now. The caller holds the lock. False for a doorbell value that cannot be right; such
  /// a value is ignored.
  template <class M>
  FOREBAY_DEVICE bool free_entries(std::uint32_t& free) {
    // Acquire: pairs with the client's release before it rings the head doorbell, so that an entry is not written
    // before the client has read what it held.
    std::uint32_t const head = simt::atomic<M, simt::scope::system>(*head_doorbell_).load(simt::order::acquire);
    bool const valid = head < size_ && distance(head_, head) <= distance(head_, tail_);
    if (valid) head_ = head;
    free = size_ - 1 - distance(head_, tail_);
    return valid;
  }

  /// Writes one entry. The caller holds the lock and knows of a free entry.
  template <class M>
  FOREBAY_DEVICE void post(std::uint32_t result, std::uint32_t dw2, std::uint16_t command_id,
                           std::uint16_t status_field) {
    nvme::completion_entry& entry = entries_[tail_];
    M::st(&entry.dw0, result);
    M::st(&entry.dw1, 0);
    M::st(&entry.dw2, dw2);
    // Release: pairs with the client's acquire of the phase tag; data and dwords 0 to 2 are visible before it.
    simt::atomic<M, simt::scope::system>(entry.dw3).store(
        nvme::completion_entry::make_dw3(command_id, phase_, status_field), simt::order::release);
    if (++tail_ == size_) {
      tail_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  FOREBAY_DEVICE std::uint32_t distance(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + size_ - from;
  }

  std::uint32_t lock_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t phase_ = 1;
  std::uint32_t* head_doorbell_ = nullptr;
  nvme::completion_entry* entries_ = nullptr;
};

/// What the host asks of the unit that owns a submission queue, and the answer, in one word.
namespace queue_request {
inline constexpr std::uint32_t none = 0;
inline constexpr std::uint32_t detach = 1;           ///< complete what is outstanding as aborted, then let go
inline constexpr std::uint32_t detach_silently = 2;  ///< forget what is outstanding (controller reset), then let go
inline constexpr std::uint32_t done = 3;             ///< answer; to an abort: no such command
inline constexpr std::uint32_t done_found = 4;       ///< answer to an abort: the command completes as aborted
inline constexpr std::uint32_t abort_flag = std::uint32_t{1} << 31;  ///< with the command id in bits 15:0
}  // namespace queue_request

/// A submission queue as the client made it, and its commands in flight. All but `request` is the owning unit's while
/// the queue is attached.
struct alignas(128) submission_queue {
  std::uint32_t request = queue_request::none;
  std::uint32_t size = 0;
  std::uint32_t head = 0;       ///< next entry to fetch; SQHD of the completions posted now
  std::uint32_t seen_tail = 0;  ///< entries before it were there at the poll that set `arrival_ps`
  std::uint32_t bad_tail = 0;   ///< the last invalid doorbell value counted
  std::uint16_t id = 0;
  std::uint16_t cq_id = 0;
  nvme::submission_entry const* entries = nullptr;
  std::uint32_t* tail_doorbell = nullptr;
  bool blocked = false;                   ///< the completion queue was full when commands were due
  std::uint64_t last_poll_ps = never_ps;  ///< `never_ps`: not polled yet
  std::uint64_t arrival_ps = 0;
  std::uint64_t fetched = 0;  ///< commands fetched in the life of the queue
  due_queue pending;

  // Entries of commands that move their data late (`fault_plan::late_data`).
  nvme::submission_entry* held = nullptr;
  std::uint16_t* held_free = nullptr;
  std::uint32_t held_free_count = 0;
  std::uint32_t held_used = 0;

  /// Bytes of storage for `capacity` commands in flight.
  static constexpr std::size_t storage_bytes(std::uint32_t capacity) {
    return capacity * (sizeof(nvme::submission_entry) + sizeof(std::uint16_t)) + due_queue::storage_bytes(capacity);
  }
  void open(void* storage, std::uint32_t capacity) {
    held = static_cast<nvme::submission_entry*>(storage);
    void* const queue = held + capacity;
    pending = due_queue(queue, capacity);
    held_free = reinterpret_cast<std::uint16_t*>(static_cast<std::byte*>(queue) + due_queue::storage_bytes(capacity));
    held_free_count = held_used = 0;
    head = seen_tail = bad_tail = 0;
    blocked = false;
    last_poll_ps = never_ps;
    fetched = 0;
    request = queue_request::none;
  }

  /// Keeps a copy of `entry`; there is room for every command in flight.
  FOREBAY_DEVICE std::uint16_t hold(nvme::submission_entry const& entry) {
    std::uint16_t const index =
        held_free_count != 0 ? held_free[--held_free_count] : static_cast<std::uint16_t>(held_used++);
    held[index] = entry;
    return index;
  }
  FOREBAY_DEVICE void release(std::uint16_t index) { held_free[held_free_count++] = index; }
};

}  // namespace forebay::emulator
