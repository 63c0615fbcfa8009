// SPDX-License-Identifier: Apache-2.0
#include "forebay/queue/recovery.hpp"

#include <algorithm>
#include <utility>

#include "forebay/error.hpp"

namespace forebay {

recovery::recovery(std::vector<group> groups) {
  for (group& g : groups) groups_.push_back({std::move(g), {}});
}

bool recovery::step() {
  bool any = false;
  for (watched& w : groups_) {
    recovery_request request;
    if (!w.members.queues->take_recovery_request(request)) continue;
    any = true;
    answer(w, request);
  }
  return any;
}

void recovery::answer(watched& of, recovery_request const& request) {
  io_queues const& queues = *of.members.queues;
  std::erase_if(of.asked_before, [&](recovery_request const& r) { return !queues.still_in_flight(r); });
  if (!queues.still_in_flight(request)) return;

  member const& pair = of.members.members[request.pair_index];
  if (!pair.queue->live()) {
    // Deleted for another of its commands, or lost with its controller; this command's waiter has not looked since.
    queues.declare_dead(request.pair_index);
    return;
  }
  if (std::find(of.asked_before.begin(), of.asked_before.end(), request) != of.asked_before.end()) {
    delete_queue(of.members, request.pair_index);
    return;
  }
  of.asked_before.push_back(request);
  try {
    if (pair.controller->abort(pair.queue->id(), static_cast<std::uint16_t>(request.command_id))) ++count_.aborts;
  } catch (driver::command_error const&) {
    // A refused Abort leaves the command in flight; its waiter will ask again.
  } catch (driver::controller_failure const&) {
    reset_controller(*pair.controller);
  }
}

void recovery::delete_queue(group const& of, std::uint32_t pair_index) {
  member const& pair = of.members[pair_index];
  try {
    pair.controller->delete_io_queue_pair(*pair.queue);
  } catch (operation_failed const&) {
    reset_controller(*pair.controller);
    return;
  }
  ++count_.queues_deleted;
  of.queues->declare_dead(pair_index);
}

void recovery::reset_controller(driver::controller& controller) {
  bool removed = false;
  try {
    controller.reset();
    ++count_.controller_resets;
  } catch (driver::controller_failure const& failure) {
    removed = failure.why() == driver::controller_failure::cause::removed;
  } catch (operation_failed const&) {
    // It came back, but not as the drive that it was; its queues are gone all the same.
  }
  for (watched const& w : groups_) {
    for (std::uint32_t i = 0; i < w.members.members.size(); ++i) {
      member const& m = w.members.members[i];
      // A controller that still knows a queue may still write, so that queue's commands keep their memory; one that has
      // left the bus cannot write.
      if (m.controller == &controller && (removed || !m.queue->live())) w.members.queues->declare_dead(i);
    }
  }
}

}  // namespace forebay
