// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "forebay/error.hpp"

namespace forebay {

recovery::recovery(std::vector<group> groups, options o)
    : options_(std::move(o)), next_look_ns_(options_.clock_ns() + look_interval_ns) {
  for (group& g : groups) groups_.push_back({std::move(g), {}});
}

bool recovery::step() {
  look_for_losses();
  bool any = false;
  for (watched_group& of : groups_) {
    any = take_request(of) || any;
    std::erase_if(of.commands, [&](watched_command const& c) {
      return of.members.queues->command_word(c.pair_index, c.command_id) != c.word;
    });
    // By index: an action on one command may end others, but adds none.
    for (std::size_t i = 0; i < of.commands.size(); ++i) any = act(of, of.commands[i]) || any;
  }
  return any;
}

bool recovery::take_request(watched_group& of) {
  io_queues const& queues = *of.members.queues;
  recovery_request request;
  if (!queues.take_recovery_request(request)) return false;
  std::uint64_t const word = queues.command_word(request.pair_index, request.command_id);
  // It has ended since, and perhaps another command has its id.
  if (word == 0 || command_slot::time_of(word) != request.submitted) return true;
  auto const known = std::find_if(of.commands.begin(), of.commands.end(), [&](watched_command const& c) {
    return c.pair_index == request.pair_index && c.command_id == request.command_id && c.word == word;
  });
  if (known != of.commands.end()) {
    // Without a waiter the completion may lie in the ring, where nobody has fetched it. A waiter that looks at its own
    // deadline asks again a little before the command is due.
    bool const late = options_.clock_ns() + queues.limits().timeout_ns / 2 >= known->due_ns;
    if (known->aborted && late) known->asked_again = true;
    return true;
  }
  // The waiter has made sure that the command is old enough, as far as the recorded time can tell ages apart.
  std::uint64_t const limit_ns = command_slot::limit_ns(word, queues.limits());
  std::uint64_t const wait_ns = limit_ns >> command_slot::time_shift > command_slot::max_age ? limit_ns : 0;
  of.commands.push_back({.pair_index = request.pair_index,
                         .command_id = request.command_id,
                         .word = word,
                         .due_ns = options_.clock_ns() + wait_ns});
  return true;
}

bool recovery::act(watched_group& of, watched_command& command) {
  io_queues const& queues = *of.members.queues;
  if (queues.command_word(command.pair_index, command.command_id) != command.word) return false;
  member const& pair = of.members.members[command.pair_index];
  if (!pair.queue->live()) {
    // Deleted for another of its commands, or lost with its controller. Once is enough: the next thread that polls the
    // pair ends the commands that are in it.
    catch_up(pair);
    queues.declare_dead(command.pair_index);
    return false;
  }
  if (options_.clock_ns() < command.due_ns) return false;
  if (command.aborted) {
    if (!command.asked_again) return false;
    delete_queue(of, command);
    return true;
  }
  command.aborted = true;
  try {
    bool const done = pair.controller->abort(pair.queue->id(), static_cast<std::uint16_t>(command.command_id));
    if (done) ++count_.aborts;
    tell(name_of(of, command) + (done ? ": aborted" : ": the controller does not abort it"));
  } catch (driver::command_error const& refusal) {
    tell(name_of(of, command) + ": the controller refuses to abort it: " + refusal.what());
  } catch (driver::controller_failure const& failure) {
    reset_controller(pair, name_of(of, command) + ": cannot be aborted: " + failure.what());
  }
  command.due_ns = options_.clock_ns() + queues.limits().timeout_ns;
  return true;
}

void recovery::delete_queue(watched_group const& of, watched_command const& command) {
  member const& pair = of.members.members[command.pair_index];
  try {
    pair.controller->delete_io_queue_pair(*pair.queue);
  } catch (operation_failed const& failure) {
    reset_controller(pair, name_of(of, command) + ": its queue cannot be deleted: " + failure.what());
    return;
  }
  ++count_.queues_deleted;
  catch_up(pair);
  of.members.queues->declare_dead(command.pair_index);
  tell(name_of(of, command) + ": did not end after its abort: its queue is deleted");
}

void recovery::reset_controller(member const& of, std::string const& why) {
  tell(why + "; resetting the controller");
  driver::controller& controller = *of.controller;
  bool removed = false;
  try {
    controller.reset();
    ++count_.controller_resets;
    std::erase(gone_, &controller);
  } catch (driver::controller_failure const& failure) {
    removed = failure.why() == driver::controller_failure::cause::removed;
    tell(fmt::format("drive '{}': {}", of.drive, failure.what()));
  } catch (operation_failed const& failure) {
    // The controller came back, but not as the drive that it was; its queues are gone all the same.
    tell(fmt::format("drive '{}': {}", of.drive, failure.what()));
  }
  end_queues(controller, removed);
}

/// Comes before a queue is declared dead: a command that has completed ends so, not as cancelled, and no data is under
/// way any more.
void recovery::catch_up(member const& of) const {
  if (of.relay == nullptr || of.relay->catch_up(simt::native::clock_ns() + relay_limit_ns)) return;
  tell(fmt::format(
      "drive '{}': the relay of its completions did not catch up within {} ms; commands that have completed "
      "may end as cancelled",
      of.drive, relay_limit_ns / 1'000'000));
}

void recovery::end_queues(driver::controller const& of, bool removed) {
  // All pairs of a controller have the same relay, or none.
  for (watched_group const& w : groups_) {
    auto const any = std::find_if(w.members.members.begin(), w.members.members.end(),
                                  [&](member const& m) { return m.controller == &of && m.relay != nullptr; });
    if (any == w.members.members.end()) continue;
    catch_up(*any);
    break;
  }
  for (watched_group const& w : groups_) {
    for (std::uint32_t i = 0; i < w.members.members.size(); ++i) {
      member const& m = w.members.members[i];
      // A controller that still knows a queue may still write, so the commands of that queue keep their memory. A
      // controller that has left the bus cannot write.
      if (m.controller == &of && (removed || !m.queue->live())) w.members.queues->declare_dead(i);
    }
  }
}

void recovery::look_for_losses() {
  if (options_.clock_ns() < next_look_ns_) return;
  next_look_ns_ = options_.clock_ns() + look_interval_ns;
  for (watched_group const& w : groups_) {
    for (member const& m : w.members.members) {
      if (std::find(gone_.begin(), gone_.end(), m.controller) != gone_.end() || !m.controller->has_left()) continue;
      end_queues(*m.controller, true);
      gone_.push_back(m.controller);
      tell(fmt::format("drive '{}': has gone; its commands are cancelled", m.drive));
    }
  }
}

std::string recovery::name_of(watched_group const& of, watched_command const& command) const {
  member const& pair = of.members.members[command.pair_index];
  bool const is_flush = (command.word & command_slot::is_flush) != 0;
  std::uint64_t const limit_ns = command_slot::limit_ns(command.word, of.members.queues->limits());
  return fmt::format("drive '{}': {} {:#x} of queue {}, which did not complete within {} ms", pair.drive,
                     is_flush ? "Flush" : "command", command.command_id, pair.queue->id(), limit_ns / 1'000'000);
}

void recovery::tell(std::string const& event) const {
  if (options_.tell) options_.tell(event);
}

}  // namespace forebay
