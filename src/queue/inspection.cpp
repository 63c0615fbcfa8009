// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/inspection.hpp"

#include <algorithm>
#include <bit>

#include "forebay/detail/memory/peek.hpp"

namespace forebay {
namespace {

using memory::peek;

queue_pair_look look_at(queue_pair_state const& pair) {
  auto const tail = ring_position::from_word(pair.sq_tail);
  auto const head = ring_position::from_word(pair.cq_head & ~queue_pair_state::taken);
  queue_pair_look look;
  look.sq_entries = pair.sq_entries;
  look.cq_entries = pair.cq_entries;
  look.sq_tail = tail.slot;
  look.sq_rung = static_cast<std::uint32_t>(pair.doorbell >> 32);
  look.sq_head = pair.sq_head_slot;
  look.cq_head = head.slot;
  look.phase = queue_rules::phase(head.lap);
  look.submitted = tail.count(pair.sq_entries);
  look.ended = pair.freed + pair.cancelled;
  look.protocol_errors = pair.protocol_errors;
  look.consuming = (pair.cq_head & queue_pair_state::taken) != 0;
  look.dead = pair.dead != 0;
  return look;
}

/// Finds the entries of the commands. An id is not used again before its command ends. So of the entries that carry an
/// id the youngest is the command's, unless the ring has gone round since.
void find_entries(queue_pair_look& look, std::vector<nvme::submission_entry> const& ring) {
  for (std::uint32_t age = 1; age <= look.sq_entries; ++age) {
    nvme::submission_entry const& entry = ring[(look.sq_tail + look.sq_entries - age) % look.sq_entries];
    for (command_look& command : look.commands) {
      if (command.entry_found || entry.cdw0 >> 16 != command.id) continue;
      command.entry = entry;
      command.entry_found = true;
    }
  }
}

std::uint32_t count_posted(queue_pair_look const& look, std::vector<nvme::completion_entry> const& ring) {
  std::uint32_t posted = 0;
  for (; posted < look.cq_entries; ++posted) {
    std::uint32_t const at = look.cq_head + posted;
    bool const wraps = at >= look.cq_entries;
    std::uint32_t const phase = ring[wraps ? at - look.cq_entries : at].dw3 >> 16 & 1;
    if (phase != (wraps ? look.phase ^ 1 : look.phase)) break;
  }
  return posted;
}

std::vector<queue_pair_state> pairs_of(io_queues const& queues) {
  memory::resource& where = queues.state_memory();
  return peek(where, peek(where, queues.state()).pairs, queues.pair_count());
}

}  // namespace

std::vector<queue_pair_look> look_at_progress(io_queues const& queues) {
  std::vector<queue_pair_look> looks;
  for (queue_pair_state const& pair : pairs_of(queues)) looks.push_back(look_at(pair));
  return looks;
}

queues_look look_at(io_queues const& queues, std::span<memory::resource* const> ring_memory) {
  memory::resource& where = queues.state_memory();
  io_queues_state const state = peek(where, queues.state());
  queues_look out;
  std::vector<queue_pair_state> const pairs = pairs_of(queues);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    queue_pair_state const& pair = pairs[i];
    queue_pair_look look = look_at(pair);
    std::vector<command_slot> const commands = peek(where, pair.commands, pair.ids);
    for (std::uint32_t id = 0; id < pair.ids; ++id) {
      if (commands[id].word == 0) continue;
      command_look command;
      command.id = id;
      command.target = command_slot::target_of(commands[id].word);
      look.commands.push_back(command);
    }
    if (!look.commands.empty()) {
      find_entries(look, peek(*ring_memory[i], pair.sq, pair.sq_entries));
      look.posted = count_posted(look, peek(*ring_memory[i], pair.cq, pair.cq_entries));
    }
    out.pairs.push_back(std::move(look));
  }

  out.record_count = queues.record_count();
  std::vector<completion_record> const records = peek(where, state.records, out.record_count);
  std::vector<std::uint32_t> const free = peek(where, state.free_records.words, state.free_records.word_count);
  for (std::uint32_t r = 0; r < out.record_count; ++r) {
    if ((free[r / 32] >> r % 32 & 1) != 0) continue;
    constexpr std::uint32_t detached = 1u << 31;
    out.records.push_back({r, records[r].outstanding & ~detached, (records[r].outstanding & detached) != 0,
                           status::from_bits(records[r].first_failure)});
  }
  for (std::uint32_t const word : peek(where, state.prp_pages.free.words, state.prp_pages.free.word_count)) {
    out.free_list_pages += static_cast<std::uint32_t>(std::popcount(word));
  }
  return out;
}

waits_look look_at_waits(io_queues const& queues) {
  memory::resource& where = queues.state_memory();
  wait_table const table = peek(where, queues.state()).waits;
  waits_look out;
  if (table.capacity == 0) return out;
  out.traced = true;
  if (where.kind() == memory::kind::device) {
    // One copy for all: each copy costs some ten microseconds.
    out.threads = peek(where, table.threads, table.capacity);
  } else {
    for (std::uint32_t i = 0; i < table.capacity; ++i) {
      if (peek(where, &table.threads[i].name) != 0) out.threads.push_back(peek(where, &table.threads[i]));
    }
  }
  std::erase_if(out.threads, [](traced_thread const& t) { return t.name == 0; });
  out.untraced = peek(where, table.untraced);
  return out;
}

}  // namespace forebay
