// SPDX-License-Identifier: Apache-2.0
//! \file
//! A pair of I/O queues that the controller knows: where the rings and the doorbells are.
#pragma once

#include <cstdint>

#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/detail/nvme/command.hpp"

namespace forebay::driver {

class controller;

/// The properties of a pair of I/O queues to create.
struct queue_options {
  std::uint32_t entries = 256;           ///< of the submission queue, 2 to `identity().max_queue_entries`
  std::uint32_t completion_entries = 0;  ///< of the completion queue, the same bounds; 0: as many as `entries`
  /// Whether threads of a GPU drive the queue: the doorbells then lie where those threads reach them fastest.
  bool driven_by_gpu = false;
  /// The same of the rings; see `dma_space::allocate_for_gpu`.
  bool rings_on_gpu = false;
  /// Used only if the controller arbitrates by `controller_options::priorities`.
  nvme::queue_priority priority = nvme::queue_priority::medium;
  /// Rings in memory of the caller's. They are mapped in the `dma_space`, start on a page, are contiguous on the bus,
  /// are zeroed by the caller before creation and re-creation, and outlive the queue. Null: the queue allocates them.
  nvme::submission_entry* submission_memory = nullptr;
  nvme::completion_entry* completion_memory = nullptr;
};

/// Owns one I/O submission queue, its completion queue, their rings and their id. Move-only; must not outlive its
/// `controller`. The code that drives the queue handles entries and doorbells. This object is not thread-safe, and it
/// shares the memory that it points to with the controller.
class io_queue {
 public:
  io_queue() = default;
  io_queue(io_queue&& other) noexcept { swap(other); }
  io_queue& operator=(io_queue&& other) noexcept {
    io_queue(std::move(other)).swap(*this);
    return *this;
  }
  /// Deletes both queues if the controller still knows them. Memory that a silent controller might write is kept until
  /// the controller is reset or closed.
  ~io_queue();

  std::uint16_t id() const { return id_; }
  std::uint32_t entries() const { return entries_; }
  std::uint32_t completion_entries() const { return completion_entries_; }
  nvme::queue_priority priority() const { return priority_; }
  nvme::submission_entry* submission_ring() const { return submission_ring_; }
  nvme::completion_entry* completion_ring() const { return completion_ring_; }
  /// The words to which new tails and heads are stored, as `register_space::doorbell` gives them.
  std::uint32_t* sq_tail_doorbell() const { return sq_tail_doorbell_; }
  std::uint32_t* cq_head_doorbell() const { return cq_head_doorbell_; }
  /// Whether the controller knows the queue. False once the queue was deleted, and after a controller reset.
  bool live() const;
  void swap(io_queue& other) noexcept;

 private:
  friend class controller;
  controller* owner_ = nullptr;
  std::uint64_t generation_ = 0;
  std::uint16_t id_ = 0;
  std::uint32_t entries_ = 0;
  std::uint32_t completion_entries_ = 0;
  nvme::queue_priority priority_ = nvme::queue_priority::medium;
  dma_buffer submission_buffer_;
  dma_buffer completion_buffer_;
  nvme::submission_entry* submission_ring_ = nullptr;
  nvme::completion_entry* completion_ring_ = nullptr;
  std::uint32_t* sq_tail_doorbell_ = nullptr;
  std::uint32_t* cq_head_doorbell_ = nullptr;
};

}  // namespace forebay::driver
