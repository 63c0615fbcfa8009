// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/driver/io_queue.hpp"

#include "forebay/detail/driver/controller.hpp"

namespace forebay::driver {

io_queue::~io_queue() {
  if (owner_ != nullptr) owner_->release(*this);
}

bool io_queue::live() const {
  return owner_ != nullptr && generation_ != 0 && generation_ == owner_->generation();
}

void io_queue::swap(io_queue& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(generation_, other.generation_);
  std::swap(id_, other.id_);
  std::swap(entries_, other.entries_);
  std::swap(completion_entries_, other.completion_entries_);
  std::swap(priority_, other.priority_);
  submission_buffer_.swap(other.submission_buffer_);
  completion_buffer_.swap(other.completion_buffer_);
  std::swap(submission_ring_, other.submission_ring_);
  std::swap(completion_ring_, other.completion_ring_);
  std::swap(sq_tail_doorbell_, other.sq_tail_doorbell_);
  std::swap(cq_head_doorbell_, other.cq_head_doorbell_);
}

}  // namespace forebay::driver
