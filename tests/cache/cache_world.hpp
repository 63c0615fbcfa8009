// SPDX-License-Identifier: Apache-2.0
//! \file
//! The surroundings of a schedule of the page directory: emulated drives that delay, reorder and fail, queues, and a
//! cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cache_machines.hpp"
#include "cache_shapes.hpp"
#include "forebay/cached_storage_ref.hpp"
#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/fingerprints.hpp"
#include "forebay/detail/cache/host_pool.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/queue/slot_pool.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/memory.hpp"
#include "support/queue_schedule.hpp"
#include "support/recovery_agent.hpp"
#include "support/traits.hpp"

namespace forebay::test {

/// Drives with pages that identify themselves, and a cache over them. Each 8-byte word of the drives is written by one
/// lane only.
template <class Policy, class Pools, class Rules>
class cache_world {
 public:
  using client = cache_client;

 protected:
  using agent_machine = simt::fiber;
  using storage_type = storage_ref<client, test::traits<Policy, true, Pools, queue_rules, Rules>>;
  using cache_type = typename storage_type::cache_type;
  using page_type = typename storage_type::page_type;
  static constexpr std::uint32_t block_bytes = 64;
  static constexpr std::uint32_t page_shift = 8;
  static constexpr std::uint32_t page_bytes = 1u << page_shift;
  static constexpr std::uint32_t words_per_page = page_bytes / 8;
  static constexpr std::uint32_t pages_per_request = 3;  ///< of asynchronous reads, at most
  /// The first ones are for asynchronous requests, the others are lent.
  static constexpr std::uint32_t buffers_per_lane = pages_per_request + 4;

  explicit cache_world(cache_shape const& shape)
      : shape_(shape), lane_count_(shape.lanes.blocks * shape.lanes.threads_per_block) {
    build();
  }

  std::uint32_t queue_count() const { return shape_.drives * shape_.queues_per_drive; }
  std::uint32_t own_frame_count() const { return shape_.sets * cache_ways + shape_.overflow; }
  std::uint32_t frame_count() const { return own_frame_count() + shape_.users; }
  static std::uint64_t encode(std::uint64_t page, std::uint32_t word, std::uint32_t number) {
    return (page + 1) << 40 | std::uint64_t{word} << 32 | number;
  }
  std::uint32_t owner_of(std::uint64_t page, std::uint32_t word) const {
    // If there are more lanes than a page has words, each page serves some of the lanes.
    std::uint32_t const groups = std::max(1u, lane_count_ / words_per_page);
    auto const p = static_cast<std::uint32_t>(page);
    return (is_whole(page) ? p : p % groups * words_per_page + word) % lane_count_;
  }
  bool is_whole(std::uint64_t page) const { return page + shape_.whole_pages >= shape_.pages; }
  std::size_t index_of(std::uint64_t page, std::uint32_t word) const { return page * words_per_page + word; }
  std::uint32_t page_count() const { return shape_.pages; }

  /// `pages` of the buffers, from the `index`-th on.
  buffer_ref buffer(std::uint32_t index, std::uint32_t pages) const {
    std::byte* const at = buffers_ + std::size_t{index} * page_bytes;
    return buffer_ref(at, std::size_t{pages} * page_bytes, reinterpret_cast<std::uint64_t>(at));
  }

  storage_type storage() { return storage_type(cache(), 0, layout_.size_bytes, true); }
  cache_type cache() {
    return cache_type(&state_, state_.words, state_.fingerprints, state_.frame_memory.data(), state_.mapping,
                      page_shift);
  }
  std::uint64_t* word_in(std::uint32_t frame, std::uint32_t word) {
    return reinterpret_cast<std::uint64_t*>(cache().frame_data(frame)) + word;
  }
  cache_set<Policy>* sets() { return reinterpret_cast<cache_set<Policy>*>(state_.sets); }

  std::uint64_t on_drive(std::uint64_t page, std::uint32_t word) const {
    storage_layout::piece const p = layout_.piece_at((page << page_shift) + word * 8, 8);
    std::uint64_t value = 0;
    std::memcpy(&value, media_[p.drive].data() + p.byte_on_drive, 8);
    return value;
  }
  std::byte const* page_on_drive(std::uint64_t page) const {
    storage_layout::piece const p = layout_.piece_at(page << page_shift, 8);
    return media_[p.drive].data() + p.byte_on_drive;
  }
  bool is_in_frame(void const* address) const {
    for (std::vector<std::byte> const& bytes : media_) {
      if (address >= bytes.data() && address < bytes.data() + bytes.size()) return true;
    }
    std::byte const* const frames = state_.frame_memory.data();
    return (address >= frames && address < frames + state_.frame_memory.size_bytes()) ||
           (address >= buffers_ && address < buffers_ + std::size_t{lane_count_} * buffers_per_lane * page_bytes);
  }
  std::uint64_t commands_of(std::uint32_t pair) const {
    auto const tail = ring_position::from_word(queues_->state()->pairs[pair].sq_tail);
    return std::uint64_t{tail.lap} * shape_.entries + tail.slot;
  }

  void serve(std::uint32_t d, std::uint32_t unit) {
    auto& engine = *engines_[d];
    while (!agent_machine::stopping()) {
      if (engine.step(unit)) continue;
      (void)agent_machine::wait_until([&] { return engine.step(unit) || agent_machine::stopping(); },
                                      engine.next_due_ns(unit));
    }
  }

  recovery_agent::place place_of(std::uint32_t pair) {
    std::uint32_t const drive = pair / shape_.queues_per_drive;
    std::uint32_t alive = 0;
    for (std::uint32_t q = 0; q < shape_.queues_per_drive; ++q) {
      std::uint32_t const other = drive * shape_.queues_per_drive + q;
      // Relaxed: the recovery agent, which asks, is the only one that writes it.
      auto& dead = queues_->state()->pairs[other].dead;
      alive += other != pair && simt::atomic<agent_machine, simt::scope::system>(dead).load(simt::order::relaxed) == 0;
    }
    return {engines_[drive].get(), pair % shape_.queues_per_drive, alive != 0};
  }

  cache_shape const shape_;
  std::uint32_t const lane_count_;
  storage_layout layout_;
  std::unique_ptr<detail::arena> memory_;
  std::unique_ptr<emulator::dma_regions> regions_;
  std::vector<queue_pair_rings> rings_;
  std::unique_ptr<io_queues> queues_;
  std::vector<std::vector<std::byte>> media_;
  std::vector<std::unique_ptr<emulator::engine<cache_drive, agent_machine>>> engines_;
  cache_state state_;
  std::byte* buffers_ = nullptr;

 private:
  std::uint64_t pages_per_drive() const { return (shape_.pages + shape_.drives - 1) / shape_.drives; }

  void build() {
    std::size_t const frame_bytes = std::size_t{own_frame_count()} * page_bytes;
    std::size_t const other_pages = lane_count_ * buffers_per_lane +
                                    std::size_t{shape_.sets} * shape_.host_groups * cache_ways + shape_.staging + 2;
    memory_ = std::make_unique<detail::arena>(frame_bytes + other_pages * (page_bytes + 64) +
                                              queue_count() * (shape_.entries * 256 + 4096) + frame_count() * 64 +
                                              shape_.sets * (sizeof(cache_set<Policy>) + 256) +
                                              cache_core::counter_stripes * sizeof(cache_counters) + 131072);
    regions_ = std::make_unique<emulator::dma_regions>(memory::host(), 8);
    regions_->add(memory_->data(), memory_->size_bytes());

    layout_.drive_count = shape_.drives;
    layout_.pairs_per_drive = shape_.queues_per_drive;
    layout_.block_shift = 6;
    layout_.stripe_bytes = page_bytes;
    layout_.command_bytes_max = page_bytes;
    layout_.size_bytes = pages_per_drive() * shape_.drives * page_bytes;

    auto* const doorbells = memory_->make<std::uint32_t>(queue_count() * 64, 128);
    for (std::uint32_t i = 0; i < queue_count(); ++i) {
      queue_pair_rings rings;
      rings.sq_entries = rings.cq_entries = shape_.entries;
      rings.sq = memory_->make<nvme::submission_entry>(rings.sq_entries, 128);
      rings.cq = memory_->make<nvme::completion_entry>(rings.cq_entries, 128);
      rings.sq_doorbell = doorbells + i * 64;
      rings.cq_doorbell = doorbells + i * 64 + 32;
      rings.queue_id = i + 1;
      rings_.push_back(rings);
    }
    io_queues_options options;
    options.records = 64;
    options.page_bytes = page_bytes;
    options.timeout_ns = options.flush_timeout_ns = shape_.timeout_ns;
    options.mailbox_words = 64;
    queues_ = std::make_unique<io_queues>(rings_, options, *memory_, *memory_);

    for (std::uint32_t d = 0; d < shape_.drives; ++d) build_drive(d);
    build_cache();
  }

  void build_drive(std::uint32_t d) {
    std::vector<std::byte>& bytes = media_.emplace_back(pages_per_drive() * page_bytes);
    for (std::uint64_t p = 0; p < pages_per_drive(); ++p) {
      std::uint64_t const page = layout_.byte_at(d, p * page_bytes) >> page_shift;
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        std::uint64_t const value = encode(page, w, 0);
        std::memcpy(bytes.data() + p * page_bytes + w * 8, &value, 8);
      }
    }
    emulator::engine_options drive;
    drive.units = shape_.units;
    drive.queue_slots = shape_.queues_per_drive;
    drive.page_bytes_min = page_bytes;
    drive.max_transfer_bytes = page_bytes;
    drive.faults = shape_.faults;
    drive.faults.seed += d;
    emulator::media media;
    media.data = bytes.data();
    media.bytes = bytes.size();
    media.block_bytes = block_bytes;
    engines_.push_back(std::make_unique<emulator::engine<cache_drive, agent_machine>>(drive, media));
    for (std::uint32_t q = 0; q < shape_.queues_per_drive; ++q) {
      queue_pair_rings const& rings = rings_[d * shape_.queues_per_drive + q];
      engines_[d]->attach_completion_queue({q, rings.cq, rings.cq_entries, rings.cq_doorbell});
      engines_[d]->attach_submission_queue({.slot = q,
                                            .id = static_cast<std::uint16_t>(q + 1),
                                            .entries = rings.sq,
                                            .size = rings.sq_entries,
                                            .tail_doorbell = rings.sq_doorbell,
                                            .cq_slot = q,
                                            .page_bytes = page_bytes,
                                            .regions = regions_->table()});
    }
  }

  void build_cache() {
    auto* const frames = memory_->make<std::byte>(std::size_t{own_frame_count()} * page_bytes, page_bytes);
    state_.words = memory_->make<std::uint64_t>(frame_count(), 128);
    state_.fingerprints = memory_->make<std::uint64_t>(shape_.sets * fingerprints::words_per_set, 16);
    state_.notes = memory_->make<std::uint32_t>(frame_count());
    state_.frames = frame_count();
    state_.counters = memory_->make<cache_counters>(cache_core::counter_stripes, 128);
    state_.sets = reinterpret_cast<std::byte*>(memory_->make<cache_set<Policy>>(shape_.sets, 128));
    state_.set_bytes = sizeof(cache_set<Policy>);
    state_.mapping = page_sets(shape_.sets);
    state_.page_shift = page_shift;
    state_.overflow_count = shape_.overflow;
    state_.user_count = shape_.users;
    std::uint32_t const outside = shape_.overflow + shape_.users;
    state_.outside = memory_->make<outside_frame>(outside + 1);
    for (std::uint32_t k = 0; k < outside; ++k) state_.outside[k].page = outside_frame::no_page;
    state_.users = memory_->make<user_frame>(shape_.users + 1);
    state_.free_overflow = full_pool(shape_.overflow);
    state_.free_users = full_pool(shape_.users);
    if constexpr (Pools::has_host) {
      std::size_t const groups = std::size_t{shape_.sets} * shape_.host_groups;
      using policy_state = typename Pools::host_policy::set_state;
      state_.host.groups = shape_.host_groups;
      state_.host.words = memory_->make<std::uint32_t>(groups * cache_ways);
      state_.host.policy_states = reinterpret_cast<std::byte*>(memory_->make<policy_state>(groups, 16));
      state_.host.policy_state_bytes = sizeof(policy_state);
      state_.host.frames = memory_->make<std::byte>(groups * cache_ways * page_bytes, page_bytes);
    }
    buffers_ = memory_->make<std::byte>(std::size_t{lane_count_} * buffers_per_lane * page_bytes, page_bytes);
    // Where frames are staged, drives do not find them.
    std::uint64_t const bus_address = Pools::frames::staged ? 0 : reinterpret_cast<std::uint64_t>(frames);
    state_.frame_memory = buffer_ref(frames, std::size_t{own_frame_count()} * page_bytes, bus_address);
    if constexpr (Pools::frames::staged) {
      auto* const pages = memory_->make<std::byte>(std::size_t{shape_.staging} * page_bytes, page_bytes);
      state_.staging.pages =
          buffer_ref(pages, std::size_t{shape_.staging} * page_bytes, reinterpret_cast<std::uint64_t>(pages));
      state_.staging.free = full_pool(shape_.staging);
      state_.staging.slots = memory_->make<std::uint32_t>(own_frame_count());
      state_.staging.frames = frames;
      state_.staging.frame_count = own_frame_count();
      state_.staging.page_shift = page_shift;
    }
    state_.layout = layout_;
    state_.queues = queues_->state();
  }

  slot_pool full_pool(std::uint32_t capacity) {
    slot_pool pool;
    pool.word_count = slot_pool::words_for(capacity);
    pool.words = memory_->make<std::uint32_t>(pool.word_count + 1);
    for (std::uint32_t w = 0; w < pool.word_count; ++w) pool.words[w] = slot_pool::all_free(capacity, w);
    return pool;
  }
};

}  // namespace forebay::test
