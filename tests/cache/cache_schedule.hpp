// SPDX-License-Identifier: Apache-2.0
//! \file
//! One schedule of the page directory: seeded programs of lanes that read, write, hold, prefetch, flush and forget
//! pages of emulated drives that delay, reorder and fail, and everything that must hold meanwhile and afterwards.
//!
//! Each 8-byte word of the drives is written by one lane only, with growing numbers; anyone reads it. So whoever reads
//! knows the least that he must see. Some pages are one lane's from end to end, so that they can be overwritten whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cache_shapes.hpp"
#include "forebay/cached_storage_ref.hpp"
#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/queue/drain.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/memory.hpp"
#include "support/queue_schedule.hpp"
#include "support/recovery_agent.hpp"
#include "support/traits.hpp"
#include "view_operations.hpp"

namespace forebay::test {

struct cache_outcome {
  bool ok = true;
  std::string what;
  std::uint64_t operations = 0;
  std::uint64_t steps = 0;
  std::uint64_t commands = 0;
  std::uint64_t failures = 0;  ///< operations that ended with an injected status
  std::uint64_t no_frame = 0;
  std::uint64_t late = 0;       ///< operations whose deadline passed
  std::uint64_t cancelled = 0;  ///< operations whose command recovery ended
  std::uint64_t asked = 0;      ///< commands that recovery was asked for, each counted once
  cache_counters counted{};
};

/// The drive's machine. A page that is written back may be written meanwhile, since it is dirty again then; and the
/// drive may be asked for a page that it is about to be given. So what it reads of a frame or of its media is no race.
struct cache_drive : simt::fiber {
  /// Whether an address lies in either, in the schedule that this OS thread runs.
  static std::function<bool(void const*)>*& in_frame() {
    thread_local std::function<bool(void const*)>* hook = nullptr;
    return hook;
  }
  template <simt::plain T>
  static T ld(T const* address, location where = location::current()) {
    auto* const hook = in_frame();
    return hook != nullptr && (*hook)(address) ? ld_speculative(address, where) : simt::fiber::ld(address, where);
  }
};

/// The lanes' machine: fibers that tell before they sleep.
struct cache_client : simt::fiber {
  /// By lane: whether it is about to read words of frames that others may be writing, which is no race of the cache's.
  /// Of the schedule that this OS thread runs, like all below.
  static std::vector<char>*& reads_along() {
    thread_local std::vector<char>* lanes = nullptr;
    return lanes;
  }
  template <simt::plain T>
  static T ld(T const* address, location where = location::current()) {
    auto* const lanes = reads_along();
    std::uint32_t const me = thread_rank();
    bool const along = lanes != nullptr && me < lanes->size() && (*lanes)[me] != 0;
    return along && (*cache_drive::in_frame())(address) ? ld_speculative(address, where)
                                                        : simt::fiber::ld(address, where);
  }
  /// What others write meanwhile may be among it or not: no race.
  static void copy(void* to, void const* from, std::size_t bytes, location where = location::current()) {
    for (std::size_t at = 0; at < bytes; at += 8) {
      auto const word =
          ld_speculative(reinterpret_cast<std::uint64_t const*>(static_cast<char const*>(from) + at), where);
      st(reinterpret_cast<std::uint64_t*>(static_cast<char*>(to) + at), word, where);
    }
  }
  static std::function<void()>*& about_to_wait() {
    thread_local std::function<void()>* hook = nullptr;
    return hook;
  }
  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    return simt::fiber::wait_until(
        [&] {
          if (predicate()) return true;
          if (auto* const hook = about_to_wait()) (*hook)();
          return false;
        },
        deadline_ns, where);
  }
};

template <class Policy, class Pools, class Rules>
class cache_schedule {
 public:
  using client = cache_client;

 private:
  friend class view_operations<cache_schedule>;
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

 public:
  cache_schedule(cache_shape const& shape, std::uint64_t seed)
      : shape_(shape), seed_(seed), lane_count_(shape.lanes.blocks * shape.lanes.threads_per_block) {
    build();
  }

  cache_outcome run(simt::scheduler& scheduler, simt::memory_model memory) {
    std::function<void()> hook = [this] { about_to_wait(); };
    client::about_to_wait() = &hook;
    client::reads_along() = &reads_along_;
    std::function<bool(void const*)> in_frame = [this](void const* address) { return is_in_frame(address); };
    cache_drive::in_frame() = &in_frame;
    memory_model_ = memory;
    std::vector<simt::agent> agents;
    for (std::uint32_t d = 0; d < shape_.drives; ++d) {
      for (std::uint32_t unit = 0; unit < shape_.units; ++unit) {
        agents.push_back({"drive " + std::to_string(d) + " unit " + std::to_string(unit),
                          [this, d, unit] { serve(d, unit); }, true, 1 + d});
      }
    }
    recovery_agent recovery(*queues_, shape_.recovery, [this](std::uint32_t pair) { return place_of(pair); });
    if (shape_.recovery != recovery_policy::none) {
      agents.push_back({"recovery", [&] { recovery.run(); }, true, 1 + shape_.drives});
    }
    simt::run_options options;
    options.memory = memory;
    options.max_steps = shape_.max_steps;
    options.record = false;
    auto const result = simt::run(options, scheduler, shape_.lanes, [this] { lane(); }, std::move(agents));
    client::about_to_wait() = nullptr;
    client::reads_along() = nullptr;
    cache_drive::in_frame() = nullptr;

    outcome_.ok = result.ok;
    outcome_.what = result.what;
    outcome_.steps = result.steps;
    for (std::uint32_t i = 0; i < queue_count(); ++i) outcome_.commands += commands_of(i);
    add_counters();
    if (outcome_.ok && result.timeouts != 0 && !shape_.has_timeout() && shape_.impatient == 0) {
      outcome_.what = "a wait reached its deadline";
    }
    if (outcome_.ok && outcome_.what.empty()) outcome_.what = asked_wrong(recovery);
    if (outcome_.ok && outcome_.what.empty()) outcome_.what = settled_wrong();
    outcome_.ok = outcome_.what.empty();
    return outcome_;
  }

 private:
  struct held_page {
    std::uint64_t page = 0;
    std::uint32_t frame = 0;
    bool written = false;
  };
  struct lent_page {
    std::uint64_t page = 0;
    std::uint32_t buffer = 0;
    bool written = false;
    page_type shared;
  };
  struct lane_books {
    std::vector<std::uint32_t> written;  // per word of the storage that is the lane's: the last number it wrote
    std::vector<std::uint32_t> seen;     // per word of the storage: the greatest number it has seen
    std::vector<std::uint32_t>
        owed;  // what a flush has to bring to the drives; here, since lanes that fail are dropped
    std::vector<held_page> held;
    std::vector<lent_page> lent;
    std::vector<std::uint32_t> buffers;  // pages of memory that are the lane's to lend
    bool must_not_wait = false;
  };

  // Before the run
  // -----------------------------------------------------------------------------------------------------

  std::uint32_t queue_count() const { return shape_.drives * shape_.queues_per_drive; }
  std::uint32_t own_frame_count() const { return shape_.sets * cache_ways + shape_.overflow; }
  std::uint32_t frame_count() const { return own_frame_count() + shape_.users; }
  std::uint64_t pages_per_drive() const { return (shape_.pages + shape_.drives - 1) / shape_.drives; }
  static std::uint64_t encode(std::uint64_t page, std::uint32_t word, std::uint32_t number) {
    return (page + 1) << 40 | std::uint64_t{word} << 32 | number;
  }
  std::uint32_t owner_of(std::uint64_t page, std::uint32_t word) const {
    // Of more lanes than a page has words, each page serves some.
    std::uint32_t const groups = std::max(1u, lane_count_ / words_per_page);
    auto const p = static_cast<std::uint32_t>(page);
    return (is_whole(page) ? p : p % groups * words_per_page + word) % lane_count_;
  }
  bool is_whole(std::uint64_t page) const { return page + shape_.whole_pages >= shape_.pages; }
  std::size_t index_of(std::uint64_t page, std::uint32_t word) const { return page * words_per_page + word; }

  void build() {
    std::size_t const frame_bytes = std::size_t{own_frame_count()} * page_bytes;
    std::size_t const other_pages =
        lane_count_ * buffers_per_lane + std::size_t{shape_.sets} * shape_.host_groups * cache_ways + 2;
    memory_ = std::make_unique<detail::arena>(frame_bytes + other_pages * (page_bytes + 64) +
                                              queue_count() * (shape_.entries * 256 + 4096) + frame_count() * 64 +
                                              shape_.sets * (sizeof(cache_set<Policy>) + 256) +
                                              cache_core::counter_stripes * sizeof(cache_counters) + 131072);
    regions_ = std::make_unique<emulator::dma_regions>(memory::host(), 8);
    regions_->add(memory_->data(), memory_->bytes());

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
    books_.resize(lane_count_);
    for (lane_books& b : books_) {
      b.written.assign(shape_.pages * words_per_page, 0);
      b.seen.assign(shape_.pages * words_per_page, 0);
      b.owed.assign(shape_.pages * words_per_page, 0);
    }
    for (std::uint32_t lane = 0; lane < lane_count_; ++lane) {
      for (std::uint32_t k = pages_per_request; k < buffers_per_lane; ++k) {
        books_[lane].buffers.push_back(lane * buffers_per_lane + k);
      }
    }
    returned_.assign(shape_.pages * words_per_page, 0);
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
    state_.frame_memory =
        buffer_ref(frames, std::size_t{own_frame_count()} * page_bytes, reinterpret_cast<std::uint64_t>(frames));
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

  // The lanes
  // ----------------------------------------------------------------------------------------------------------

  void lane() {
    std::uint32_t const me = client::thread_rank();
    simt::random_source random(emulator::mix(seed_ ^ 0x3c6ef372fe94f82bu) + me);
    if (shape_.burst) meet();
    for (std::uint32_t i = 0; i < shape_.operations; ++i) {
      operate(me, random, i);
      inspect();
    }
    simt::random_source common(emulator::mix(seed_ ^ 0xa54ff53a5f1d36f1u) + me / 32);
    for (std::uint32_t i = 0; i < shape_.warp_operations; ++i) {
      pin_nothing(me);
      view_operations<cache_schedule>(*this, me, random).together(common);
      if (random.below(4) == 0) operate(me, random, i);
      inspect();
    }
    while (!books_[me].held.empty()) let_go(me, 0);
    end_sharing(me, false);
    close();
  }

  /// All lanes together: what came before in any of them comes before what follows.
  void meet() {
    // Acquire and release pair with those of the other lanes.
    std::uint32_t const before = simt::atomic<agent_machine>(arrived_).fetch_add(1, simt::order::acq_rel);
    std::uint32_t const all = (before / lane_count_ + 1) * lane_count_;
    client::check(
        client::wait_until([&] { return simt::atomic<agent_machine>(arrived_).load(simt::order::acquire) >= all; },
                           simt::no_deadline),
        "meeting");
  }

  /// For a call that names one: none at all where no command takes for ever; else, or where the caller is in a hurry, a
  /// short one.
  std::uint64_t deadline(simt::random_source& random) {
    if (random.below(100) < shape_.impatient) return client::clock_ns() + random.below(20'000);
    return patient_deadline();
  }
  std::uint64_t patient_deadline() { return shape_.has_timeout() ? cache().default_deadline_ns() : simt::no_deadline; }
  /// Calls `attempt`, which has a deadline, until it succeeds.
  template <class Attempt>
  void insist(char const* what, Attempt&& attempt) {
    for (int tries = 0;; ++tries) {
      client::check(tries < 200, what);
      status const outcome = attempt();
      if (outcome.ok()) return;
      // Others may have to do something first.
      if (is_late(outcome)) (void)client::wait_until([] { return false; }, client::clock_ns() + 1'000);
    }
  }

  void operate(std::uint32_t me, simt::random_source& random, std::uint32_t step) {
    lane_books& books = books_[me];
    {
      unobserved const quiet;
      ++outcome_.operations;
    }
    std::uint64_t const page = shape_.burst           ? step % shape_.pages
                               : random.below(2) == 0 ? random.below(std::min(shape_.hot_pages, shape_.pages))
                                                      : random.below(shape_.pages);
    if (!books.held.empty() && random.below(3) == 0)
      let_go(me, random.below(static_cast<std::uint32_t>(books.held.size())));
    std::uint32_t draw = random.below(100);
    auto const is = [&](std::uint32_t percent) {
      bool const hit = draw < percent;
      draw = hit ? 1000 : draw - percent;
      return hit;
    };
    if (is(shape_.try_read)) return look_without_pin(me, page, random);
    if (is(shape_.write)) return hold(me, page, true, random);
    if (is(shape_.prefetch)) return prefetch(me, page);
    if (is(shape_.flush)) return flush(me, random);
    // A page that is lent is pinned until its owner takes it back, who may be waiting for what this lane has pinned.
    if (is(shape_.invalidate)) return (void)cache().invalidate(page, deadline(random));
    if (is(shape_.read_async)) return read_async(me, page, random);
    if (is(shape_.write_async)) return write_async(me, page, random);
    if (is(shape_.views)) {
      pin_nothing(me);
      return view_operations<cache_schedule>(*this, me, random).one(page);
    }
    if constexpr (Pools::has_users) {
      if (is(shape_.share)) return share(me, page, random);
      if (is(shape_.reclaim)) return reclaim(me, random);
    }
    hold(me, page, false, random);
  }

  void read_async(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    constexpr std::uint32_t block_words = block_bytes / 8;
    std::uint64_t const all = std::uint64_t{shape_.pages} * words_per_page;
    std::uint64_t const first = page * words_per_page + random.below(words_per_page / block_words) * block_words;
    std::uint64_t const room = std::min<std::uint64_t>(all - first, pages_per_request * words_per_page);
    std::uint64_t const count =
        (1 + random.below(static_cast<std::uint32_t>(room / block_words))) * std::uint64_t{block_words};
    buffer_ref const to = buffer(me * buffers_per_lane, pages_per_request);
    auto token = storage().read_async(to, first * 8, count * 8);
    status outcome = token.wait(deadline(random));
    while (outcome.kind() == fault::timed_out) {
      failed(outcome);
      if (random.below(2) == 0) return give_up(token, to);
      outcome = token.wait(deadline(random));
    }
    if (!outcome.ok()) return failed(outcome);
    for (std::uint64_t k = 0; k < count; ++k) {
      verify(me, (first + k) / words_per_page, static_cast<std::uint32_t>((first + k) % words_per_page),
             client::ld(reinterpret_cast<std::uint64_t const*>(to.data()) + k), "C6: an asynchronous read");
    }
  }

  /// A request that nobody waits for any more, and its buffer, which is the lane's again as after a flush.
  void give_up(typename storage_type::read_token& token, buffer_ref const& buffer) {
    token.detach();
    client::check(cache().queues().settle(0, 1) == 0, "a command that recovery could end was given up");
    for (std::uint64_t at = 0; at < buffer.size_bytes(); at += 8) {
      client::st(reinterpret_cast<std::uint64_t*>(buffer.data() + at), ~std::uint64_t{0});
    }
  }

  void write_async(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    std::uint32_t first = 0;
    std::uint32_t count = words_per_page;
    if (!is_whole(page)) {
      first = own_word(me, page, random);
      if (first == words_per_page) return;
      count = 1;
    } else {
      page = whole_page_of(me, page);
      if (!is_whole(page)) return;
      if (random.below(3) == 0) {
        first = random.below(words_per_page);
        count = 1 + random.below(words_per_page - first);
      }
    }
    pin_nothing(me);
    buffer_ref const from = buffer(me * buffers_per_lane, pages_per_request);
    lane_books& books = books_[me];
    std::uint32_t number = 0;
    for (std::uint32_t k = 0; k < count; ++k) number = std::max(number, books.written[index_of(page, first + k)] + 1);
    for (std::uint32_t k = 0; k < count; ++k) {
      client::st(reinterpret_cast<std::uint64_t*>(from.data()) + k, encode(page, first + k, number));
    }
    bool const to_drive = random.below(2) == 0;
    auto token = storage().write_async(from, page * page_bytes + first * 8, count * 8,
                                       to_drive ? write_until::drive : write_until::cache);
    // Whatever became of it, the cache has it or has refused it: what follows tells.
    status outcome = token.wait(deadline(random));
    if (!outcome.ok() && !wrote(page, first, number)) return failed(outcome);
    unobserved const quiet;
    for (std::uint32_t k = 0; k < count; ++k) {
      books.written[index_of(page, first + k)] = number;
      returned_[index_of(page, first + k)] = number;
      client::check(!outcome.ok() || !to_drive || static_cast<std::uint32_t>(on_drive(page, first + k)) == number,
                    "C2: a write says that it is on the drive, and is not");
    }
    if (!outcome.ok()) failed(outcome);
  }
  /// Whether a write whose token says that it failed is in the cache all the same: only its write-back failed.
  bool wrote(std::uint64_t page, std::uint32_t word, std::uint32_t number) {
    page_pin pinned;
    insist("a page can never be pinned", [&] {
      pinned = cache().pin(page, access::read, when_full::wait);
      return is_late(pinned.outcome) ? pinned.outcome : status();
    });
    std::uint64_t value = 0;
    if (pinned.outcome.ok()) {
      value = client::ld(word_in(pinned.frame, word));
      cache().unpin(pinned.frame);
    } else {
      // It is in no frame, so what it had been when it left is on the drive.
      unobserved const quiet;
      value = on_drive(page, word);
    }
    return value == encode(page, word, number);
  }

  /// A page that lane `me` owns from end to end, near `page`; `page` where it owns none.
  std::uint64_t whole_page_of(std::uint32_t me, std::uint64_t page) const {
    for (std::uint64_t p = shape_.pages - std::min(shape_.whole_pages, shape_.pages); p < shape_.pages; ++p) {
      if (p % lane_count_ == me && (p >= page || p + lane_count_ >= shape_.pages)) return p;
    }
    return 0;
  }

  void share(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    lane_books& books = books_[me];
    if (books.buffers.empty()) return end_sharing(me, random.below(2) == 0);
    pin_nothing(me);
    std::uint32_t const index = books.buffers.back();
    buffer_ref const lent = buffer(index, 1);
    bool overwrite = false;
    if (is_whole(page)) {
      page = whole_page_of(me, page);
      overwrite = is_whole(page) && random.below(2) == 0;
    }
    std::uint32_t number = 0;
    if (overwrite) {
      for (std::uint32_t w = 0; w < words_per_page; ++w)
        number = std::max(number, books.written[index_of(page, w)] + 1);
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        client::st(reinterpret_cast<std::uint64_t*>(lent.data()) + w, encode(page, w, number));
      }
    }
    page_type shared = storage().share(lent, page * page_bytes, overwrite ? sharing_use::overwrite : sharing_use::read);
    if (shared.is_own()) books.buffers.pop_back();
    status const outcome = shared.outcome().ok() ? shared.wait(deadline(random)) : shared.outcome();
    books.lent.push_back({page, index, overwrite, shared});
    if (!outcome.ok()) {
      end_sharing(me, false);
      return failed(outcome);
    }
    if (overwrite) {
      for (std::uint32_t w = 0; w < words_per_page; ++w) books.written[index_of(page, w)] = number;
    }
    for (std::uint32_t w = 0; w < words_per_page; ++w) look_in_shared(me, page, shared, w);
    std::uint32_t const word = own_word(me, page, random);
    if (word < words_per_page && random.below(2) == 0) {
      client::check(shared.will_write().ok(), "a shared page that may be written");
      books.lent.back().written = true;
      client::st(reinterpret_cast<std::uint64_t*>(shared.data()) + word,
                 encode(page, word, ++books.written[index_of(page, word)]));
      look_in_shared(me, page, shared, word);
    }
    if (random.below(3) == 0) end_sharing(me, random.below(2) == 0);
  }
  void look_in_shared(std::uint32_t me, std::uint64_t page, page_type const& shared, std::uint32_t word) {
    auto const* const at = reinterpret_cast<std::uint64_t const*>(shared.data()) + word;
    verify(me, page, word, owner_of(page, word) == me ? client::ld(at) : client::ld_speculative(at),
           "C6: a read of a shared page");
  }

  /// Nothing that this lane has pinned may keep another one waiting while it waits itself; but for its own buffers.
  void pin_nothing(std::uint32_t me) {
    lane_books& books = books_[me];
    while (!books.held.empty()) let_go(me, 0);
    for (lent_page& lent : books.lent) {
      if (!lent.shared.is_own()) end_sharing(me, lent, true);
    }
    std::erase_if(books.lent, [](lent_page const& lent) { return !lent.shared.is_own(); });
  }
  /// `abandon`: leaves buffers to whoever reclaims them, or to the end.
  void end_sharing(std::uint32_t me, bool abandon) {
    pin_nothing(me);
    for (lent_page& lent : books_[me].lent) end_sharing(me, lent, abandon);
    books_[me].lent.clear();
  }
  void end_sharing(std::uint32_t me, lent_page& lent, bool abandon) {
    lane_books& books = books_[me];
    {
      unobserved const quiet;
      for (std::uint32_t w = 0; lent.written && w < words_per_page; ++w) {
        if (owner_of(lent.page, w) == me) returned_[index_of(lent.page, w)] = books.written[index_of(lent.page, w)];
      }
    }
    if (!lent.shared.is_own()) return lent.shared.leave();
    hand_over();
    {
      unobserved const quiet;
      abandoned_.push_back(lent.shared);
    }
    if (abandon) return;
    insist("C2: a buffer is never given back", [&] { return lent.shared.take_back(patient_deadline()); });
    // Now it is this lane's alone.
    for (std::uint32_t w = 0; w < words_per_page; ++w) {
      client::st(reinterpret_cast<std::uint64_t*>(buffer(lent.buffer, 1).data()) + w, ~std::uint64_t{0});
    }
    books.buffers.push_back(lent.buffer);
  }
  void reclaim(std::uint32_t me, simt::random_source& random) {
    end_sharing(me, false);
    hand_over();
    page_type shared;
    {
      unobserved const quiet;
      if (abandoned_.empty()) return;
      std::size_t const which = random.below(static_cast<std::uint32_t>(abandoned_.size()));
      shared = abandoned_[which];
      abandoned_.erase(abandoned_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    status const outcome = shared.take_back(deadline(random));
    if (outcome.ok()) return;
    // Others may have had it pinned until the deadline.
    if (outcome.kind() != fault::no_frame || shape_.impatient == 0) failed(outcome);
    hand_over();
    unobserved const quiet;
    abandoned_.push_back(shared);
  }

  /// Called before a shared page goes into `abandoned_`, and before one is taken from there: what its lanes do with it
  /// is ordered as by whatever a program hands it over with. Acquire and release pair with those of other lanes.
  void hand_over() { simt::atomic<agent_machine>(handed_over_).fetch_add(1, simt::order::acq_rel); }

  void look_without_pin(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    std::uint32_t const word = random.below(words_per_page);
    std::uint64_t value = 0;
    if (cache().try_read(page, word * 8, value)) verify(me, page, word, value, "C6: a read without a pin");
  }

  void prefetch(std::uint32_t me, std::uint64_t page) {
    books_[me].must_not_wait = true;
    (void)cache().prefetch(page);
    books_[me].must_not_wait = false;
  }

  void hold(std::uint32_t me, std::uint64_t page, bool write, simt::random_source& random) {
    lane_books& books = books_[me];
    while (books.held.size() >= shape_.guards) let_go(me, 0);
    page_pin const pinned = cache().pin(page, write ? access::write : access::read);
    if (!pinned.outcome.ok()) return failed(pinned.outcome);
    client::check(pinned.frame < frame_count(), "C1: a pin without a frame");
    books.held.push_back({page, pinned.frame, write});
    std::uint32_t const word = own_word(me, page, random);
    if (write && word < words_per_page) write_to(me, page, pinned.frame, word);
    std::uint32_t const other = random.below(words_per_page);
    look_at(me, page, pinned.frame, other);
    if (word < words_per_page) look_at(me, page, pinned.frame, word);
    if (random.below(2) == 0) let_go(me, books.held.size() - 1);
  }

  /// One that only this lane writes; `words_per_page`: there is none.
  std::uint32_t own_word(std::uint32_t me, std::uint64_t page, simt::random_source& random) const {
    std::uint32_t const group = std::min(lane_count_, words_per_page);
    std::uint32_t const word = random.below(words_per_page / group) * group + me % words_per_page;
    return owner_of(page, word) == me ? word : words_per_page;
  }
  std::uint32_t page_count() const { return shape_.pages; }
  /// Which number the lane writes next.
  std::uint32_t next_number(std::uint32_t me, std::uint64_t page, std::uint32_t word) const {
    return books_[me].written[index_of(page, word)] + 1;
  }
  void has_written(std::uint32_t me, std::uint64_t page, std::uint32_t word, std::uint32_t number) {
    books_[me].written[index_of(page, word)] = number;
    unobserved const quiet;
    returned_[index_of(page, word)] = number;
  }
  void write_to(std::uint32_t me, std::uint64_t page, std::uint32_t frame, std::uint32_t word) {
    std::uint32_t const number = ++books_[me].written[index_of(page, word)];
    client::st(word_in(frame, word), encode(page, word, number));
  }
  std::uint64_t* word_in(std::uint32_t frame, std::uint32_t word) {
    return reinterpret_cast<std::uint64_t*>(cache().frame_data(frame)) + word;
  }
  void look_at(std::uint32_t me, std::uint64_t page, std::uint32_t frame, std::uint32_t word) {
    // Others may write their words now: what is seen may be any of their values, as for any two threads.
    verify(me, page, word,
           owner_of(page, word) == me ? client::ld(word_in(frame, word)) : client::ld_speculative(word_in(frame, word)),
           "C6: a read through a pin");
  }

  void let_go(std::uint32_t me, std::size_t which) {
    lane_books& books = books_[me];
    held_page const held = books.held[which];
    // As late as a write can be.
    std::uint32_t const word = me % words_per_page;
    if (held.written && owner_of(held.page, word) == me) write_to(me, held.page, held.frame, word);
    look_at(me, held.page, held.frame, word);
    {
      unobserved const quiet;
      client::check(page_word{state_.words[held.frame]}.names(state_.mapping.locate(held.page).tag),
                    "C3: a pinned frame was given to another page");
    }
    cache().unpin(held.frame);
    books.held.erase(books.held.begin() + static_cast<std::ptrdiff_t>(which));
    if (!held.written) return;
    unobserved const quiet;
    for (std::uint32_t w = 0; w < words_per_page; ++w) {
      if (owner_of(held.page, w) == me) returned_[index_of(held.page, w)] = books.written[index_of(held.page, w)];
    }
  }

  void verify(std::uint32_t me, std::uint64_t page, std::uint32_t word, std::uint64_t value, char const* what) {
    client::check(value >> 32 == encode(page, word, 0) >> 32, what);
    std::size_t const at = index_of(page, word);
    auto const number = static_cast<std::uint32_t>(value);
    lane_books& books = books_[me];
    if (owner_of(page, word) == me) client::check(number == books.written[at], what);
    client::check(number >= books.seen[at], what);
    books.seen[at] = number;
  }

  /// Whether it says that something took too long, or that recovery ended it for that.
  bool is_late(status outcome) const {
    return outcome.kind() == fault::timed_out || outcome.kind() == fault::busy || outcome.kind() == fault::cancelled;
  }
  void failed(status outcome) {
    unobserved const quiet;
    if (outcome.kind() == fault::no_frame) {
      ++outcome_.no_frame;
      client::check(shape_.has_timeout() || lane_count_ * shape_.guards >= cache_ways,
                    "C3: no frame, though they cannot all be pinned");
      return;
    }
    if (outcome.kind() == fault::cancelled) {
      client::check(shape_.withholds(), "Q7: a healthy command was cancelled");
      ++outcome_.cancelled;
      return;
    }
    if (is_late(outcome)) {
      client::check(shape_.has_timeout() || shape_.impatient != 0, "C4: a deadline passed, but there was none");
      ++outcome_.late;
      return;
    }
    client::check(shape_.faults.error_ppm != 0 && outcome == status::from_nvme(shape_.faults.error_status_field),
                  "C4: an operation fails with a status that no command had");
    ++outcome_.failures;
  }

  /// One of which nobody tells the caller why.
  void failed_unseen() {
    unobserved const quiet;
    client::check(shape_.faults.error_ppm != 0 || shape_.has_timeout(), "C4: an operation fails on sound drives");
    ++outcome_.failures;
  }

  /// C2: what returned before it is on the drive afterwards.
  void flush(std::uint32_t me, simt::random_source& random) {
    std::vector<std::uint32_t>& owed = books_[me].owed;
    {
      unobserved const quiet;
      std::copy(returned_.begin(), returned_.end(), owed.begin());
    }
    status const worst = random.below(2) == 0 ? clean_each(random) : persist_each();
    if (!worst.ok()) return failed(worst);
    // What this lane wrote came before; what others wrote may not have.
    unobserved const quiet;
    for (std::uint64_t page = 0; page < shape_.pages; ++page) {
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        if (owner_of(page, w) != me) continue;
        client::check(static_cast<std::uint32_t>(on_drive(page, w)) >= owed[index_of(page, w)],
                      "C2: a flush returns, and a write before it is not on the drive");
      }
    }
  }
  /// As a kernel would, with a deadline for each frame.
  status clean_each(simt::random_source& random) {
    status worst;
    for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
      status const outcome = cache().clean(frame, deadline(random));
      if (!outcome.ok()) worst = outcome;
    }
    return worst;
  }
  /// As the host's flush does, whatever the drives take for all of it.
  status persist_each() {
    clean_result* result = nullptr;
    {
      // For as long as the schedule: a lane's stores may reach it late.
      unobserved const quiet;
      result = results_.emplace_back(std::make_unique<clean_result>()).get();
    }
    {
      auto const frames = this->frames();
      cleaner<client, Rules> const work(frames, result);
      for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
        std::uint64_t const page = frames.page_to_clean(frame);
        if (page == frames.no_page) continue;
        work.persist(page, [&](std::uint64_t deadline_ns) { return frames.clean(frame, deadline_ns); });
      }
    }
    return worst_of(*result);
  }
  frames_ref<client, Rules> frames() {
    return frames_ref<client, Rules>(&state_, state_.words, state_.fingerprints, state_.frame_memory.data(),
                                     state_.mapping, page_shift);
  }
  status worst_of(clean_result& result) const {
    status worst;
    for (std::uint32_t d = 0; d < shape_.drives; ++d) {
      // Relaxed: whoever wrote it met this lane since.
      std::uint32_t const bits = simt::atomic<client>(result.drives[d].first_failure).load(simt::order::relaxed);
      if (bits != 0) worst = status::from_bits(bits);
    }
    if (is_late(worst)) {
      client::check(shape_.withholds(), "C2: the write-back of a healthy drive ends before all is written");
    }
    return worst;
  }

  std::uint64_t on_drive(std::uint64_t page, std::uint32_t word) const {
    storage_layout::piece const p = layout_.piece_at((page << page_shift) + word * 8, 8);
    std::uint64_t value = 0;
    std::memcpy(&value, media_[p.drive].data() + p.byte_on_drive, 8);
    return value;
  }

  void about_to_wait() {
    std::uint32_t const me = client::thread_rank();
    unobserved const quiet;
    if (me < lane_count_) client::check(!books_[me].must_not_wait, "C5: a prefetch waits");
    // Under store buffers the store that unlocks may still be on its way.
    for (std::uint32_t set = 0; set < shape_.sets && memory_model_ != simt::memory_model::store_buffers; ++set) {
      client::check(sets()[set].lock != me + 1, "Q4: a thread waits while it holds the lock of a set");
    }
  }

  bool is_in_frame(void const* address) const {
    for (std::vector<std::byte> const& bytes : media_) {
      if (address >= bytes.data() && address < bytes.data() + bytes.size()) return true;
    }
    std::byte const* const frames = state_.frame_memory.data();
    return (address >= frames && address < frames + state_.frame_memory.size_bytes()) ||
           (address >= buffers_ && address < buffers_ + std::size_t{lane_count_} * buffers_per_lane * page_bytes);
  }

  cache_set<Policy>* sets() { return reinterpret_cast<cache_set<Policy>*>(state_.sets); }

  /// C1, looked at from outside at any moment.
  void inspect() {
    bool once = false;
    {
      unobserved const quiet;
      once = duplicates().empty();
    }
    client::check(once, "C1: two frames hold one page");
  }
  std::string duplicates() {
    std::set<std::uint64_t> held;
    for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
      page_word const word{state_.words[frame]};
      if (word.state() != page_state::valid && word.state() != page_state::busy) continue;
      std::uint32_t const cached = shape_.sets * cache_ways;
      std::uint64_t const page = frame < cached ? state_.mapping.page_of({frame / cache_ways, word.tag()})
                                                : state_.outside[frame - cached].page;
      if (page == outside_frame::no_page) continue;  // just taken
      if (!held.insert(page).second) return "page " + std::to_string(page) + " is in two frames";
    }
    return {};
  }

  /// By all lanes: everything that was written must reach the drives, however often they fail. As `~storage` has it.
  void close() {
    meet();
    if (client::thread_rank() == 0) {
      for (page_type& shared : abandoned_) {
        insist("C2: a buffer is never given back", [&] { return shared.take_back(patient_deadline()); });
      }
    }
    for (std::size_t round = 0;; ++round) {
      client::check(round < cleaned_.size(), "C2: a page never reaches the drive");
      meet();
      clean_kernel<client, Rules>{frames(), &cleaned_[round]}();
      meet();
      if (worst_of(cleaned_[round]).ok()) break;
    }
    settle_kernel<client, cache_targets<client>>{cache().queues(), &not_settled_}();
    meet();
    drain_kernel<client, cache_targets<client>>{cache().queues(), shape_.timeout_ns, &not_drained_}();
  }

  // After the run
  // ------------------------------------------------------------------------------------------------------

  std::uint64_t commands_of(std::uint32_t pair) const {
    auto const tail = ring_position::from_word(queues_->state()->pairs[pair].sq_tail);
    return std::uint64_t{tail.lap} * shape_.entries + tail.slot;
  }
  void add_counters() {
    for (std::uint32_t k = 0; k < cache_core::counter_stripes; ++k) {
      cache_counters const& c = state_.counters[k];
      outcome_.counted += c;
    }
  }

  /// Recovery is asked for commands that the drives keep back, and for no others (Q7).
  std::string asked_wrong(recovery_agent const& recovery) {
    std::vector<recovery_agent::asked_command> once;
    for (auto const& command : recovery.asked()) {
      if (std::find(once.begin(), once.end(), command) == once.end()) once.push_back(command);
    }
    // Who looks once, at the end of his time, may find an old ring there, however long ago the drive wrote to it.
    if (memory_model_ == simt::memory_model::stale_reads) return {};
    outcome_.asked = once.size();
    if (!shape_.withholds() && recovery.requests() != 0) return "Q7: recovery was asked for a healthy command";
    std::uint64_t withheld = 0;
    for (std::uint32_t i = 0; i < queue_count(); ++i) {
      emulator::fault_plan plan = shape_.faults;
      plan.seed += i / shape_.queues_per_drive;
      for (std::uint64_t n = 0; n < commands_of(i); ++n) {
        withheld += plan.at((std::uint64_t{i % shape_.queues_per_drive + 1} << 48) + n).withheld;
      }
    }
    if (once.size() > withheld) {
      return "Q7: recovery was asked for " + std::to_string(once.size()) + " commands, but the drives kept " +
             std::to_string(withheld) + " back";
    }
    return {};
  }

  std::string settled_wrong() {
    if (not_settled_ != 0) return "C4: " + std::to_string(not_settled_) + " commands were given up at the end";
    if (not_drained_ != 0) return "C4: " + std::to_string(not_drained_) + " queues are busy at the end";
    for (std::uint64_t page = 0; page < shape_.pages; ++page) {
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        std::uint32_t const owner = owner_of(page, w);
        if (on_drive(page, w) != encode(page, w, books_[owner].written[index_of(page, w)])) {
          return "C2: word " + std::to_string(w) + " of page " + std::to_string(page) + " was lost";
        }
      }
    }
    for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
      page_word const word{state_.words[frame]};
      std::string const name = "frame " + std::to_string(frame);
      if (word.pins() != 0) return "C3: " + name + " stays pinned";
      if (word.state() == page_state::busy || word.is_writing()) return "C4: " + name + " stays busy";
      if (word.state() == page_state::valid && word.is_dirty()) return "C2: " + name + " stays dirty";
    }
    for (std::uint32_t set = 0; set < shape_.sets; ++set) {
      if (sets()[set].lock != 0) return "Q4: the lock of set " + std::to_string(set) + " is held";
    }
    for (std::uint32_t frame = 0; frame < shape_.sets * cache_ways; ++frame) {
      std::uint32_t const wanted = fingerprints::of(page_word{state_.words[frame]}.tag());
      std::uint64_t const word = state_.fingerprints[frame / 8];
      if ((word & fingerprints::byte_of(frame % 8, 0xff)) != fingerprints::byte_of(frame % 8, wanted)) {
        return "the fingerprint of frame " + std::to_string(frame) + " is another page's";
      }
    }
    std::string const twice = duplicates();
    if (!twice.empty()) return "C1: " + twice;
    std::uint32_t listed = 0;
    for (std::uint32_t set = 0; set < shape_.sets; ++set) {
      for (std::uint32_t k = sets()[set].outside; k != 0 && listed <= shape_.overflow + shape_.users;
           k = state_.outside[k - 1].next) {
        if (k > shape_.overflow) return "C3: a user's buffer stays a page's frame";
        ++listed;
      }
    }
    if (listed + count_free(state_.free_overflow) != shape_.overflow) return "C3: an overflow frame is lost";
    if (count_free(state_.free_users) != shape_.users) return "C3: a user frame is lost";
    for (std::uint32_t way = 0; way < shape_.sets * state_.host.groups * cache_ways; ++way) {
      host_word const word{state_.host.words[way]};
      if (word.what() == host_word::content::nothing) continue;
      std::string const name = "way " + std::to_string(way) + " of the host pool";
      if (word.what() != host_word::content::page) return name + " is still being copied";
      std::uint64_t const page = state_.mapping.page_of({way / (state_.host.groups * cache_ways), word.tag()});
      if (std::memcmp(state_.host.frames + std::size_t{way} * page_bytes, page_on_drive(page), page_bytes) != 0) {
        return "C6: " + name + " is out of date";
      }
    }
    bool const all_fit =
        shape_.pages <= shape_.sets && shape_.faults.error_ppm == 0 && !shape_.withholds() && shape_.invalidate == 0;
    if (all_fit && outcome_.counted.misses + outcome_.counted.prefetches > shape_.pages) {
      return "C1: a page that never left was read twice";
    }
    return {};
  }

  static std::uint32_t count_free(slot_pool const& pool) {
    std::uint32_t free = 0;
    for (std::uint32_t w = 0; w < pool.word_count; ++w) free += simt::count_bits(pool.words[w]);
    return free;
  }
  std::byte const* page_on_drive(std::uint64_t page) const {
    storage_layout::piece const p = layout_.piece_at(page << page_shift, 8);
    return media_[p.drive].data() + p.byte_on_drive;
  }

  cache_shape const shape_;
  std::uint64_t const seed_;
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
  std::vector<lane_books> books_;
  std::vector<char> reads_along_ = std::vector<char>(lane_count_, 0);
  std::vector<page_type> abandoned_;
  std::vector<std::uint32_t> returned_;  // per word of the storage: the last number whose writer has let go
  cache_outcome outcome_;
  simt::memory_model memory_model_ = simt::memory_model::sequential;
  std::uint32_t handed_over_ = 0;
  std::uint32_t arrived_ = 0;
  std::vector<clean_result> cleaned_ = std::vector<clean_result>(64);  // a round at the end each
  std::vector<std::unique_ptr<clean_result>> results_;                 // of flushes
  std::uint32_t not_settled_ = 0;
  std::uint32_t not_drained_ = 0;
};

/// Builds and runs the schedule that shape, seed and mode describe.
template <class Policy, class Pools = frame_pools<>, class Rules = cache_rules>
cache_outcome run_cache_schedule(cache_shape const& shape, std::uint64_t seed, schedule_mode mode) {
  auto s = std::make_unique<cache_schedule<Policy, Pools, Rules>>(shape, seed);
  using policy = schedule_mode::policy;
  std::uint64_t const operations = std::uint64_t{shape.lanes.blocks} * shape.lanes.threads_per_block * shape.operations;
  switch (mode.scheduler) {
    case policy::sticky_random: {
      simt::random scheduler(seed, 8);
      return s->run(scheduler, mode.memory);
    }
    case policy::random: {
      simt::random scheduler(seed, 2);
      return s->run(scheduler, mode.memory);
    }
    case policy::round_robin: {
      simt::round_robin scheduler;
      return s->run(scheduler, mode.memory);
    }
    case policy::pct3:
    case policy::pct5:
      break;
  }
  simt::pct scheduler(seed, mode.scheduler == policy::pct3 ? 3 : 5, 100 * operations);
  return s->run(scheduler, mode.memory);
}

}  // namespace forebay::test
