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

/// One request in flight: what `read_async` and its kin return. Trivially copyable, but there is one request behind all
/// copies: exactly one of them is waited for with a status other
/// than `timed_out`, or detached.
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

  /// A token that nobody looks at for long: half the registers, for some loads when it is woken.
  struct parked {
    io_queues_state* queues;
    std::uint32_t record;
    pair_range range;
    status ended;
    std::uint32_t generation;
  };
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
  /// `M::wait_until([&] { return t.ready(); }, deadline)` waits until a deadline of the caller's, as often as it likes:
  /// that it passes says nothing of the request, and does nothing to it. It never asks for recovery: of a command that
  /// the drive has lost, only wait() hears. A thread with nothing else to do may pass `M::looks_per_poll`, to see its
  /// completion sooner.
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

  /// When the storage's default time, from now on, has passed; 0 for a request that has ended.
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const {
    return record_ == slot_pool::none ? 0 : M::clock_ns() + queues_.timeout_ns();
  }

  /// Waits for the storage's default time.
  FOREBAY_DEVICE status wait() { return wait(default_deadline_ns()); }

  /// The first failure among the request's commands, or success. After `timed_out` the buffer still belongs to the
  /// request: wait again, or detach and leave it alone until the storage was flushed or destroyed. Recovery has then
  /// been asked for those of its commands that have been in flight for longer than the storage's limits allow, and for
  /// no others. Lanes of a warp that call this together return together, when the last of them may.
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (record_ == slot_pool::none) return ended_;
    queues_.check_generation(record_, generation_);
    // Lanes that come together go on together: one that went on as soon as it could would come alone to whatever it
    // does next, and lanes that do the same thing one after the other take as many times as long. What each waits for
    // depends on the controllers only (Q4).
    if (!queues_.wait(M::converged(), record_, range_, deadline_ns, ended_)) return fault::timed_out;
    record_ = slot_pool::none;
    return ended_;
  }

  /// wait() of a caller who cannot wait again: after `timed_out` the request is detached.
  FOREBAY_DEVICE status wait_once() { return wait_once(default_deadline_ns()); }
  FOREBAY_DEVICE status wait_once(std::uint64_t deadline_ns) {
    status const outcome = wait(deadline_ns);
    if (Queues::rules_type::detaches_for_good && outcome.kind() == fault::timed_out) detach();
    return outcome;
  }

  /// Gives up the result. The buffer belongs to the request until the storage was flushed or destroyed.
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
  /// Which of the requests of its record. There in every build, so that code built with `FOREBAY_DEBUG_WAITS` and code
  /// built without it agree about tokens.
  std::uint32_t generation_ = 0;
};

}  // namespace forebay
