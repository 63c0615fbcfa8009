// SPDX-License-Identifier: Apache-2.0
#include "admin_queue.hpp"

#include <fmt/core.h>

#include <cstring>

#include "forebay/detail/driver/errors.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::driver {

using simt::native;
using simt::order;
using simt::scope;

admin_queue::admin_queue(register_space& registers, dma_space& dma, std::uint32_t entries,
                         std::uint32_t doorbell_stride)
    : registers_(registers),
      entries_(entries),
      doorbell_stride_(doorbell_stride),
      submission_(dma, entries * sizeof(nvme::submission_entry)),
      completion_(dma, entries * sizeof(nvme::completion_entry)),
      records_(entries - 1) {}

void admin_queue::restart() {
  std::memset(submission_.data(), 0, submission_.size_bytes());
  std::memset(completion_.data(), 0, completion_.size_bytes());
  for (record& r : records_) r = {};
  tail_ = head_ = next_id_ = 0;
  phase_ = 1;
}

std::optional<std::uint16_t> admin_queue::submit(nvme::submission_entry const& entry, dma_buffer* data) {
  for (std::size_t tried = 0; tried < records_.size(); ++tried) {
    auto const id = static_cast<std::uint16_t>(next_id_);
    next_id_ = (next_id_ + 1) % static_cast<std::uint32_t>(records_.size());
    record& r = records_[id];
    if (r.state != state::free) continue;
    r.state = state::in_flight;
    if (data != nullptr) r.data = std::move(*data);
    nvme::submission_entry& slot = submission_.as<nvme::submission_entry>()[tail_];
    slot = entry;
    slot.set_command_id(id);
    tail_ = (tail_ + 1) % entries_;
    // Pairs with the controller's read of the doorbell: a controller that sees the new tail sees the entry.
    native::fence(scope::system, order::release);
    registers_.write32(nvme::registers::sq_tail_doorbell(0, doorbell_stride_), tail_);
    return id;
  }
  return std::nullopt;
}

void admin_queue::poll() {
  auto* const ring = completion_.as<nvme::completion_entry>();
  bool consumed = false;
  for (;;) {
    nvme::completion_entry entry;
    // Acquire: pairs with the controller's write of the phase tag, which it does last, so dw0 to dw2 are the entry's.
    entry.dw3 = simt::atomic<native, scope::system>(ring[head_].dw3).load(order::acquire);
    if (entry.phase() != phase_) break;
    entry.dw0 = ring[head_].dw0;
    entry.dw1 = ring[head_].dw1;
    entry.dw2 = ring[head_].dw2;
    consumed = true;
    if (++head_ == entries_) {
      head_ = 0;
      phase_ ^= 1;
    }
    std::uint16_t const id = entry.command_id();
    if (id >= records_.size() || records_[id].state != state::in_flight) {
      throw controller_failure(
          controller_failure::cause::protocol,
          fmt::format("the controller completed admin command id {} which was not in flight (status {:03x}h)", id,
                      entry.status_field()));
    }
    records_[id].state = state::done;
    records_[id].completion = entry;
  }
  // The controller reads the new head when it has more to post; the entries' loads above are done before the store.
  if (consumed) registers_.write32(nvme::registers::cq_head_doorbell(0, doorbell_stride_), head_);
}

std::optional<nvme::completion_entry> admin_queue::take(std::uint16_t command_id, dma_buffer* data) {
  record& r = records_.at(command_id);
  if (r.state != state::done) return std::nullopt;
  nvme::completion_entry const completion = r.completion;
  if (data != nullptr) *data = std::move(r.data);
  r = {};
  return completion;
}

void admin_queue::leak() noexcept {
  submission_.leak();
  completion_.leak();
  for (record& r : records_) r.data.leak();
}

}  // namespace forebay::driver
