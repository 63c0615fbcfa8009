// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/io_queues.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "forebay/detail/memory/peek.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay {
namespace {

/// Lays objects out in one allocation and keeps a host image of it, because the allocation may be a GPU's.
class image {
 public:
  template <class T>
  std::size_t reserve(std::size_t count) {
    constexpr std::size_t line_bytes = 128;
    bytes_ = (bytes_ + line_bytes - 1) / line_bytes * line_bytes;
    std::size_t const at = bytes_;
    bytes_ += count * sizeof(T);
    return at;
  }
  void place(memory::resource& where) {
    target_ = memory::allocation(where, bytes_, 128);
    host_.resize(bytes_);
  }
  template <class T>
  T* target(std::size_t at) const {
    return reinterpret_cast<T*>(target_.as<std::byte>() + at);
  }
  template <class T>
  void put(std::size_t at, T const& value) {
    std::memcpy(host_.data() + at, &value, sizeof value);
  }
  memory::allocation finish() {
    target_.from().copy_in(target_.data(), host_.data(), bytes_);
    return std::move(target_);
  }

 private:
  std::size_t bytes_ = 0;
  memory::allocation target_;
  std::vector<std::byte> host_;
};

void refuse_bad_ring(char const* field, std::uint32_t entries, std::uint64_t first_ticket) {
  if (entries < 2 || entries > 65536) {
    throw refused_input(field, std::to_string(entries), "must be 2 to 65536: the entries of a ring");
  }
  if (first_ticket % (2ull * entries) != 0) {
    throw refused_input("first_ticket", std::to_string(first_ticket),
                        "give a multiple of twice the " + std::string(field) + ", " + std::to_string(2ull * entries));
  }
}

struct pool_layout {
  std::uint32_t capacity = 0;
  std::size_t at = 0;

  slot_pool place(image& memory) const {
    slot_pool const pool{memory.target<std::uint32_t>(at), slot_pool::words_for(capacity)};
    for (std::uint32_t w = 0; w < pool.word_count; ++w) {
      memory.put(at + w * sizeof(std::uint32_t), slot_pool::all_free(capacity, w));
    }
    return pool;
  }
};

pool_layout reserve_pool(image& memory, std::uint32_t capacity) {
  return {capacity, memory.reserve<std::uint32_t>(slot_pool::words_for(capacity))};
}

}  // namespace

io_queues::io_queues(std::span<queue_pair_rings const> pairs, io_queues_options const& options,
                     memory::resource& state_memory, memory::resource& shared_memory)
    : pair_count_(static_cast<std::uint32_t>(pairs.size())), record_count_(options.records) {
  if (pairs.empty() || pairs.size() > 65535) {
    throw refused_input("queues", std::to_string(pairs.size()), "give 1 to 65535 queue pairs");
  }
  if (options.records == 0 || options.records >= 1u << 30) {
    throw refused_input("records", std::to_string(options.records), "give 1 to 2^30 - 1");
  }
  if (options.page_bytes < 16 || (options.page_bytes & (options.page_bytes - 1)) != 0) {
    throw refused_input("page_bytes", std::to_string(options.page_bytes), "give a power of two, 16 or more");
  }
  if (options.prp_pages.size_bytes() % options.page_bytes != 0 ||
      (options.prp_pages.size_bytes() != 0 && !options.prp_pages.starts_on_page(options.page_bytes))) {
    throw refused_input("prp_pages", std::to_string(options.prp_pages.size_bytes()) + " bytes",
                        "give whole pages of " + std::to_string(options.page_bytes) + " bytes");
  }
  if (options.mailbox_words == 0) {
    throw refused_input("mailbox_words", "0", "give 1 or more: without a mailbox no command is ever recovered");
  }
  for (queue_pair_rings const& rings : pairs) {
    refuse_bad_ring("sq_entries", rings.sq_entries, options.first_ticket);
    refuse_bad_ring("cq_entries", rings.cq_entries, options.first_ticket);
  }
  auto const prp_page_count = static_cast<std::uint32_t>(options.prp_pages.size_bytes() / options.page_bytes);

  struct pair_layout {
    std::size_t published, commands, lent_pages, free_ids;
  };
  image memory;
  std::size_t const state_at = memory.reserve<io_queues_state>(1);
  std::size_t const pairs_at = memory.reserve<queue_pair_state>(pairs.size());
  std::size_t const records_at = memory.reserve<completion_record>(options.records);
  pool_layout const free_records = reserve_pool(memory, options.records);
  pool_layout const free_pages = reserve_pool(memory, prp_page_count);
  std::vector<pair_layout> layouts;
  for (queue_pair_rings const& rings : pairs) {
    layouts.push_back({memory.reserve<std::uint32_t>(rings.sq_entries),
                       memory.reserve<command_slot>(rings.cq_entries - 1),
                       memory.reserve<std::uint32_t>(rings.cq_entries - 1),
                       memory.reserve<std::uint16_t>(std::bit_ceil(rings.cq_entries - 1))});
  }
  memory.place(state_memory);
  mailbox_memory_ = memory::allocation(shared_memory, options.mailbox_words * sizeof(std::uint64_t), 128);
  mailbox_ = {mailbox_memory_.as<std::uint64_t>(), options.mailbox_words};

  for (std::size_t i = 0; i < pairs.size(); ++i) {
    queue_pair_rings const& rings = pairs[i];
    queue_pair_state pair;
    pair.sq = rings.sq;
    pair.cq = rings.cq;
    pair.sq_doorbell = rings.sq_doorbell;
    pair.cq_doorbell = rings.cq_doorbell;
    pair.published = memory.target<std::uint32_t>(layouts[i].published);
    pair.commands = memory.target<command_slot>(layouts[i].commands);
    commands_.push_back(pair.commands);
    pair.lent_pages = memory.target<std::uint32_t>(layouts[i].lent_pages);
    pair.sq_entries = rings.sq_entries;
    pair.cq_entries = rings.cq_entries;
    // CQ entries less one, so that the controller always has room for every completion (Q2).
    pair.ids = rings.cq_entries - 1;
    pair.free_ids = memory.target<std::uint16_t>(layouts[i].free_ids);
    pair.free_ids_mask = std::bit_ceil(pair.ids) - 1;
    auto const sq = ring_position::of(options.first_ticket, rings.sq_entries);
    auto const cq = ring_position::of(options.first_ticket, rings.cq_entries);
    std::uint32_t const first = sq.count(rings.sq_entries);
    pair.sq_tail = sq.word();
    pair.limit = first + std::min(rings.sq_entries - 1, pair.ids);
    pair.cq_head = cq.word();
    pair.cq_reported = cq.count(rings.cq_entries);
    pair.freed = pair.completed = pair.sq_head = first;
    for (std::uint32_t id = 0; id < pair.ids; ++id) {
      memory.put(layouts[i].free_ids + ((first + id) & pair.free_ids_mask) * sizeof(std::uint16_t),
                 static_cast<std::uint16_t>(id));
    }
    memory.put(pairs_at + i * sizeof(queue_pair_state), pair);
  }

  io_queues_state state;
  state.pairs = memory.target<queue_pair_state>(pairs_at);
  state.pair_count = pair_count_;
  state.records = memory.target<completion_record>(records_at);
  state.free_records = free_records.place(memory);
  records_ = state.records;
  free_records_ = state.free_records;
  state.prp_pages = {options.prp_pages, options.page_bytes, free_pages.place(memory)};
  state.mailbox = mailbox_;
  state.limits = limits_ = {options.timeout_ns, options.flush_timeout_ns};
  if (options.traced_threads != 0) {
    std::size_t const entries_bytes = std::size_t{options.traced_threads} * sizeof(traced_thread);
    std::size_t const words = 1 + std::size_t{options.records};
    waits_memory_ =
        memory::allocation(state_memory, entries_bytes + words * sizeof(std::uint32_t), alignof(traced_thread));
    auto* const after = reinterpret_cast<std::uint32_t*>(waits_memory_.as<std::byte>() + entries_bytes);
    state.waits = {waits_memory_.as<traced_thread>(), options.traced_threads, after};
    state.generations = after + 1;
  }
  memory.put(state_at, state);

  state_ = memory.target<io_queues_state>(state_at);
  pairs_ = memory.target<queue_pair_state>(pairs_at);
  memory_ = memory.finish();
}

bool io_queues::take_recovery_request(recovery_request& request) const {
  return mailbox_.take<simt::native>(request);
}

std::uint64_t io_queues::command_word(std::uint32_t pair_index, std::uint32_t command_id) const {
  return memory::peek(memory_.from(), &commands_[pair_index][command_id].word);
}

void io_queues::set_limits(command_limits const& limits) {
  limits_ = limits;
  memory_.from().copy_in(&state_->limits, &limits, sizeof limits);
}

void io_queues::declare_dead(std::uint32_t pair_index) const {
  // Pairs with the acquire in queue_pair_ref::dead().
  memory::poke(memory_.from(), &pairs_[pair_index].dead, 1u);
}

std::uint32_t io_queues::protocol_errors(std::uint32_t pair_index) const {
  return memory::peek(memory_.from(), &pairs_[pair_index].protocol_errors);
}

}  // namespace forebay
