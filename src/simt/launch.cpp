// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/launch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "forebay/detail/simt/backoff.hpp"
#include "forebay/detail/simt/barrier_word.hpp"
#include "forebay/error.hpp"
#include "lanes.hpp"
#include "stacks.hpp"

namespace forebay::simt::detail {

namespace {

/// What the multiprocessors of one launch share.
struct launch_state {
  grid shape;
  std::function<void()> const& kernel;
  std::uint32_t const grid_id;  // tells it from launches that run at the same time
  bool const lanes_meet;
  std::atomic<std::uint32_t> next_block{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string failure;  // of the first lane that failed; guarded by `mutex`

  void fail(std::string what) {
    std::lock_guard const lock(mutex);
    if (failure.empty()) failure = std::move(what);
    failed.store(true, std::memory_order_relaxed);  // pairs with the loads in multiprocessor: only says to stop
  }
};

/// A lane and its neighbours in the ring of those that can run.
struct ring_lane : lane {
  ring_lane* next = nullptr;  // null: not in the ring
  ring_lane* previous = nullptr;
};

/// One OS thread's lanes, run in turn.
class multiprocessor final : public lockstep {
 public:
  multiprocessor(launch_state& launch, std::uint32_t blocks, std::size_t stack_bytes)
      : launch_(launch),
        lanes_(std::size_t{blocks} * launch.shape.threads_per_block),
        groups_(blocks),
        stacks_(static_cast<std::uint32_t>(lanes_.size()), stack_bytes) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].owner = this;
      lanes_[i].id = static_cast<std::uint32_t>(i);
      lanes_[i].blocks = launch.shape.blocks;
      lanes_[i].threads_per_block = launch.shape.threads_per_block;
      lanes_[i].grid = launch.grid_id;
    }
  }

  /// Runs blocks until none is left or a lane of the launch failed.
  void work() {
    unobserved const quiet;
    own_.make_own();
    exceptions_ = thread_exceptions();
    for (auto& group : groups_) start_block(group);
    while (cursor_ != nullptr && !stopped()) {
      enter(*cursor_);
      if (finished_ != nullptr) start_block(*std::exchange(finished_, nullptr));
    }
    bool const hangs = std::any_of(groups_.begin(), groups_.end(), [](auto const& group) { return group.live != 0; });
    if (hangs && !stopped()) report_deadlock();
    for (auto& l : lanes_) context::tell_dropped(l.fiber, own_, this);
    tell_acquire(this);
  }

  std::uint64_t clock_ns() override { return native::clock_ns(); }

  bool wait_sleep(std::uint64_t deadline_ns, std::uint32_t misses, location where) override {
    unobserved const quiet;
    auto& l = me();
    if (misses == 0) note_progress();  // the lane has done other work since its last wait
    if (++since_clock_ >= ring_size_) {
      since_clock_ = 0;
      now_ns_ = native::clock_ns();
    }
    // `now_ns_` may be as old as the last pass: a deadline is never seen too early.
    if (now_ns_ >= deadline_ns) return false;
    if (++idle_ > ring_size_) {
      idle_ = 1;
      // Every lane that can run has evaluated its predicate in vain since any of them did something else.
      observed const work_of_others;  // which the thread may do meanwhile
      between_passes_.pause(native::clock_ns(), no_deadline);
    }
    l.where = where;
    l.state = lane_state::waiting;
    give_way();
    return true;
  }

  void check_failed(char const* what, location where) override {
    unobserved const quiet;
    {
      report(std::string("check failed: ") + what, where);
      stop();
    }
  }

  std::uint32_t choose(std::uint32_t) override { return 0; }
  std::uint32_t converged(location where) override {
    if (launch_.lanes_meet) {
      // The lane goes on after one pass. Within the predicate of a wait that is no progress: the wait must back off.
      if (!me().watching) note_progress();
      return lockstep::converged(where);
    }
    unobserved const quiet;
    return own_bit();
  }
  std::uint64_t collect(collective kind, std::uint32_t mask, std::uint64_t operand, std::uint32_t source,
                        location where) override {
    if (mask == own_bit() && (kind != collective::shuffle || source % 32 == me().thread % 32)) {
      switch (kind) {
        case collective::any:
        case collective::all:
          return operand != 0;
        case collective::ballot:
          return operand != 0 ? mask : 0;
        case collective::match:
          return mask;
        case collective::sync:
        case collective::shuffle:
          return operand;
      }
    }
    return lockstep::collect(kind, mask, operand, source, where);
  }
  bool stopping() override { return false; }
  void look_for_bulk_copies(std::uint64_t* barrier) override {
    auto& copies = me().group->bulk_copies;
    if (copies.empty()) return;
    unobserved const quiet;
    // In the order in which they were started; the rest stay in theirs.
    auto const first_left =
        std::stable_partition(copies.begin(), copies.end(), [&](auto const& copy) { return copy.barrier == barrier; });
    for (auto copy = copies.begin(); copy != first_left; ++copy) {
      std::memcpy(copy->to, copy->from, copy->bytes);
      // Lanes of a block share an OS thread, so nothing changes the word meanwhile. Release: pairs with the acquire in
      // fiber::barrier_passed.
      std::uint64_t const word = host_load(barrier, order::relaxed);
      host_store(barrier, barrier_word::after(word, 0 - copy->bytes, 0), order::release);
    }
    copies.erase(copies.begin(), first_left);
  }

  // Only scheduled runs watch accesses.
  void point(location) override {}
  void seen(void const*, std::uint32_t, std::uint64_t) override {}
  void wrote(void const*, std::uint32_t) override {}
  void worked() override {}
  void wait_begin() override {}
  void wait_end() override {}
  std::uint64_t load(void const*, std::uint32_t, order, scope, location) override { return 0; }
  void store(void*, std::uint32_t, std::uint64_t, order, scope, location) override {}
  void modify_begin(void*, std::uint32_t, order, scope, location) override {}
  void modify_end(void*, std::uint32_t, std::uint64_t, bool, order, scope) override {}
  std::uint64_t plain_load(void const*, std::uint32_t, location) override { return 0; }
  std::uint64_t speculative_load(void const*, std::uint32_t) override { return 0; }
  void plain_store(void*, std::uint32_t, std::uint64_t, location) override {}
  void fence(order, scope) override {}

 protected:
  void give_way() override {
    auto& from = me();
    if (stopped()) leave();
    auto& to = advance();
    if (&to != &from) switch_to(from, to, false);
  }

  void set_runnable(lane& l, bool is) override {
    auto& r = static_cast<ring_lane&>(l);
    if ((r.next != nullptr) == is) return;
    if (!is) {
      if (cursor_ == &r) cursor_ = r.next == &r ? nullptr : r.next;
      r.previous->next = r.next;
      r.next->previous = r.previous;
      r.next = r.previous = nullptr;
      --ring_size_;
      return;
    }
    note_progress();
    ++ring_size_;
    if (cursor_ == nullptr) {
      cursor_ = r.next = r.previous = &r;
      return;
    }
    r.next = cursor_;
    r.previous = cursor_->previous;
    r.previous->next = r.next->previous = &r;
  }

  void begin_copy(std::byte* to, std::byte const*, std::uint32_t bytes, location) override {
    std::fill_n(to, bytes, pattern);
  }
  void end_copy(started_copy& copy, location) override { std::memcpy(copy.to, copy.from, copy.bytes); }

  void report(std::string what, location where) override {
    launch_.fail(describe_position(me()) + ": " + std::move(what) + "; at " + describe(where));
  }
  void stop() override { leave(); }

 private:
  ring_lane& me() { return *static_cast<ring_lane*>(current); }
  std::uint32_t own_bit() { return 1u << me().thread % 32; }
  bool stopped() const { return launch_.failed.load(std::memory_order_relaxed); }  // pairs with launch_state::fail

  void start_block(block_group& group) {
    // Blocks are independent, so the counter orders nothing.
    std::uint32_t const rank = launch_.next_block.fetch_add(1, std::memory_order_relaxed);
    if (rank >= launch_.shape.blocks) return;
    tell_acquire(this);  // the slot's shared memory and stacks were those of lanes that ended
    auto const& shape = launch_.shape;
    group.live = shape.threads_per_block;
    group.bulk_copies.clear();
    if (group.shared == nullptr) group.shared = std::make_unique<std::byte[]>(shape.shared_bytes + 1);
    // Shared memory starts uninitialised; a pattern exposes kernels that rely on zeros.
    std::fill_n(group.shared.get(), shape.shared_bytes, std::byte{0xcd});
    auto const first = static_cast<std::size_t>(&group - groups_.data()) * shape.threads_per_block;
    group.lanes.resize(shape.threads_per_block);
    for (std::uint32_t t = 0; t < shape.threads_per_block; ++t) {
      auto& l = lanes_[first + t];
      group.lanes[t] = &l;
      l.block = rank;
      l.shared = group.shared.get();
      l.shared_bytes = shape.shared_bytes;
      enlist(l, &group, t);
      l.fiber.make(stacks_[l.id], stacks_.size_bytes(), &multiprocessor::lane_main);
      set_runnable(l, true);
    }
  }

  static void lane_main(boost::context::detail::transfer_t transfer) {
    auto& l = *static_cast<ring_lane*>(current);
    context::started(l.fiber, transfer);
    static_cast<multiprocessor*>(l.owner)->lane_body(l);
  }

  /// False: the lane failed. Nothing of its failure is left on the stack then.
  bool run_body(ring_lane& l) {
    std::string failure;
    try {
      observed const lane_code;
      launch_.kernel();
    } catch (std::exception const& e) {
      failure = std::string("exception: ") + e.what();
    } catch (...) {
      failure = "exception that is no std::exception";
    }
    if (failure.empty()) failure = retire(l);
    if (!failure.empty()) launch_.fail(describe_position(l) + ": " + failure);
    return failure.empty();
  }

  [[noreturn]] void lane_body(ring_lane& l) {
    if (!run_body(l)) leave();
    tell_release(this);
    set_runnable(l, false);
    if (l.group->live == 0) {
      // The next block may get this lane's stack, so its context starts from the thread's own exception state.
      finished_ = l.group;
      leave();
    }
    if (stopped()) leave();
    switch_to(l, advance(), true);
    std::terminate();  // nothing picks a lane that ended
  }

  /// The next lane in the ring, ready to be switched to.
  ring_lane& advance() {
    if (cursor_ == nullptr) leave();  // for work() to report
    auto& to = *cursor_;
    cursor_ = to.next;
    make_ready(to);
    return to;
  }
  void make_ready(ring_lane& to) {
    if (to.state == lane_state::converging) converge(to);
    to.state = lane_state::ready;
  }

  void report_deadlock() {
    std::vector<lane*> hanging;
    for (auto& l : lanes_)
      if (l.state != lane_state::fresh && l.state != lane_state::ended) hanging.push_back(&l);
    launch_.fail("deadlock: no lane of an OS thread can go on" + describe_stuck(hanging));
  }

  void note_progress() {
    idle_ = 0;
    between_passes_.start_over();
  }

  void switch_to(ring_lane& from, ring_lane& to, bool dying) {
    current = &to;
#if defined(FOREBAY_SIMT_TSAN)
    fences = &to.fences;
#endif
    context::jump(from.fiber, to.fiber, exceptions_, dying);
  }
  void enter(ring_lane& to) {
    cursor_ = to.next;
    make_ready(to);
    auto* const outer = std::exchange(current, &to);
#if defined(FOREBAY_SIMT_TSAN)
    fences = &to.fences;
#endif
    context::jump(own_, to.fiber, exceptions_);
    current = outer;
#if defined(FOREBAY_SIMT_TSAN)
    fences = nullptr;
#endif
  }
  /// Back to the OS thread's own stack, for ever.
  [[noreturn]] void leave() {
    context::jump(me().fiber, own_, exceptions_, true);
    std::terminate();
  }

  launch_state& launch_;
  std::vector<ring_lane> lanes_;
  std::vector<block_group> groups_;
  stacks stacks_;
  context own_;
  exception_state* exceptions_ = nullptr;
  ring_lane* cursor_ = nullptr;  // the lane that runs next
  std::uint64_t ring_size_ = 0;
  block_group* finished_ = nullptr;
  std::uint64_t now_ns_ = 0;
  std::uint64_t since_clock_ = 0;  // waits since `now_ns_` was read
  std::uint64_t idle_ = 0;         // vain evaluations in a row, of this pass over the ring
  backoff between_passes_;
};

}  // namespace

void launch_fibers(grid const& shape, std::function<void()> const& kernel, launch_options const& options) {
  if (shape.blocks == 0) throw refused_input("grid.blocks", "0", "a grid has at least one block");
  if (shape.threads_per_block == 0 || shape.threads_per_block > 1024)
    throw refused_input("grid.threads_per_block", std::to_string(shape.threads_per_block), "use 1 to 1024");
  if (options.stack_bytes < 16 * 1024)
    throw refused_input("launch_options.stack_bytes", std::to_string(options.stack_bytes), "use at least 16384");
  std::uint32_t const wanted = options.os_threads != 0 ? options.os_threads : std::thread::hardware_concurrency();
  std::uint32_t const threads = std::clamp(wanted, 1u, shape.blocks);
  std::uint32_t const fitting = options.resident_lanes / threads / shape.threads_per_block;
  std::uint32_t const resident = std::clamp(fitting, 1u, (shape.blocks + threads - 1) / threads);
  std::size_t stack_bytes = options.stack_bytes;
#if defined(__SANITIZE_ADDRESS__) || defined(FOREBAY_SIMT_TSAN)
  stack_bytes *= 4;
#endif

  static std::atomic<std::uint32_t> launches{0};
  // Relaxed: only that the numbers differ.
  launch_state state{.shape = shape,
                     .kernel = kernel,
                     .grid_id = launches.fetch_add(1, std::memory_order_relaxed) % host_grids,
                     .lanes_meet = options.lanes_meet,
                     .mutex = {},
                     .failure = {}};
  std::vector<std::unique_ptr<multiprocessor>> processors;
  for (std::uint32_t i = 0; i < threads; ++i)
    processors.push_back(std::make_unique<multiprocessor>(state, resident, stack_bytes));
  {
    std::vector<std::jthread> others;
    for (std::uint32_t i = 0; i < threads; ++i) others.emplace_back([&p = *processors[i]] { p.work(); });
  }
  if (!state.failure.empty()) throw operation_failed(state.failure);
}

}  // namespace forebay::simt::detail
