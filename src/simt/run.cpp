// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/run.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <queue>
#include <tuple>
#include <utility>

#include "forebay/detail/simt/barrier_word.hpp"
#include "forebay/error.hpp"
#include "lanes.hpp"
#include "memory.hpp"
#include "stacks.hpp"

namespace forebay::simt {

namespace {

using namespace detail;

/// Unwinds an agent that was still running when the run ended.
struct agent_cancelled {};

/// A place that a sleeping lane watches.
struct watched {
  void const* address;
  std::uint32_t bytes;
  std::uint64_t value;
};

struct scheduled_lane : lane {
  std::vector<watched> watches;
  std::uint64_t deadline_ns = no_deadline;
  std::uint64_t sleep = 0;  // serial number of its wait, to tell old timers from new ones
  std::uint64_t steps = 0;
  bool runnable = false;
  std::uint64_t idle_since = 0;  // `progress_` when `unmet` began to count
  std::uint32_t unmet = 0;       // evaluations since
  bool woken = false;            // by its deadline or by the end of the grid, whatever it watches
  agent const* as_agent = nullptr;
  bool knows_end = false;  // an agent that looked again after the grid ended
};

/// Sets of lanes by address: the sleeping lanes that might watch the address.
class watch_index {
 public:
  explicit watch_index(std::uint32_t lanes) : words_((lanes + 63) / 64), bits_(buckets * words_) {}
  void add(void const* address, std::uint32_t lane) { word(address, lane) |= std::uint64_t{1} << (lane % 64); }
  void remove(void const* address, std::uint32_t lane) { word(address, lane) &= ~(std::uint64_t{1} << (lane % 64)); }
  template <class Visit>
  void for_each(void const* address, Visit&& visit) const {
    auto const* words = &bits_[bucket(address) * words_];
    for (std::size_t i = 0; i < words_; ++i)
      for (std::uint64_t rest = words[i]; rest != 0; rest &= rest - 1)
        visit(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(rest))));
  }

 private:
  static constexpr std::size_t buckets = 256;
  static std::size_t bucket(void const* address) {
    return (reinterpret_cast<std::uintptr_t>(address) >> 3) * 0x9e3779b97f4a7c15u >> 56;
  }
  std::uint64_t& word(void const* address, std::uint32_t lane) { return bits_[bucket(address) * words_ + lane / 64]; }
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

/// The stacks of this OS thread's runs, kept from run to run.
stacks& run_stacks(std::uint32_t count, std::size_t bytes) {
  thread_local stacks kept;
#if defined(FOREBAY_SIMT_TSAN)
  kept = stacks();  // ThreadSanitizer remembers which thread used an address, so every run gets fresh ones
#endif
  if (kept.count() < count || kept.size_bytes() != bytes) {
    kept = stacks();
    kept = stacks(count, bytes);
  }
  return kept;
}

class deterministic final : public lockstep, public memory_host {
 public:
  deterministic(run_options const& options, scheduler& schedule, grid const& shape, std::function<void()> const& kernel,
                std::vector<agent> const& agents)
      : options_(options),
        schedule_(schedule),
        shape_(shape),
        kernel_(kernel),
        grid_lanes_(shape.blocks * shape.threads_per_block),
        lanes_(grid_lanes_ + agents.size()),
        groups_(shape.blocks),
        index_(static_cast<std::uint32_t>(lanes_.size())),
        exceptions_(thread_exceptions()),
        live_lanes_(grid_lanes_) {
    auto const count = static_cast<std::uint32_t>(lanes_.size());
    std::vector<scope_position> positions(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& l = lanes_[i];
      l.owner = this;
      l.scheduled = true;
      l.weak = options.memory != memory_model::sequential;
      l.id = i;
      l.blocks = shape.blocks;
      l.threads_per_block = shape.threads_per_block;
      if (i < grid_lanes_) {
        l.block = i / shape.threads_per_block;
        positions[i] = {0, l.block};
      } else {
        l.as_agent = &agents[i - grid_lanes_];
        l.blocks = l.threads_per_block = 1;
        positions[i] = {1 + l.as_agent->domain, i};
        live_agents_ += l.as_agent->daemon ? 0 : 1;
      }
    }
    switch (options.memory) {
      case memory_model::sequential:
        break;
      case memory_model::store_buffers:
        memory_ = make_store_buffers(*this, count);
        break;
      case memory_model::race_detector:
        memory_ = make_clocks(*this, std::move(positions), false);
        break;
      case memory_model::stale_reads:
        memory_ = make_clocks(*this, std::move(positions), true);
        break;
    }
    std::size_t stack_bytes = options.stack_bytes;
#if defined(__SANITIZE_ADDRESS__) || defined(FOREBAY_SIMT_TSAN)
    stack_bytes *= 4;
#endif
    stacks_ = &run_stacks(count, (stack_bytes + 4095) / 4096 * 4096);
  }

  run_result go() {
    unobserved const quiet;
    auto* const outer = std::exchange(current, nullptr);
    own_.make_own();
    schedule_.begin(static_cast<std::uint32_t>(lanes_.size()));
    try {
      start_blocks();
      for (auto i = grid_lanes_; i < lanes_.size(); ++i) start(lanes_[i], nullptr, 0);
      if (auto* first = pick(); first != nullptr) enter(*first);
    } catch (std::exception const& e) {  // a replay that diverged at its first choice
      note_failure(e.what(), nullptr);
    }
    cancelling_ = true;
    if (memory_ != nullptr) memory_->settle();
    cancel_agents();
    if (memory_ != nullptr) memory_->settle();
    for (auto& l : lanes_) context::tell_dropped(l.fiber, own_, this);
    tell_acquire(this);
    current = outer;
    result_.time_ns = now_ns_;
    return std::move(result_);
  }

  // executor
  void point(location where) override {
    unobserved const quiet;
    if (cancelling_) return;
    me().where = where;
    give_way();
  }
  void seen(void const* address, std::uint32_t bytes, std::uint64_t value) override {
    unobserved const quiet;
    auto& watches = me().watches;
    auto const known = std::find_if(watches.begin(), watches.end(),
                                    [&](watched const& w) { return w.address == address && w.bytes == bytes; });
    if (known != watches.end()) {
      known->value = value;
    } else {
      watches.push_back({address, bytes, value});
    }
  }
  void wrote(void const* address, std::uint32_t) override {
    unobserved const quiet;
    changed(address);
  }
  void worked() override {
    unobserved const quiet;
    if (idle_ != 0) note_progress();
  }
  void wait_begin() override {
    unobserved const quiet;
    me().watches.clear();
    me().together = 0;
  }
  void wait_end() override {}
  bool wait_sleep(std::uint64_t deadline_ns, std::uint32_t misses, location where) override {
    unobserved const quiet;
    if (cancelling_) return false;
    auto& l = me();
    l.where = where;
    schedule_.unmet(l.id, misses);
    // A wait looks again when another wait's look wrote something, so waits can keep each other awake. On a machine
    // whose clock runs that ends when the next event comes. If no event will come it is a livelock.
    if (++idle_ > 1000 + 200 * lanes_.size()) {
      report("livelock: only unmet waits in the last " + std::to_string(idle_ - 1) + " evaluations" + stuck(), where);
      stop();
    }
    if (std::exchange(l.idle_since, progress_) != progress_) l.unmet = 0;
    ++l.unmet;
    if (idle_ % (8 * lanes_.size()) == 0 && all_idle() && pass_time(deadline_ns)) note_progress();
    if (now_ns_ >= deadline_ns) {
      ++(l.as_agent != nullptr ? result_.agent_timeouts : result_.timeouts);
      return false;
    }
    if (l.watches.empty() && deadline_ns == no_deadline && l.as_agent == nullptr) {
      report("wait_until: the predicate reads nothing through the machine, so nothing can wake the lane", where);
      stop();
    }
    l.state = lane_state::waiting;
    l.deadline_ns = deadline_ns;
    ++l.sleep;
    // The grid may have ended since an agent's predicate looked: it looks once more.
    l.woken = l.as_agent != nullptr && stopping_ && !std::exchange(l.knows_end, true);
    if (deadline_ns != no_deadline) timers_.push({deadline_ns, l.id, l.sleep});
    for (auto const& w : l.watches) index_.add(w.address, l.id);
    if (!l.woken && !differs(l)) set_runnable(l, false);
    give_way();
    for (auto const& w : l.watches) index_.remove(w.address, l.id);
    return true;
  }
  std::uint64_t load(void const* address, std::uint32_t bytes, order o, scope s, location where) override {
    unobserved const quiet;
    step(where);
    return memory_->load(me(), address, bytes, o, s, where);
  }
  void store(void* address, std::uint32_t bytes, std::uint64_t value, order o, scope s, location where) override {
    unobserved const quiet;
    step(where);
    memory_->store(me(), address, bytes, value, o, s, where);
  }
  void modify_begin(void* address, std::uint32_t bytes, order o, scope s, location where) override {
    unobserved const quiet;
    step(where);
    memory_->modify_begin(me(), address, bytes, o, s, where);
  }
  void modify_end(void* address, std::uint32_t bytes, std::uint64_t value, bool stored, order o, scope s) override {
    unobserved const quiet;
    memory_->modify_end(me(), address, bytes, value, stored, o, s);
  }
  std::uint64_t plain_load(void const* address, std::uint32_t bytes, location where) override {
    unobserved const quiet;
    if (is_own_stack(address)) return detail::read_bytes(address, bytes);
    return memory_->plain_load(me(), address, bytes, where);
  }
  std::uint64_t speculative_load(void const* address, std::uint32_t bytes) override {
    unobserved const quiet;
    if (is_own_stack(address)) return detail::read_bytes(address, bytes);
    return memory_->speculative_load(me(), address, bytes);
  }
  void plain_store(void* address, std::uint32_t bytes, std::uint64_t value, location where) override {
    unobserved const quiet;
    // Memory that others cannot reach takes no part in the memory order. The lane must find its store there at once,
    // and the stack may be gone when a delayed store would arrive.
    if (is_own_stack(address)) return detail::write_bytes(address, bytes, value);
    memory_->plain_store(me(), address, bytes, value, where);
    if (idle_ != 0) note_progress();  // as in `worked`
  }
  void fence(order o, scope s) override { memory_->fence(me(), o, s); }
  std::uint64_t clock_ns() override { return now_ns_; }
  std::uint32_t choose(std::uint32_t n) override {
    unobserved const quiet;
    return choice(n);
  }
  bool stopping() override {
    unobserved const quiet;
    if (stopping_) tell_acquire(this);
    if (stopping_ && memory_ != nullptr) memory_->grid_ended(me());
    return stopping_;
  }
  void look_for_bulk_copies(std::uint64_t*) override {}
  void check_failed(char const* what, location where) override {
    unobserved const quiet;
    {
      report(std::string("check failed: ") + what, where);
      stop();
    }
  }

  // memory_host
  std::uint32_t choice(std::uint32_t n) override {
    if (n <= 1 || cancelling_) return 0;
    return record(schedule_.choose(n));
  }
  void changed(void const* address) override {
    index_.for_each(address, [&](std::uint32_t id) {
      auto& l = lanes_[id];
      if (!l.runnable && l.state == lane_state::waiting && differs(l)) set_runnable(l, true);
    });
  }
  std::string name(std::uint32_t id) override {
    auto const& l = lanes_[id];
    return l.as_agent != nullptr ? "agent " + l.as_agent->name : describe_position(l);
  }

 protected:
  void give_way() override {
    if (cancelling_) throw agent_cancelled{};
    auto& from = me();
    if (!from.watching && from.state == lane_state::ready && idle_ != 0) note_progress();
    ++from.steps;
    if (++result_.steps > options_.max_steps) {
      auto const busiest = std::max_element(lanes_.begin(), lanes_.end(),
                                            [](auto const& a, auto const& b) { return a.steps < b.steps; });
      {
        report("step limit: " + std::to_string(options_.max_steps) + " steps, " + std::to_string(busiest->steps) +
                   " of " + name(busiest->id) + ", last at " + describe(busiest->where) + stuck(),
               from.where);
        stop();
      }
    }
    scheduled_lane* to = nullptr;
    bool diverged = false;
    try {
      if (memory_ != nullptr) memory_->step();
      if (copies_under_way_ != 0 && choice(8) == 0) land_copy();
      to = pick();
    } catch (std::runtime_error const& e) {  // a replay
      report(e.what(), from.where);
      diverged = true;
    }
    if (diverged) stop();
    if (to == nullptr) {
      report("deadlock: no lane can go on" + stuck(), from.where);
      stop();
    }
    if (to->state == lane_state::waiting) to->state = lane_state::ready;
    set_runnable(*to, true);
    if (to != &from) {
      switch_to(from, *to);
      if (cancelling_) throw agent_cancelled{};
    }
  }
  void set_runnable(lane& l, bool is) override {
    auto& s = static_cast<scheduled_lane&>(l);
    if (s.runnable == is) return;
    s.runnable = is;
    runnable_ += is ? 1u : ~0u;
    schedule_.runnable(s.id, is);
  }
  void begin_copy(std::byte* to, std::byte const* from, std::uint32_t bytes, location where) override {
    step(where);
    for_each_granule(to, bytes, [&](std::byte* at, std::uint32_t n) {
      // The source is read again when the copy arrives. This read finds a race with what came before.
      if (memory_ != nullptr) (void)memory_->plain_load(me(), from + (at - to), n, where);
      store_data(at, n, pattern_word, where);
    });
    ++copies_under_way_;
  }
  void end_copy(started_copy& copy, location where) override {
    step(where);
    for_each_granule(copy.to, copy.bytes, [&](std::byte* at, std::uint32_t n) {
      auto const* const source = copy.from + (at - copy.to);
      // Read in any case: a race with what came since the lane started the copy is found.
      std::uint64_t const now =
          memory_ != nullptr ? memory_->plain_load(me(), source, n, where) : read_bytes(source, n);
      if (!copy.arrived) write_bytes(&copy.data[static_cast<std::size_t>(at - copy.to)], n, now);
    });
    if (!std::exchange(copy.arrived, true)) --copies_under_way_;
    for_each_granule(copy.to, copy.bytes, [&](std::byte* at, std::uint32_t n) {
      store_data(at, n, read_bytes(&copy.data[static_cast<std::size_t>(at - copy.to)], n), where);
    });
  }
  void began_bulk_copy(location where) override {
    if (memory_ == nullptr) return;
    auto const& copy = me().group->bulk_copies.back();
    // Other lanes learn of the bytes, and so of the pattern before them, through the barrier. Release: pairs with the
    // acquire in fiber::barrier_passed. Later changes of the word continue this release.
    memory_->modify_begin(me(), copy.barrier, sizeof *copy.barrier, order::release, scope::block, where);
    memory_->modify_end(me(), copy.barrier, sizeof *copy.barrier, *copy.barrier, true, order::release, scope::block);
  }

  void report(std::string what, location where) override {
    if (!cancelling_) note_failure(std::move(what) + (where.line() != 0 ? "; at " + describe(where) : ""), &me());
  }
  void stop() override {
    if (cancelling_) throw agent_cancelled{};
    leave();
  }
  void synchronised(std::span<lane* const> members) override {
    if (memory_ != nullptr) memory_->synchronised(members);
  }
  bool converges() override { return choice(4) != 0; }

 private:
  struct timer {
    std::uint64_t deadline_ns;
    std::uint32_t lane;
    std::uint64_t sleep;
    bool operator>(timer const& other) const {
      return std::tie(deadline_ns, lane, sleep) > std::tie(other.deadline_ns, other.lane, other.sleep);
    }
  };

  scheduled_lane& me() { return *static_cast<scheduled_lane*>(current); }

  /// Calls `visit(address, bytes)` for the parts of an area that each lie in one granule of 8 bytes.
  template <class Visit>
  static void for_each_granule(std::byte* area, std::uint32_t bytes, Visit&& visit) {
    for (std::uint32_t done = 0; done < bytes;) {
      auto const in_granule = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(area + done) % 8);
      std::uint32_t const n = std::min(bytes - done, 8 - in_granule);
      visit(area + done, n);
      done += n;
    }
  }
  /// A plain store of the current lane.
  void store_data(std::byte* at, std::uint32_t bytes, std::uint64_t value, location where) {
    if (memory_ != nullptr) {
      memory_->plain_store(me(), at, bytes, value, where);
    } else {
      write_bytes(at, bytes, value);
      changed(at);
    }
  }

  /// Lets one of the copies that are under way arrive.
  void land_copy() {
    std::uint32_t n = choice(copies_under_way_);
    --copies_under_way_;
    note_progress();
    for (auto& l : lanes_) {
      for (auto& copy : l.copies) {
        if (!copy.arrived && n-- == 0) return land(l, copy);
      }
    }
    for (auto& group : groups_) {
      if (n < group.bulk_copies.size()) {
        auto const at = group.bulk_copies.begin() + n;
        started_bulk_copy const copy = *at;
        group.bulk_copies.erase(at);
        return land(copy);
      }
      n -= static_cast<std::uint32_t>(group.bulk_copies.size());
    }
  }
  void land(scheduled_lane& by, started_copy& copy) {
    copy.arrived = true;
    bring(by, copy.to, copy.from, copy.bytes);
    // Kept for the lane's wait: a store of the pattern that is held back could come after these bytes.
    std::memcpy(copy.data.data(), copy.to, copy.bytes);
  }
  void land(started_bulk_copy const& copy) {
    bring(static_cast<scheduled_lane&>(*copy.by), copy.to, copy.from, copy.bytes);
    // Relaxed: the word continues the release of began_bulk_copy. A lane that acquires it sees these bytes.
    constexpr std::uint32_t bytes = sizeof *copy.barrier;
    if (memory_ != nullptr) {
      memory_->modify_begin(*copy.by, copy.barrier, bytes, order::relaxed, scope::block, copy.where);
    }
    *copy.barrier = barrier_word::after(*copy.barrier, 0 - copy.bytes, 0);
    if (memory_ != nullptr) {
      memory_->modify_end(*copy.by, copy.barrier, bytes, *copy.barrier, true, order::relaxed, scope::block);
    }
    changed(copy.barrier);
  }
  /// Puts what `by` would read at the source into the target, past the memory model: no lane stores these bytes.
  void bring(scheduled_lane const& by, std::byte* to, std::byte const* from, std::uint32_t bytes) {
    for_each_granule(to, bytes, [&](std::byte* at, std::uint32_t n) {
      auto const* const source = from + (at - to);
      write_bytes(at, n, memory_ != nullptr ? memory_->visible(by, source, n) : read_bytes(source, n));
      changed(at);
    });
  }

  bool is_own_stack(void const* address) {
    // Only with store buffers can a store of a lane come late. In the other models a lane sees its own stores at once.
    if (options_.memory != memory_model::store_buffers) return false;
    std::byte const* const stack = (*stacks_)[me().id];
    return address >= stack && address < stack + stacks_->size_bytes();
  }

  void step(location where) {
    if (cancelling_) return;
    me().where = where;
    give_way();
  }

  std::uint32_t record(std::uint32_t chosen) {
    if (options_.record) result_.trace.push_back(static_cast<std::uint16_t>(chosen));
    return chosen;
  }

  bool differs(scheduled_lane const& l) const {
    return std::any_of(l.watches.begin(), l.watches.end(), [&](watched const& w) {
      return (memory_ != nullptr ? memory_->visible(l, w.address, w.bytes) : read_bytes(w.address, w.bytes)) != w.value;
    });
  }

  /// The lane to run next, ready to be switched to; null if none ever can.
  scheduled_lane* pick() {
    std::uint32_t const last = current != nullptr ? me().id : 0;
    for (;;) {
      if (runnable_ == 0) {
        if (memory_ != nullptr && memory_->advance()) continue;
        if (copies_under_way_ != 0) {
          land_copy();
          continue;
        }
        if (wake_changed() || advance_time()) continue;
        return nullptr;
      }
      auto& l = lanes_[record(schedule_.next(last))];
      if (l.state == lane_state::waiting && !l.woken && !differs(l)) {
        set_runnable(l, false);
        continue;
      }
      if (l.state == lane_state::converging) converge(l);
      return &l;
    }
  }

  /// Wakes lanes whose values were changed by accesses that the machine did not see.
  bool wake_changed() {
    for (auto& l : lanes_)
      if (l.state == lane_state::waiting && differs(l)) set_runnable(l, true);
    return runnable_ != 0;
  }

  bool advance_time() {
    while (!timers_.empty()) {
      timer const next = timers_.top();
      timers_.pop();
      auto& l = lanes_[next.lane];
      if (l.state != lane_state::waiting || l.sleep != next.sleep) continue;
      now_ns_ = std::max(now_ns_, next.deadline_ns);
      l.woken = true;
      set_runnable(l, true);
      return true;
    }
    return false;
  }

  void note_progress() {
    idle_ = 0;
    ++progress_;
  }
  /// Whether every lane that could run has looked twice in vain since anything else happened. A lane that has stored
  /// data since, within a predicate that does work, has not.
  bool all_idle() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](scheduled_lane const& l) {
      return !l.runnable || (l.idle_since == progress_ && l.unmet >= 2);
    });
  }
  /// Advances time to the next deadline of all lanes in a wait, asleep or not. The current lane's is `mine_ns`.
  bool pass_time(std::uint64_t mine_ns) {
    // If several deadlines have come together, advance_time() woke one lane.
    if (wake_due()) return true;
    std::uint64_t next_ns = mine_ns > now_ns_ ? mine_ns : no_deadline;
    for (auto const& l : lanes_) {
      bool const waits = l.state == lane_state::waiting || l.watching;
      if (&l != &me() && waits && l.deadline_ns > now_ns_) next_ns = std::min(next_ns, l.deadline_ns);
    }
    if (next_ns == no_deadline) return false;
    now_ns_ = next_ns;
    (void)wake_due();
    return true;
  }
  /// Wakes the sleeping lanes whose deadline has come. Returns whether there were any.
  bool wake_due() {
    bool any = false;
    for (; !timers_.empty() && timers_.top().deadline_ns <= now_ns_; timers_.pop()) {
      auto& l = lanes_[timers_.top().lane];
      if (l.state != lane_state::waiting || l.sleep != timers_.top().sleep) continue;
      any = true;
      l.woken = true;
      set_runnable(l, true);
    }
    return any;
  }

  void start(scheduled_lane& l, block_group* group, std::uint32_t thread) {
    enlist(l, group, thread);
    l.fiber.make((*stacks_)[l.id], stacks_->size_bytes(), &deterministic::lane_main);
    set_runnable(l, true);
  }

  void start_blocks() {
    tell_acquire(this);  // its stacks may have been those of lanes that ended
    for (; next_block_ < shape_.blocks && resident_ < options_.resident_blocks; ++next_block_, ++resident_) {
      auto& group = groups_[next_block_];
      group.live = shape_.threads_per_block;
      group.shared = std::make_unique<std::byte[]>(shape_.shared_bytes + 1);
      // Shared memory starts uninitialised; a pattern exposes kernels that rely on zeros.
      std::fill_n(group.shared.get(), shape_.shared_bytes, std::byte{0xcd});
      for (std::uint32_t t = 0; t < shape_.threads_per_block; ++t) {
        auto& l = lanes_[next_block_ * shape_.threads_per_block + t];
        group.lanes.push_back(&l);
        l.shared = group.shared.get();
        l.shared_bytes = shape_.shared_bytes;
        start(l, &group, t);
      }
    }
  }

  static void lane_main(boost::context::detail::transfer_t transfer) {
    auto& l = *static_cast<scheduled_lane*>(current);
    context::started(l.fiber, transfer);
    static_cast<deterministic*>(l.owner)->lane_body(l);
  }

  /// False: the lane failed. Nothing of its failure is left on the stack then.
  bool run_body(scheduled_lane& l) {
    std::string failure;
    try {
      observed const lane_code;
      l.as_agent != nullptr ? l.as_agent->body() : kernel_();
    } catch (agent_cancelled const&) {
    } catch (std::exception const& e) {
      failure = std::string("exception: ") + e.what();
    } catch (...) {
      failure = "exception that is no std::exception";
    }
    if (failure.empty() && !cancelling_) failure = retire(l);
    if (!failure.empty()) note_failure(failure, &l);
    return failure.empty();
  }

  [[noreturn]] void lane_body(scheduled_lane& l) {
    if (!run_body(l)) leave();
    tell_release(this);
    if (cancelling_) leave();
    l.state = lane_state::ended;
    set_runnable(l, false);
    if (l.as_agent == nullptr) {
      if (l.group->live == 0) {
        --resident_;
        start_blocks();
      }
      if (--live_lanes_ == 0) stop_agents();
    } else if (!l.as_agent->daemon) {
      --live_agents_;
    }
    if (live_lanes_ == 0 && live_agents_ == 0) leave();
    give_way();
    std::terminate();  // nothing picks a lane that ended
  }

  void stop_agents() {
    stopping_ = true;
    for (auto i = grid_lanes_; i < lanes_.size(); ++i) {
      auto& l = lanes_[i];
      if (l.state != lane_state::waiting) continue;
      l.woken = true;
      set_runnable(l, true);
    }
  }

  std::string stuck() {
    std::vector<lane*> hanging;
    std::string text;
    for (auto& l : lanes_) {
      if (l.state == lane_state::ended || l.state == lane_state::fresh) continue;
      if (l.as_agent == nullptr) {
        hanging.push_back(&l);
      } else {
        text += "\n  agent " + l.as_agent->name + " " + describe_state(l);
      }
    }
    if (next_block_ < shape_.blocks)
      text += "\n  blocks " + std::to_string(next_block_) + "-" + std::to_string(shape_.blocks - 1) +
              " have not started: " + std::to_string(options_.resident_blocks) + " blocks run at a time";
    return describe_stuck(hanging) + text;
  }

  void note_failure(std::string what, scheduled_lane const* l) {
    if (!result_.ok) return;
    result_.ok = false;
    result_.what = (l != nullptr ? name(l->id) + ": " : "") + std::move(what) + "\n  scheduler " +
                   schedule_.describe() + ", step " + std::to_string(result_.steps) + ", virtual time " +
                   std::to_string(now_ns_) + " ns";
  }

  void switch_to(scheduled_lane& from, scheduled_lane& to) {
    ++result_.switches;
    current = &to;
#if defined(FOREBAY_SIMT_TSAN)
    fences = &to.fences;
#endif
    context::jump(from.fiber, to.fiber, exceptions_);
  }
  /// From the OS thread's own stack.
  void enter(scheduled_lane& to) {
    if (to.state == lane_state::waiting) to.state = lane_state::ready;
    current = &to;
#if defined(FOREBAY_SIMT_TSAN)
    fences = &to.fences;
#endif
    context::jump(own_, to.fiber, exceptions_);
    current = nullptr;
#if defined(FOREBAY_SIMT_TSAN)
    fences = nullptr;
#endif
  }
  /// Back to the OS thread's own stack, for ever.
  [[noreturn]] void leave() {
    auto& from = me();
    context::jump(from.fiber, own_, exceptions_, from.as_agent == nullptr || from.state == lane_state::ended);
    // Only an agent comes back to this point, to be unwound.
    throw agent_cancelled{};
  }

  /// Agents own memory. This unwinds those that were still running when the run ended, so that they free it.
  void cancel_agents() {
    for (auto i = grid_lanes_; i < lanes_.size(); ++i) {
      auto& l = lanes_[i];
      if (l.state == lane_state::fresh || l.state == lane_state::ended || l.steps == 0) continue;
      l.watching = false;
      enter(l);
    }
  }

  static constexpr std::uint64_t pattern_word = 0x0101010101010101u * static_cast<std::uint64_t>(pattern);

  run_options const options_;
  scheduler& schedule_;
  grid const shape_;
  std::function<void()> const& kernel_;
  std::size_t const grid_lanes_;
  std::vector<scheduled_lane> lanes_;
  std::vector<block_group> groups_;
  watch_index index_;
  std::unique_ptr<memory> memory_;
  stacks* stacks_ = nullptr;
  context own_;
  exception_state* exceptions_;
  std::priority_queue<timer, std::vector<timer>, std::greater<>> timers_;
  run_result result_;
  std::size_t live_lanes_;
  std::size_t live_agents_ = 0;
  std::uint32_t runnable_ = 0;
  std::uint32_t next_block_ = 0;
  std::uint32_t resident_ = 0;
  std::uint64_t now_ns_ = 0;
  std::uint64_t progress_ = 1;  // changes whenever a lane does anything but look
  std::uint32_t copies_under_way_ = 0;
  std::uint64_t idle_ = 0;  // evaluations of predicates since a lane last did anything else
  bool stopping_ = false;
  bool cancelling_ = false;
};

}  // namespace

run_result run(run_options const& options, scheduler& schedule, grid const& shape, std::function<void()> kernel,
               std::vector<agent> agents) {
  std::uint64_t const lanes = std::uint64_t{shape.blocks} * shape.threads_per_block;
  if (shape.blocks == 0) throw refused_input("grid.blocks", "0", "a grid has at least one block");
  if (shape.threads_per_block == 0 || shape.threads_per_block > 1024)
    throw refused_input("grid.threads_per_block", std::to_string(shape.threads_per_block), "use 1 to 1024");
  if (lanes + agents.size() > 65'535)
    throw refused_input("grid.blocks", std::to_string(shape.blocks),
                        "a scheduled run has at most 65535 lanes and agents; use simt::launch for more");
  if (options.resident_blocks == 0)
    throw refused_input("run_options.resident_blocks", "0", "at least one block must run");
  return deterministic(options, schedule, shape, kernel, agents).go();
}

}  // namespace forebay::simt
