// SPDX-License-Identifier: Apache-2.0
#include "support/recovery_agent.hpp"

#include <algorithm>

#include "forebay/detail/simt/fiber.hpp"

namespace forebay::test {

namespace {

using machine = simt::fiber;

bool dead(queue_pair_state& pair) {
  // Relaxed: this thread alone writes it.
  return simt::atomic<machine, simt::scope::system>(pair.dead).load(simt::order::relaxed) != 0;
}

void wait_for_answer(recovery_agent::place const& at) {
  machine::check(
      machine::wait_until([&] { return at.drive->answered(at.sq_slot); }, machine::clock_ns() + 1'000'000'000),
      "the drive does not answer the recovery thread");
}

}  // namespace

void recovery_agent::run() {
  auto const mailbox = queues_.state()->mailbox;
  for (;;) {
    recovery_request request;
    bool found = false;
    (void)machine::wait_until(
        [&] {
          found = mailbox.take<machine>(request);
          return found || machine::stopping();
        },
        simt::no_deadline);
    if (!found) return;
    ++requests_;
    queue_pair_state& pair = queues_.state()->pairs[request.pair_index];
    // Not through the machine: this is advice that the host copies from the device's memory at any time.
    std::uint64_t const word = queues_.command_word(request.pair_index, request.command_id);
    if (word == 0 || command_slot::time_of(word) != request.submitted || dead(pair)) continue;
    machine::check(command_slot::is_overdue(word, machine::clock_ns(), queues_.limits()),
                   "Q7: recovery is asked for a command before its time");
    asked_command const command{request.pair_index, request.command_id, word};
    bool const again = std::find(asked_.begin(), asked_.end(), command) != asked_.end();
    asked_.push_back(command);
    place const at = where_(request.pair_index);
    switch (at.may_be_deleted ? policy_ : recovery_policy::abort) {
      case recovery_policy::none:
        break;
      case recovery_policy::abort:
        // The command has ended, though no thread has looked, and its id may be another command's before the drive
        // hears of it.
        if (std::find(aborted_.begin(), aborted_.end(), command) != aborted_.end()) break;
        aborted_.push_back(command);
        at.drive->begin_abort(at.sq_slot, static_cast<std::uint16_t>(request.command_id));
        wait_for_answer(at);
        break;
      case recovery_policy::abort_then_delete:
        // The first request meets a drive that does not honour Abort.
        if (again) delete_queue(pair, at, true);
        break;
      case recovery_policy::delete_silently:
        delete_queue(pair, at, true);
        break;
      case recovery_policy::delete_with_completions:
        delete_queue(pair, at, false);
        break;
    }
  }
}

void recovery_agent::delete_queue(queue_pair_state& pair, place const& at, bool silently) {
  machine::check(at.drive->begin_detach(at.sq_slot, silently), "the drive takes the request");
  wait_for_answer(at);
  if (relay_ != nullptr) {
    machine::check(relay_->catch_up<machine>(machine::clock_ns() + 1'000'000'000), "the relay of completions is stuck");
  }
  // Release pairs with the acquire in queue_pair_ref::dead().
  simt::atomic<machine, simt::scope::system>(pair.dead).store(1, simt::order::release);
}

}  // namespace forebay::test
