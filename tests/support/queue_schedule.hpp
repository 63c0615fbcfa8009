// SPDX-License-Identifier: Apache-2.0
//! \file
//! One schedule of the queue layer: seeded programs of lanes that submit and wait, an emulator that delays, reorders,
//! fails and withholds, a recovery thread, and the conditions that must hold during the schedule and afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/queue/completion_relay.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/memory.hpp"
#include "forebay/service.hpp"
#include "forebay/token.hpp"
#include "support/queue_audit.hpp"
#include "support/recovery_agent.hpp"

namespace forebay::test {

/// Which scheduler runs the schedule, under which memory model.
struct schedule_mode {
  enum class policy : std::uint8_t { sticky_random, random, pct3, pct5, round_robin };
  policy scheduler = policy::sticky_random;
  simt::memory_model memory = simt::memory_model::sequential;
};
std::string name_of(schedule_mode mode);
/// A mix of all modes; the weak memory models make up three quarters.
schedule_mode mode_of(std::uint64_t seed);

/// What a schedule looks like; the programs of its lanes follow from the seed.
struct schedule_shape {
  std::uint32_t sq_entries = 4;
  std::uint32_t cq_entries = 4;
  std::uint32_t queues = 1;
  std::uint32_t drives = 1;  ///< the pairs are dealt out to them in turn; a request stays on one
  std::uint32_t units = 1;   ///< service units of the emulator, each an agent
  simt::grid lanes{1, 4, 0};
  std::uint32_t requests_per_lane = 8;
  std::uint32_t commands_per_request = 1;  ///< at most
  std::uint32_t open_per_lane = 4;         ///< requests that a lane submits before it must wait for one
  std::uint32_t max_blocks = 4;            ///< of a command; of 64 bytes, on pages of 256
  std::uint32_t prp_pages = 0;             ///< 0: one for every command that could be in flight
  std::uint32_t records = 0;               ///< 0: enough
  std::uint32_t detach_percent = 10;
  std::uint32_t flush_percent = 10;
  std::uint32_t settle_percent = 0;  ///< how often a lane that has submitted waits for all that is in flight
  std::uint32_t gated_lanes = 0;     ///< lanes that submit, then sleep until all others have finished, then wait
  bool burst = false;                ///< all lanes submit their first requests at the same moment
  bool in_step = false;              ///< the lanes of a warp meet between a request and the wait for it
  emulator::fault_plan faults;
  bool flushes = true;  ///< with `faults.data_after_completion_ppm`: whether the relay of completions orders the data
  recovery_policy recovery = recovery_policy::none;
  std::uint32_t mailbox_words = 64;
  std::uint64_t wait_timeout_ns = 0;  ///< 0: waits have no deadline, since nothing is withheld
  std::uint64_t poll_ns = 0;          ///< not 0: waits have this deadline first, and recovery must hear of none of them
  std::uint64_t first_ticket = 0;
  std::uint64_t max_steps = 40'000'000;
  bool all_but_withheld_first = false;  ///< Q8: when a wait times out, every command but the withheld one has completed
};

struct schedule_outcome {
  bool ok = true;
  std::string what;
  std::uint64_t commands = 0;
  std::uint64_t steps = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t failures = 0;   ///< requests that ended with a status other than success
  std::uint64_t cancelled = 0;  ///< requests that ended as `cancelled`
  std::uint64_t doorbell_writes = 0;
};

namespace detail {

constexpr std::uint32_t block_bytes = 64;
constexpr std::uint32_t page_bytes = 256;

constexpr std::uint64_t stamp(std::uint64_t seed, std::uint64_t byte_of_drive) {
  return emulator::mix(seed * 0x9e3779b97f4a7c15u ^ byte_of_drive) | 1;
}

/// Memory that hands out stretches of one block of registered memory; everything goes at once.
class arena final : public memory::resource {
 public:
  explicit arena(std::size_t bytes) : memory_(memory::host(), bytes, 4096) {}
  memory::kind kind() const override { return memory::kind::host; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    used_ = (used_ + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    void* const at = data() + used_;
    used_ += bytes;
    if (used_ > memory_.size_bytes()) throw std::bad_alloc();
    return at;
  }
  void deallocate(void*) noexcept override {}
  void copy_in(void* to, void const* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_out(void* to, void const* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  std::byte* data() const { return memory_.as<std::byte>(); }
  std::size_t size_bytes() const { return memory_.size_bytes(); }
  template <class T>
  T* make(std::size_t count, std::size_t alignment_bytes = alignof(T)) {
    return static_cast<T*>(allocate(count * sizeof(T), alignment_bytes));
  }

 private:
  memory::allocation memory_;
  std::size_t used_ = 0;
};

struct planned_request {
  std::uint32_t first_command = 0;
  std::uint32_t commands = 1;
  std::uint32_t drive = 0;
  bool detached = false;
  bool cancelled = false;  // a command of it was cancelled
};

}  // namespace detail

/// Everything of one schedule, built from shape and seed. The lanes run on `Client`: an `audited_client`, or a class
/// derived from it.
template <class Rules, class Client = audited_client>
class schedule {
  using client = Client;
  using agent_machine = simt::fiber;

 public:
  schedule(schedule_shape const& shape, std::uint64_t seed)
      : shape_(shape), seed_(seed), lane_count_(shape.lanes.blocks * shape.lanes.threads_per_block) {
    plan();
    build();
  }

  schedule_outcome run(simt::scheduler& scheduler, simt::memory_model memory) {
    // One more block of lanes, if completions are consumed for the others.
    simt::grid lanes = shape_.lanes;
    if (!Rules::waiters_help) ++lanes.blocks;
    audit books({queues_->state()->pairs, shape_.queues}, rings_, shape_.faults, commands_, lba_stride(),
                lanes.blocks * lanes.threads_per_block);
    audit_ = &books;
    audit::current() = &books;
    std::vector<simt::agent> agents;
    for (std::uint32_t unit = 0; unit < shape_.units; ++unit) {
      agents.push_back({"drive unit " + std::to_string(unit), [this, unit] { serve(unit); }, true, 1});
    }
    recovery_agent recovery(
        *queues_, shape_.recovery,
        [this](std::uint32_t pair) { return recovery_agent::place{engine_.get(), pair, true}; }, relay_.get());
    if (relay_) agents.push_back({"completion relay", [this] { relay(); }, true, 3});
    if (shape_.recovery != recovery_policy::none) agents.push_back({"recovery", [&] { recovery.run(); }, true, 2});
    simt::run_options options;
    options.memory = memory;
    options.max_steps = shape_.max_steps;
    options.record = false;
    auto const pauses = [] {
      if constexpr (requires { Client::pauses(); }) return Client::pauses();
      return std::uint64_t{0};
    };
    std::uint64_t const pauses_before = pauses();
    auto result = simt::run(options, scheduler, lanes, [this] { lane(); }, std::move(agents));
    result.timeouts -= pauses() - pauses_before;
    audit::current() = nullptr;

    schedule_outcome outcome;
    outcome.ok = result.ok;
    outcome.what = result.what;
    outcome.steps = result.steps;
    outcome.commands = books.fetched();
    outcome.timeouts = result.timeouts;
    outcome.failures = failures_;
    outcome.cancelled = cancelled_;
    outcome.doorbell_writes = books.doorbell_writes();
    if (outcome.ok) {
      outcome.what = settled_wrong(result.timeouts, recovery.requests());
      outcome.ok = outcome.what.empty();
    }
    return outcome;
  }

  std::uint64_t command_count() const { return commands_.size(); }

 private:
  struct open_request {
    std::uint32_t request = 0;
    token<client, io_queues_ref<client, Rules>> handle;
  };
  struct lane_state {
    std::vector<std::uint32_t> requests;
    std::vector<open_request> open;
    std::vector<std::uint32_t> detached;
  };

  std::uint32_t lba_stride() const { return shape_.max_blocks; }
  std::uint32_t slice_bytes() const {
    return (shape_.max_blocks * detail::block_bytes + 2 * detail::page_bytes - 1) / detail::page_bytes *
           detail::page_bytes;
  }
  pair_range range_of(std::uint32_t drive) const {
    return {drive, (shape_.queues - drive + shape_.drives - 1) / shape_.drives, shape_.drives};
  }

  // Before the run
  // -----------------------------------------------------------------------------------------------------

  void plan() {
    simt::random_source random(emulator::mix(seed_) ^ 0x510e527fade682d1u);
    lanes_.resize(lane_count_);
    for (std::uint32_t l = 0; l < lane_count_; ++l) {
      for (std::uint32_t r = 0; r < shape_.requests_per_lane; ++r) {
        detail::planned_request request;
        request.first_command = static_cast<std::uint32_t>(commands_.size());
        request.commands = 1 + random.below(shape_.commands_per_request);
        request.drive = random.below(shape_.drives);
        request.detached = random.below(100) < shape_.detach_percent;
        for (std::uint32_t c = 0; c < request.commands; ++c) plan_command(random);
        lanes_[l].requests.push_back(static_cast<std::uint32_t>(requests_.size()));
        requests_.push_back(request);
      }
      lanes_[l].open.reserve(shape_.requests_per_lane);
    }
  }

  void plan_command(simt::random_source& random) {
    planned_command command;
    auto const index = commands_.size();
    if (random.below(100) >= shape_.flush_percent) {
      command.opcode = random.below(2) == 0 ? nvme::io_opcode::read : nvme::io_opcode::write;
      command.blocks = 1 + random.below(shape_.max_blocks);
    }
    command.slba = index * lba_stride() + random.below(lba_stride() - (command.blocks != 0 ? command.blocks : 1) + 1);
    // Anywhere in a page: a PRP entry is only aligned to four bytes. The tests' stamps want eight.
    command.buffer_offset_bytes = index * slice_bytes() + random.below(detail::page_bytes / 8) * 8;
    commands_.push_back(command);
  }

  void build() {
    std::size_t const data_bytes = commands_.size() * slice_bytes();
    auto const in_flight = shape_.queues * shape_.cq_entries;
    std::uint32_t const prp_pages = shape_.prp_pages != 0 ? shape_.prp_pages : in_flight;
    std::uint32_t const records =
        shape_.records != 0 ? shape_.records : static_cast<std::uint32_t>(requests_.size()) + 1;
    std::size_t const ring_bytes = shape_.queues * (shape_.sq_entries * (sizeof(nvme::submission_entry) + 4) +
                                                    shape_.cq_entries * (sizeof(nvme::completion_entry) + 8) + 4096);
    memory_ = std::make_unique<detail::arena>(data_bytes + prp_pages * detail::page_bytes + ring_bytes + records * 16 +
                                              65536);
    regions_ = std::make_unique<emulator::dma_regions>(memory::host(), 8);
    regions_->add(memory_->data(), memory_->size_bytes());

    auto* const doorbells = memory_->make<std::uint32_t>(shape_.queues * 64, 128);
    for (std::uint32_t i = 0; i < shape_.queues; ++i) {
      queue_pair_rings rings;
      rings.sq_entries = shape_.sq_entries;
      rings.cq_entries = shape_.cq_entries;
      rings.sq = memory_->make<nvme::submission_entry>(rings.sq_entries, 128);
      rings.cq = memory_->make<nvme::completion_entry>(rings.cq_entries, 128);
      rings.sq_doorbell = doorbells + i * 64;
      rings.cq_doorbell = doorbells + i * 64 + 32;
      rings.queue_id = i + 1;
      rings_.push_back(rings);
    }
    io_queues_options options;
    options.records = records;
    options.page_bytes = detail::page_bytes;
    auto* const lists = memory_->make<std::byte>(prp_pages * detail::page_bytes, detail::page_bytes);
    options.prp_pages = buffer_ref(lists, prp_pages * detail::page_bytes, reinterpret_cast<std::uint64_t>(lists));
    options.mailbox_words = shape_.mailbox_words;
    if (shape_.wait_timeout_ns != 0) options.timeout_ns = options.flush_timeout_ns = shape_.wait_timeout_ns;
    options.first_ticket = shape_.first_ticket;
    std::vector<queue_pair_rings> of_lanes = rings_;
    if (shape_.faults.data_after_completion_ppm != 0) {
      relay_ = std::make_unique<completion_relay>(*memory_, [this] {
        if (shape_.flushes) engine_->order_data();
      });
      for (queue_pair_rings& rings : of_lanes) rings = relay_->add(rings, shape_.first_ticket);
    }
    queues_ = std::make_unique<io_queues>(of_lanes, options, *memory_, *memory_);

    scatter_buffers(data_bytes);
    fill_drive();
    emulator::engine_options drive;
    drive.units = shape_.units;
    drive.queue_slots = shape_.queues;
    drive.page_bytes_min = detail::page_bytes;
    drive.max_transfer_bytes = shape_.max_blocks * detail::block_bytes;
    drive.faults = shape_.faults;
    emulator::media media;
    media.data = media_.data();
    media.bytes = media_.size();
    media.block_bytes = detail::block_bytes;
    engine_ = std::make_unique<emulator::engine<audited_drive, agent_machine>>(drive, media);
    for (queue_pair_rings const& rings : rings_) {
      engine_->attach_completion_queue({rings.queue_id - 1u, rings.cq, rings.cq_entries, rings.cq_doorbell});
      engine_->attach_submission_queue({.slot = rings.queue_id - 1u,
                                        .id = static_cast<std::uint16_t>(rings.queue_id),
                                        .entries = rings.sq,
                                        .size = rings.sq_entries,
                                        .tail_doorbell = rings.sq_doorbell,
                                        .cq_slot = rings.queue_id - 1u,
                                        .page_bytes = detail::page_bytes,
                                        .regions = regions_->table()});
    }
  }

  /// The buffer's pages lie in random order, as an IOMMU-less host's would.
  void scatter_buffers(std::size_t bytes) {
    simt::random_source random(emulator::mix(seed_) ^ 0x9b05688c2b3e6c1fu);
    auto* const data = memory_->make<std::byte>(bytes, detail::page_bytes);
    std::size_t const count = bytes / detail::page_bytes;
    for (std::size_t i = 0; i < count; ++i) {
      pages_.push_back(reinterpret_cast<std::uint64_t>(data + i * detail::page_bytes));
      std::swap(pages_[i], pages_[random.below(static_cast<std::uint32_t>(i) + 1)]);
    }
    buffers_ = buffer_ref(data, bytes, pages_.data(), 8, 0);
    static_assert(detail::page_bytes == 1 << 8);
    for (planned_command const& command : commands_) {
      if (command.opcode != nvme::io_opcode::write) continue;
      for_words(command, [&](std::uint64_t* word, std::uint64_t at) { *word = detail::stamp(seed_, at); });
    }
  }

  void fill_drive() {
    media_.resize(commands_.size() * lba_stride() * detail::block_bytes);
    for (planned_command const& command : commands_) {
      if (command.opcode != nvme::io_opcode::read) continue;
      for (std::uint64_t at = command.slba * detail::block_bytes;
           at < (command.slba + command.blocks) * detail::block_bytes; at += 8) {
        std::uint64_t const word = detail::stamp(seed_, at);
        std::memcpy(media_.data() + at, &word, 8);
      }
    }
  }

  /// Calls `visit(word in the buffer, byte offset on the drive)` for the words of a command's data, all or one a block.
  template <class Visit>
  void for_words(planned_command const& command, Visit&& visit, std::uint32_t step_bytes = 8) {
    for (std::uint64_t at = 0; at < std::uint64_t{command.blocks} * detail::block_bytes; at += step_bytes) {
      visit(reinterpret_cast<std::uint64_t*>(buffers_.bus_address(command.buffer_offset_bytes + at)),
            command.slba * detail::block_bytes + at);
    }
  }

  // The drive and the recovery thread
  // ----------------------------------------------------------------------------------

  void serve(std::uint32_t unit) {
    while (!agent_machine::stopping()) {
      if (engine_->step(unit)) continue;
      (void)agent_machine::wait_until([&] { return engine_->step(unit) || agent_machine::stopping(); },
                                      engine_->next_due_ns(unit));
    }
  }

  void relay() {
    while (!agent_machine::stopping()) {
      if (relay_->step<agent_machine>()) continue;
      (void)agent_machine::wait_until([&] { return relay_->has_news<agent_machine>() || agent_machine::stopping(); },
                                      simt::no_deadline);
    }
  }

  // The lanes
  // ----------------------------------------------------------------------------------------------------------

  void lane() {
    std::uint32_t const me = client::thread_rank();
    if (me >= lane_count_)
      return service_kernel<client>{queues_->template ref<client>(), &stop_, shape_.lanes.blocks}();
    lane_state& mine = lanes_[me];
    auto const queues = queues_->template ref<client, Rules>();
    simt::random_source random(emulator::mix(seed_) + me);
    if (shape_.burst) meet();
    for (std::uint32_t const r : mine.requests) {
      if (shape_.in_step) {
        submit(queues, mine, r, random);
        client::this_warp().sync();
        if (!mine.open.empty()) await(mine, 0, random);
        continue;
      }
      while (mine.open.size() >= shape_.open_per_lane) settle(mine, random);
      submit(queues, mine, r, random);
      if (random.below(100) < shape_.settle_percent) settle_all(queues, mine);
    }
    if (me < shape_.gated_lanes) {
      client::check(
          client::wait_until([&] { return finished() >= lane_count_ - shape_.gated_lanes; }, simt::no_deadline),
          "gate");
    }
    while (!mine.open.empty()) settle(mine, random);
    // Acquire and release: the last lane to finish takes the others' results with it.
    std::uint32_t const before = simt::atomic<agent_machine>(finished_).fetch_add(1, simt::order::acq_rel);
    if (before + 1 != lane_count_) return;
    drain(queues);
    // Release pairs with the acquire of the service, which ends.
    simt::atomic<agent_machine, simt::scope::system>(stop_).store(1, simt::order::release);
  }

  std::uint32_t finished() {
    // Acquire pairs with the release at the end of lane().
    return simt::atomic<agent_machine>(finished_).load(simt::order::acquire);
  }

  void meet() {
    simt::atomic<agent_machine>(arrived_).fetch_add(1, simt::order::relaxed);
    client::check(client::wait_until(
                      [&] { return simt::atomic<agent_machine>(arrived_).load(simt::order::relaxed) == lane_count_; },
                      simt::no_deadline),
                  "meeting");
  }

  std::uint64_t deadline() const {
    return shape_.wait_timeout_ns == 0 ? simt::no_deadline : client::clock_ns() + shape_.wait_timeout_ns;
  }

  void submit(io_queues_ref<client, Rules> queues, lane_state& mine, std::uint32_t index, simt::random_source& random) {
    detail::planned_request& request = requests_[index];
    pair_range const range = range_of(request.drive);
    std::uint32_t record = queues.records().try_open(request.commands);
    while (record == record_pool<client>::none) {
      if (!mine.open.empty()) {
        settle(mine, random);
      } else {
        client::check(client::wait_until(
                          [&] {
                            help(queues);
                            record = queues.records().try_open(request.commands);
                            return record != record_pool<client>::none;
                          },
                          deadline()),
                      "Q5: no record became free");
        break;
      }
      record = queues.records().try_open(request.commands);
    }
    token<client, io_queues_ref<client, Rules>> handle(queues, record, range);
    std::uint32_t home = random.below(range.count);
    for (std::uint32_t c = 0; c < request.commands; ++c) {
      std::uint32_t const at = request.first_command + c;
      planned_command& plan = commands_[at];
      if (plan.opcode == nvme::io_opcode::write) {
        // A store that the drive must see: one word of each block.
        for_words(
            plan, [&](std::uint64_t* word, std::uint64_t byte) { client::st(word, detail::stamp(seed_, byte)); },
            detail::block_bytes);
      }
      io_command command;
      command.opcode = plan.opcode;
      command.slba = plan.slba;
      command.blocks = plan.blocks;
      command.bytes = std::uint64_t{plan.blocks} * detail::block_bytes;
      command.buffer = buffers_.subspan(plan.buffer_offset_bytes, command.bytes);
      audit_->submitting(at);
      for (;;) {
        status const submitted = queues.submit(range, home, command, record, deadline());
        if (submitted.ok()) break;
        if (submitted.kind() == fault::cancelled) {
          client::check(may_delete(), "a submission is cancelled, but no queue was deleted");
          {
            unobserved const quiet;
            plan.where = planned_command::state::cancelled;
          }
          queues.records().complete(record, fault::cancelled);
          break;
        }
        // The queue is full of commands that do not complete. Their owners must ask for them, and this lane may be one.
        client::check(shape_.faults.withhold_ppm != 0, "Q5: a submission times out, but nothing was withheld");
        if (!mine.open.empty()) {
          settle(mine, random);
        } else {
          // Asks for this request's own commands; it cannot end before all of them were submitted.
          status result;
          client::check(!queues.wait(client::converged(), record, range, client::clock_ns(), result),
                        "Q1: a request ends before all its commands were submitted");
        }
      }
    }
    if (request.detached) {
      handle.detach();
      mine.detached.push_back(index);
    } else {
      mine.open.push_back({index, handle});
    }
  }

  /// As the host's flush does for buffers of detached requests: afterwards they are the lane's again.
  void settle_all(io_queues_ref<client, Rules> queues, lane_state& mine) {
    client::check(queues.settle(0, 1) == 0, "a healthy command was given up");
    for (std::uint32_t const index : mine.detached) {
      detail::planned_request const& request = requests_[index];
      for (std::uint32_t c = 0; c < request.commands; ++c) {
        planned_command const& command = commands_[request.first_command + c];
        {
          unobserved const quiet;
          client::check(command.where == planned_command::state::posted,
                        "a command of a detached request is in flight after all were waited for");
        }
        if (command.opcode != nvme::io_opcode::read || command.posted_status != 0) continue;
        for_words(
            command,
            [&](std::uint64_t* word, std::uint64_t byte) {
              client::check(client::ld(word) == detail::stamp(seed_, byte), "Q1: a read delivers the wrong data");
              client::st(word, detail::stamp(seed_, byte));
            },
            detail::block_bytes);
      }
    }
    mine.detached.clear();
  }

  /// Waits for one of the lane's requests; or looks at it first, and perhaps leaves it for later.
  void settle(lane_state& mine, simt::random_source& random) {
    std::size_t const which = random.below(static_cast<std::uint32_t>(mine.open.size()));
    open_request& open = mine.open[which];
    if (random.below(4) == 0 && !open.handle.ready() && random.below(2) == 0) return;
    for (std::uint32_t polls = random.below(8); shape_.poll_ns != 0 && polls != 0; --polls) {
      std::uint64_t const soon = client::clock_ns() + shape_.poll_ns;
      if (random.below(2) == 0) {
        (void)client::wait_until([&] { return open.handle.ready(); }, soon);
      } else if (status const early = open.handle.wait(soon); early.kind() != fault::timed_out) {
        verify(requests_[open.request], early);
        mine.open.erase(mine.open.begin() + static_cast<std::ptrdiff_t>(which));
        return;
      }
    }
    await(mine, which, random);
  }

  void await(lane_state& mine, std::size_t which, simt::random_source& random) {
    open_request& open = mine.open[which];
    status const result = open.handle.wait(deadline());
    if (result.kind() == fault::timed_out) return timed_out(mine, which, random);
    verify(requests_[open.request], result);
    mine.open.erase(mine.open.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void timed_out(lane_state& mine, std::size_t which, simt::random_source& random) {
    open_request& open = mine.open[which];
    bool explained = false;
    {
      unobserved const quiet;
      detail::planned_request const& request = requests_[open.request];
      for (std::uint32_t c = 0; c < request.commands; ++c) {
        explained = explained || commands_[request.first_command + c].withheld;
      }
    }
    client::check(explained, "a wait times out, but none of its commands was withheld");
    client::check(!shape_.all_but_withheld_first || audit_->posted() + 1 >= commands_.size(),
                  "Q8: a withheld command stalls others of its queue");
    // A lane that detaches now asks no more, so the one request must be enough.
    if (random.below(4) == 0 && !shape_.all_but_withheld_first && shape_.mailbox_words > 1 &&
        shape_.recovery != recovery_policy::abort_then_delete) {
      open.handle.detach();
      mine.open.erase(mine.open.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }

  bool may_delete() const {
    return shape_.recovery != recovery_policy::none && shape_.recovery != recovery_policy::abort;
  }

  /// Checks status and data of a request that was waited for.
  void verify(detail::planned_request const& request, status result) {
    bool failed = false;
    bool known = false;
    for (std::uint32_t c = 0; c < request.commands; ++c) {
      planned_command const& command = commands_[request.first_command + c];
      std::uint16_t posted_status = 0;
      bool posted = false;
      {
        unobserved const quiet;
        posted = command.where == planned_command::state::posted;
        posted_status = command.posted_status;
      }
      if (!posted) {
        client::check(may_delete(), "Q1: a request ends before its commands have completed");
        failed = true;
        known = known || result.kind() == fault::cancelled;
      } else if (posted_status != 0) {
        failed = true;
        known = known || result == status::from_nvme(posted_status);
      } else if (command.opcode == nvme::io_opcode::read) {
        for_words(
            command,
            [&](std::uint64_t* word, std::uint64_t byte) {
              client::check(client::ld(word) == detail::stamp(seed_, byte), "Q1: a read delivers the wrong data");
            },
            detail::block_bytes);
      }
    }
    client::check(failed == !result.ok(), "Q7: the wait succeeds though a command failed, or the other way round");
    client::check(!failed || known, "Q7: the wait returns a status that none of its commands had");
    unobserved const quiet;
    if (failed) ++failures_;
    if (result.kind() == fault::cancelled) ++cancelled_;
  }

  void help(io_queues_ref<client, Rules> queues) {
    if (!Rules::waiters_help) return;
    // Until nothing is left: a lane that sleeps must have seen each ring empty.
    for (std::uint32_t i = 0; i < shape_.queues; ++i) {
      while (queues.pair(i).try_poll(queues.prp_pages(), queues.records())) {
      }
    }
  }

  /// Nobody waits for detached requests, so this does.
  void drain(io_queues_ref<client, Rules> queues) {
    slot_pool const records = queues_->state()->free_records;
    std::uint32_t const capacity =
        shape_.records != 0 ? shape_.records : static_cast<std::uint32_t>(requests_.size()) + 1;
    client::check(client::wait_until(
                      [&] {
                        // Read before helping: a lane that sleeps must have helped with what it knows.
                        std::vector<bool> dead;
                        for (std::uint32_t i = 0; i < shape_.queues; ++i) dead.push_back(queues.pair(i).dead());
                        help(queues);
                        for (std::uint32_t i = 0; i < shape_.queues; ++i) {
                          if (!queues.pair(i).idle() && !dead[i]) return false;
                        }
                        for (std::uint32_t w = 0; w < records.word_count; ++w) {
                          // Acquire pairs with the release in slot_pool::give().
                          if (simt::atomic<agent_machine>(records.words[w]).load(simt::order::acquire) !=
                              slot_pool::all_free(capacity, w)) {
                            return false;
                          }
                        }
                        return true;
                      },
                      simt::no_deadline),
                  "drain");
  }

  // After the run
  // ------------------------------------------------------------------------------------------------------

  std::string settled_wrong(std::uint64_t timeouts, std::uint64_t asked) {
    bool const withholds = shape_.faults.withhold_ppm != 0;
    if (!withholds && timeouts != 0 && shape_.poll_ns == 0) {
      return "a wait reached its deadline, but nothing was withheld";
    }
    if (!withholds && asked != 0) {
      return "Q7: recovery was asked for a healthy command";
    }
    for (std::size_t i = 0; i < commands_.size(); ++i) {
      planned_command const& command = commands_[i];
      std::string const name = "command " + std::to_string(i);
      bool const posted = command.where == planned_command::state::posted;
      if (!posted && !may_delete()) return "Q1: " + name + " never completed";
      if (!posted) continue;
      bool const recovered = command.withheld || may_delete();
      if (command.must_fail_with != command.posted_status && !recovered) return "Q7: " + name + " has the wrong status";
      if (command.posted_status != 0) continue;
      bool wrong = false;
      for_words(command, [&](std::uint64_t* word, std::uint64_t at) {
        std::uint64_t on_drive = 0;
        std::memcpy(&on_drive, media_.data() + at, 8);
        wrong = wrong || on_drive != detail::stamp(seed_, at) || *word != detail::stamp(seed_, at);
      });
      if (wrong) return "Q1: " + name + " left wrong data";
    }
    io_queues_state const& state = *queues_->state();
    auto const prp_pages = static_cast<std::uint32_t>(state.prp_pages.pages.size_bytes() / detail::page_bytes);
    for (std::uint32_t w = 0; w < state.prp_pages.free.word_count; ++w) {
      if (state.prp_pages.free.words[w] != slot_pool::all_free(prp_pages, w)) return "Q1: a PRP page is lost";
    }
    for (std::uint32_t i = 0; i < shape_.queues; ++i) {
      queue_pair_state const& pair = state.pairs[i];
      std::string const where = " of queue " + std::to_string(i + 1);
      for (std::uint32_t id = 0; id + 1 < shape_.cq_entries; ++id) {
        if (pair.commands[id].word != 0) return "Q2: command id " + std::to_string(id) + where + " is lost";
      }
      if (pair.protocol_errors != 0) return "Q1: protocol errors" + where;
      if ((pair.cq_head & queue_pair_state::taken) != 0) return "Q4: the completion ring" + where + " is taken";
      if (static_cast<std::uint32_t>(pair.doorbell) != 0) return "Q3: the doorbell" + where + " is taken";
      for (std::uint32_t slot = 0; slot < shape_.sq_entries; ++slot) {
        if (pair.published[slot] != 0) return "Q3: an entry" + where + " was published, but not rung for";
      }
      if (pair.dead != 0) continue;
      auto const tail = ring_position::from_word(pair.sq_tail);
      std::uint32_t const count = tail.count(shape_.sq_entries);
      if (pair.limit - count != std::min(shape_.sq_entries, shape_.cq_entries) - 1) return "Q2: room is lost" + where;
      std::vector<bool> free(pair.ids);
      for (std::uint32_t k = 0; k < pair.ids; ++k) free[pair.free_ids[(count + k) & pair.free_ids_mask]] = true;
      if (std::count(free.begin(), free.end(), false) != 0) return "Q2: a command id is lost" + where;
      auto const head = ring_position::from_word(pair.cq_head);
      if (pair.doorbell >> 32 != tail.slot || pair.sq_head != count || pair.sq_head_slot != tail.slot ||
          pair.freed != count || pair.completed != count || pair.cq_reported != head.count(shape_.cq_entries)) {
        return "Q6: counters disagree" + where;
      }
    }
    return {};
  }

  schedule_shape const shape_;
  std::uint64_t const seed_;
  std::uint32_t const lane_count_;
  std::vector<planned_command> commands_;
  std::vector<detail::planned_request> requests_;
  std::vector<lane_state> lanes_;
  std::unique_ptr<detail::arena> memory_;
  std::unique_ptr<emulator::dma_regions> regions_;
  std::vector<queue_pair_rings> rings_;
  std::unique_ptr<io_queues> queues_;
  std::vector<std::uint64_t> pages_;
  buffer_ref buffers_;
  std::vector<std::byte> media_;
  std::unique_ptr<emulator::engine<audited_drive, agent_machine>> engine_;
  std::unique_ptr<completion_relay> relay_;  ///< null: data does not come after completions
  audit* audit_ = nullptr;
  std::uint32_t finished_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t stop_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t cancelled_ = 0;
};

/// Builds and runs the schedule that shape, seed and mode describe.
template <class Rules = queue_rules, class Client = audited_client>
schedule_outcome run_schedule(schedule_shape const& shape, std::uint64_t seed, schedule_mode mode) {
  schedule<Rules, Client> s(shape, seed);
  using policy = schedule_mode::policy;
  switch (mode.scheduler) {
    case policy::sticky_random: {
      simt::random scheduler(seed, 8);
      return s.run(scheduler, mode.memory);
    }
    case policy::random: {
      simt::random scheduler(seed, 2);
      return s.run(scheduler, mode.memory);
    }
    case policy::round_robin: {
      simt::round_robin scheduler;
      return s.run(scheduler, mode.memory);
    }
    case policy::pct3:
    case policy::pct5:
      break;
  }
  simt::pct scheduler(seed, mode.scheduler == policy::pct3 ? 3 : 5, 200 * s.command_count());
  return s.run(scheduler, mode.memory);
}

}  // namespace forebay::test
