// SPDX-License-Identifier: Apache-2.0
#include "storage/raw_queue_pair.hpp"

#include <utility>

#include "storage/queue_group.hpp"

namespace forebay {

raw_queue_pair::parts::parts(std::shared_ptr<void> admitted, std::shared_ptr<detail::opened_drives> of,
                             std::shared_ptr<detail::relay_thread const> its_relay, std::uint32_t drive,
                             driver::queue_options const& options)
    : admission(std::move(admitted)),
      drives(std::move(of)),
      relay(std::move(its_relay)),
      identity((*drives)[drive].controller->identity()),
      queue((*drives)[drive].controller->create_io_queue_pair(options)),
      pair(options.rings_on_gpu ? nullptr : relay->of(drive), detail::rings_of(queue)) {}

raw_queue_pair::raw_queue_pair(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
raw_queue_pair::raw_queue_pair(raw_queue_pair&&) noexcept = default;
raw_queue_pair& raw_queue_pair::operator=(raw_queue_pair&&) noexcept = default;
raw_queue_pair::~raw_queue_pair() = default;
queue_pair_rings const& raw_queue_pair::rings() const {
  return parts_->pair.rings();
}
bool raw_queue_pair::live() const {
  return parts_->queue.live();
}
std::uint32_t raw_queue_pair::nsid() const {
  return parts_->identity.nsid;
}
std::uint32_t raw_queue_pair::block_bytes() const {
  return parts_->identity.block_bytes;
}
std::uint64_t raw_queue_pair::blocks() const {
  return parts_->identity.blocks;
}

}  // namespace forebay
