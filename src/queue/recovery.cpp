// SPDX-License-Identifier: Apache-2.0
#include "forebay/queue/recovery.hpp"

#include <algorithm>
#include <utility>

namespace forebay {

recovery::recovery(io_queues& queues, std::vector<member> members) : queues_(queues), members_(std::move(members)) {}

bool recovery::step() {
  recovery_request request;
  if (!queues_.take_recovery_request(request)) return false;
  std::erase_if(asked_before_, [&](recovery_request const& r) { return !queues_.still_in_flight(r); });
  if (!queues_.still_in_flight(request)) return true;

  member const& pair = members_[request.pair_index];
  if (std::find(asked_before_.begin(), asked_before_.end(), request) != asked_before_.end()) {
    delete_queue(request.pair_index);
    return true;
  }
  asked_before_.push_back(request);
  try {
    if (pair.controller->abort(pair.queue->id(), static_cast<std::uint16_t>(request.command_id))) ++count_.aborts;
  } catch (driver::command_error const&) {
    // A refused Abort leaves the command in flight; its waiter will ask again.
  } catch (driver::controller_failure const&) {
    reset_controller(*pair.controller);
  }
  return true;
}

void recovery::delete_queue(std::uint32_t pair_index) {
  member const& pair = members_[pair_index];
  try {
    pair.controller->delete_io_queue_pair(*pair.queue);
  } catch (operation_failed const&) {
    reset_controller(*pair.controller);
    return;
  }
  ++count_.queues_deleted;
  queues_.declare_dead(pair_index);
}

void recovery::reset_controller(driver::controller& controller) {
  try {
    controller.reset();
  } catch (driver::controller_failure const& failure) {
    // Whether a controller that does not answer still writes is unknown, so its commands keep their memory; one that has left
    // the bus cannot write.
    if (failure.why() != driver::controller_failure::cause::removed) return;
  }
  ++count_.controller_resets;
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    if (members_[i].controller == &controller) queues_.declare_dead(i);
  }
}

}  // namespace forebay
