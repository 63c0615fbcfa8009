// SPDX-License-Identifier: Apache-2.0
//! \file
//! How many host threads wait, each for its own request, on few processors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <semaphore>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::nbd {

/// One of the threads that wait, the leader, looks for all of them; the others sleep until their request has ended. The
/// leader looks without a pause, because a drive may answer within microseconds. If every thread did so, they would
/// take the processors from the drive. When the leader's own request has ended, another thread leads.
///
/// `Token` is a `token<M>` or a model of it. Thread-safe.
template <class M, class Token>
class shared_wait {
 public:
  /// Returns the status of a request once it has ended. If that takes longer than `limit_ns`, asks for recovery of its
  /// commands, and again after each further `limit_ns`, `patience` times. After that the status is `timed_out`: the
  /// request is detached, and its buffer stays in use.
  status wait(Token const& request, std::uint64_t limit_ns) {
    if (request.ready()) return Token(request).wait(simt::no_deadline);
    bool leads = false;
    waiter& self = arrive(request, limit_ns, leads);
    if (!leads) {
      self.woken.acquire();
      leads = !self.ended;
    }
    if (leads) lead(self);
    return leave(self);
  }

  /// For the command, for its abort, for the end of its queue, and one to spare.
  static constexpr std::uint32_t patience = 4;

 private:
  struct waiter {
    Token request;
    std::uint64_t limit_ns = 0;
    std::uint64_t ask_ns = 0;  ///< when recovery is asked for next
    std::uint32_t asked = 0;
    bool ended = false;
    status outcome;
    std::binary_semaphore woken{0};  ///< because the request has ended, or else to lead
  };

  /// `M::wait_until` does not sleep in so short a wait.
  static constexpr std::uint64_t precise_look_ns = 100'000;
  /// Once nothing has come or ended for this long, the leader sleeps between two looks.
  static constexpr std::uint64_t precise_ns = 10'000'000;
  static constexpr std::uint64_t patient_look_ns = 1'000'000'000;

  /// `leads`: whether the caller is the leader from now on.
  waiter& arrive(Token const& request, std::uint64_t limit_ns, bool& leads) {
    std::lock_guard const lock(mutex_);
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    waiter& w = *free_.back();
    free_.pop_back();
    w.request = request;
    w.limit_ns = limit_ns;
    w.ask_ns = M::clock_ns() + limit_ns;
    w.asked = 0;
    w.ended = false;
    leads = !led_;
    led_ = true;
    arrived_.push_back(&w);
    any_arrived_.store(true, std::memory_order_relaxed);  // relaxed: the mutex orders what it announces
    return w;
  }

  status leave(waiter& self) {
    std::lock_guard const lock(mutex_);
    free_.push_back(&self);
    return self.outcome;
  }

  void lead(waiter& self) {
    std::uint64_t busy_ns = M::clock_ns();
    while (!self.ended) {
      std::uint64_t const now_ns = M::clock_ns();
      std::uint64_t const look_ns = now_ns - busy_ns < precise_ns ? precise_look_ns : patient_look_ns;
      bool const busy = M::wait_until(
          [&] {
            bool const more = adopt();
            return deliver(self) || more;
          },
          now_ns + look_ns);
      if (busy) busy_ns = M::clock_ns();
    }
    hand_over();
  }

  /// Takes those that have arrived; returns whether any have.
  bool adopt() {
    if (!any_arrived_.load(std::memory_order_relaxed)) return false;  // relaxed: a look in vain costs one more look
    std::lock_guard const lock(mutex_);
    watched_.insert(watched_.end(), arrived_.begin(), arrived_.end());
    arrived_.clear();
    any_arrived_.store(false, std::memory_order_relaxed);  // relaxed: see `arrive`
    return true;
  }

  /// Wakes those whose requests have ended; returns whether any have.
  bool deliver(waiter const& leader) {
    bool any = false;
    std::uint64_t const now_ns = M::clock_ns();
    for (std::size_t i = 0; i < watched_.size();) {
      waiter& w = *watched_[i];
      if (!has_ended(w, now_ns)) {
        ++i;
        continue;
      }
      watched_[i] = watched_.back();
      watched_.pop_back();
      any = w.ended = true;
      if (&w != &leader) w.woken.release();
    }
    return any;
  }

  static bool has_ended(waiter& w, std::uint64_t now_ns) {
    if (w.request.ready()) {
      w.outcome = w.request.wait(simt::no_deadline);
      return true;
    }
    if (now_ns < w.ask_ns) return false;
    w.outcome = w.request.wait(now_ns);  // ready() asks for no recovery
    if (w.outcome.kind() != fault::timed_out) return true;
    w.ask_ns = now_ns + w.limit_ns;
    if (++w.asked < patience) return false;
    w.request.detach();
    return true;
  }

  /// Makes the latest of those that wait the leader: it will lead for the longest time.
  void hand_over() {
    adopt();
    if (watched_.empty()) {
      std::lock_guard const lock(mutex_);
      if (arrived_.empty()) {
        led_ = false;
        return;
      }
    }
    adopt();
    watched_.back()->woken.release();
  }

  std::vector<waiter*> watched_;  ///< the leader's; `woken` orders one leader's accesses before the next one's

  std::atomic<bool> any_arrived_{false};
  std::mutex mutex_;  ///< guards all that follows
  std::vector<waiter*> arrived_;
  std::vector<waiter*> free_;
  std::deque<waiter> all_;  ///< waiters outlive their waits: a thread may wake up before the call that wakes it returns
  bool led_ = false;
};

}  // namespace forebay::nbd
