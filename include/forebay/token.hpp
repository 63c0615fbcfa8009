// SPDX-License-Identifier: Apache-2.0
//! \file
//! A request in flight.
#pragma once

#include <cstdint>
#include <type_traits>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/queue/pair_range.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// One request in flight: what `read_async` and the like return. Trivially copyable, but all copies stand for one
/// request: exactly one copy is detached, or waited for until the status is not `timed_out`. A token that is
/// default-constructed has ended with success.
template <class M, class Queues = io_queues_ref<M>>
class [[nodiscard]] token {
 public:
  using machine = M;

  token() = default;
  /// A request that ended before it began.
  FOREBAY_DEVICE explicit token(status ended) : ended_(ended) {}
  /// A request whose commands are all on pairs of `range`.
  FOREBAY_DEVICE token(Queues const& queues, std::uint32_t record, pair_range range)
      : queues_(queues), record_(record), range_(range) {
    if (record_ != slot_pool::none) generation_ = queues_.generation(record_);
  }

  /// A token that is not used for a while: it takes half the registers, and some loads when it becomes a token again.
  struct parked {
    io_queues_state* queues;
    std::uint32_t record;
    pair_range range;
    status ended;
    std::uint32_t generation;
  };
  /// The parked form, for tokens of a `storage_ref` without a cache; a token is constructed from it again. `pipeline`
  /// does this for its callers.
  FOREBAY_DEVICE parked park() const
    requires(std::is_same_v<typename Queues::targets_type, record_pool<M>>)
  {
    return {queues_.state(), record_, range_, ended_, generation_};
  }
  FOREBAY_DEVICE explicit token(parked const& p)
    requires(std::is_same_v<typename Queues::targets_type, record_pool<M>>)
      : record_(p.record), range_(p.range), ended_(p.ended), generation_(p.generation) {
    if (record_ != slot_pool::none) queues_ = Queues(p.queues);
  }

  /// Whether wait() would return at once. Helps: it delivers what has completed on the request's pairs. So
  /// `M::wait_until([&] { return t.ready(); }, deadline)` waits until a deadline of the caller's, and may be repeated.
  /// When that deadline passes, this says nothing about the request and does nothing to it. ready() never asks for
  /// recovery: only wait() finds out that the drive has lost a command. A thread with nothing else to do may pass
  /// `M::looks_per_poll`, to see its completion sooner.
  FOREBAY_DEVICE bool ready(std::uint32_t looks = 1) const {
    if (record_ == slot_pool::none) return true;
    queues_.check_generation(record_, generation_);
    if (queues_.records().done(record_)) return true;
    bool done = false;
    for (std::uint32_t k = 0; k < range_.count && !done; ++k) {
      done = queues_.serve(queues_.pair(range_.at(k)), [this] { return queues_.records().done(record_); }, 0, looks);
    }
    return done;
  }

  /// The deadline of a wait that starts now and lasts the storage's default time; 0 for a request that has ended.
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const {
    return record_ == slot_pool::none ? 0 : M::clock_ns() + queues_.timeout_ns();
  }

  /// Waits up to the storage's default time.
  FOREBAY_DEVICE status wait() { return wait(default_deadline_ns()); }

  /// The first failure among the request's commands, or success. After `timed_out` the buffer still belongs to the
  /// request: wait again, or detach and leave the buffer alone until the storage has been flushed or destroyed. This
  /// call has then asked for recovery of those of the request's commands that have been in flight for longer than the
  /// storage's limits allow, and of no others. Lanes of a warp that call this together return together, when the last
  /// of them may.
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (record_ == slot_pool::none) return ended_;
    queues_.check_generation(record_, generation_);
    // Lanes that come together go on together. A lane that went on as soon as it could would come alone to whatever it
    // does next, and lanes that do the same thing one after the other take as many times as long. What each lane waits
    // for depends on the controllers only (Q4).
    if (!queues_.wait(M::converged(), record_, range_, deadline_ns, ended_)) return fault::timed_out;
    record_ = slot_pool::none;
    return ended_;
  }

  /// wait() for a caller that cannot wait again: after `timed_out` the request is detached.
  FOREBAY_DEVICE status wait_once() { return wait_once(default_deadline_ns()); }
  FOREBAY_DEVICE status wait_once(std::uint64_t deadline_ns) {
    status const outcome = wait(deadline_ns);
    if (Queues::rules_type::detaches_for_good && outcome.kind() == fault::timed_out) detach();
    return outcome;
  }

  /// Gives up the result. The buffer belongs to the request until the storage has been flushed or destroyed.
  FOREBAY_DEVICE void detach() {
    if (record_ == slot_pool::none) return;
    queues_.check_generation(record_, generation_);
    queues_.end_generation(record_);
    queues_.records().detach(record_);
    record_ = slot_pool::none;
  }

 private:
  Queues queues_;
  std::uint32_t record_ = slot_pool::none;
  pair_range range_;
  status ended_;
  /// Tells the requests that use the same record apart. It exists in every build, so that code built with
  /// `FOREBAY_DEBUG_WAITS` and code built without it agree about tokens.
  std::uint32_t generation_ = 0;
};

}  // namespace forebay
