// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/medium_commands.hpp"

#include <algorithm>
#include <array>

namespace forebay::emulator {
namespace {

std::uint64_t tag_of(medium_command const& command) {
  return reinterpret_cast<std::uintptr_t>(&command);
}

/// Joins segments that follow each other in memory, which most pages of a buffer do.
void join(std::vector<dma_segment>& segments) {
  std::size_t last = 0;
  for (std::size_t i = 1; i < segments.size(); ++i) {
    if (segments[last].address + segments[last].bytes == segments[i].address) {
      segments[last].bytes += segments[i].bytes;
    } else {
      segments[++last] = segments[i];
    }
  }
  if (!segments.empty()) segments.resize(last + 1);
}

}  // namespace

medium_command& medium_commands::begin(std::uint32_t place, std::uint32_t slot) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<medium_command>());
    // Room for all, so that `recycle` allocates nothing.
    free_.reserve(all_.size());
    free_.push_back(all_.back().get());
  }
  medium_command& command = *free_.back();
  free_.pop_back();
  command.place = place;
  command.slot = slot;
  fresh_.push_back(&command);
  return command;
}

void medium_commands::add_transfer(medium_command& to, std::uint64_t offset_bytes) {
  join(to.segments);
  std::span<dma_segment const> segments = to.segments;
  auto const operation = to.opcode == nvme::io_opcode::write ? medium_operation::write : medium_operation::read;
  if (to.opcode == nvme::io_opcode::compare) {
    to.copy.resize(to.bytes / sizeof to.copy[0]);
    to.copy_segment = {reinterpret_cast<std::uintptr_t>(to.copy.data()), to.bytes};
    segments = {&to.copy_segment, 1};
  }
  while (!segments.empty()) {
    auto const part = segments.first(std::min(segments.size(), max_segments));
    std::uint64_t part_bytes = 0;
    for (dma_segment const& s : part) part_bytes += s.bytes;
    put(to, {.operation = operation, .offset_bytes = offset_bytes, .bytes = part_bytes, .segments = part});
    offset_bytes += part_bytes;
    segments = segments.subspan(part.size());
  }
}

void medium_commands::add(medium_command& to, medium_operation operation, std::uint64_t offset_bytes,
                          std::uint64_t bytes) {
  put(to, {.operation = operation, .offset_bytes = offset_bytes, .bytes = bytes});
}

void medium_commands::put(medium_command& of, medium_piece piece) {
  piece.tag = tag_of(of);
  piece.through = of.through;
  ++of.pieces;
  // Behind those that wait already, so that none of them waits for ever.
  if (!backlog_.empty() || !port_->submit(piece)) backlog_.push_back(piece);
}

void medium_commands::take_completions() {
  for (medium_command* const command : fresh_) {
    if (command->pieces == 0) done_.push_back(command);
  }
  fresh_.clear();
  if (in_flight() == done_.size()) return port_->keep_up();
  std::array<medium_completion, 64> completions;
  // Not all that there are. The device has work left while the client answers these with new commands.
  std::size_t const in_flight_now = in_flight();
  std::size_t const most = std::clamp<std::size_t>(
      std::max(in_flight_now / 4, in_flight_now - std::min(in_flight_now, medium_port::keeps_busy)), 4,
      completions.size());
  for (std::size_t count = most; count == most;) {
    while (!backlog_.empty() && port_->submit(backlog_.front())) backlog_.pop_front();
    count = port_->collect(std::span(completions).first(most));
    for (medium_completion const& c : std::span(completions).first(count)) {
      auto& command = *reinterpret_cast<medium_command*>(static_cast<std::uintptr_t>(c.tag));
      if (command.status_field == 0) command.status_field = c.status_field;
      if (--command.pieces == 0) done_.push_back(&command);
    }
    if (!done_.empty()) break;
  }
}

void medium_commands::cancel(std::uint32_t place, std::uint32_t slot, std::uint64_t target_ps) {
  for (auto const& command : all_) {
    if (command->pieces == 0 || command->place != place || command->slot != slot) continue;
    command->target_ps = target_ps;
    cancel(*command);
  }
}

void medium_commands::cancel(std::uint32_t place) {
  for (auto const& command : all_) {
    if (command->pieces != 0 && command->place == place) cancel(*command);
  }
}

void medium_commands::cancel(medium_command& command) {
  // Pieces that wait here would otherwise begin later.
  command.pieces -= static_cast<std::uint32_t>(
      std::erase_if(backlog_, [tag = tag_of(command)](medium_piece const& piece) { return piece.tag == tag; }));
  if (command.pieces != 0) return port_->cancel(tag_of(command));
  fresh_.push_back(&command);
}

void medium_commands::drain() {
  for (auto const& command : all_) {
    if (command->pieces != 0) cancel(*command);
  }
  while (in_flight() != 0) {
    if (!collect([](medium_command const&) {})) port_->wait(10'000'000);
  }
  port_->leave();
}

std::size_t medium_commands::in_flight(std::uint32_t place) const {
  auto const of_place = [place](auto const& command) { return command->pieces != 0 && command->place == place; };
  return static_cast<std::size_t>(std::count_if(all_.begin(), all_.end(), of_place)) +
         static_cast<std::size_t>(std::count_if(fresh_.begin(), fresh_.end(), [place](medium_command const* command) {
           return command->pieces == 0 && command->place == place;
         }));
}

void medium_commands::recycle(medium_command& command) {
  // The vectors keep their memory, except for that of Compare, which is rare.
  command.segments.clear();
  command.copy = {};
  command.status_field = 0;
  free_.push_back(&command);
}

}  // namespace forebay::emulator
