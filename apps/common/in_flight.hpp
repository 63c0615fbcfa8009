// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands that one thread keeps in flight together: started in free slots, and finished in the order in which they
//! complete.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::apps {

/// A slot for one command. `Command` is what the thread remembers of it.
template <class Token, class Command>
struct in_flight_slot {
  using token_type = Token;

  Token token;
  Command command;
  std::uint64_t begun_ns;      ///< before the call that submits it
  std::uint64_t submitted_ns;  ///< after that call
  bool in_flight;
};

/// The part of an array that belongs to one thread.
struct in_flight_share {
  std::uint32_t first;
  std::uint32_t count;

  /// Of thread `rank` if `threads` threads share `total` slots: no two counts differ by more than 1.
  FOREBAY_DEVICE static constexpr in_flight_share of(std::uint32_t total, std::uint32_t threads, std::uint32_t rank) {
    std::uint32_t const each = total / threads, rest = total % threads;
    return {rank * each + (rank < rest ? rank : rest), each + (rank < rest ? 1 : 0)};
  }
};

/// `Slot` is an `in_flight_slot` whose token is a `token<M>` or a model of it. The functions that take `work` call
///
///     Slot::token_type work.submit(i)                 start the command that slot i describes
///     void work.finish(i, outcome, now_ns)            it ended, seen at now_ns; its slot is free, and `begin` may be
///                                                     called for any slot that is
///
/// A command that could not be started because there was no room is submitted again; `work` does not see that.
template <class M, class Slot>
class in_flight {
 public:
  /// `slots` are those of all threads, zeroed. A thread gives its commands up if none of them completes for
  /// `timeout_ns`.
  FOREBAY_DEVICE in_flight(Slot* slots, in_flight_share mine, std::uint64_t timeout_ns)
      : slots_(slots), mine_(mine), timeout_ns_(timeout_ns) {}

  /// Slots of this thread, and how many of them have a command in flight.
  FOREBAY_DEVICE std::uint32_t size() const { return mine_.count; }
  FOREBAY_DEVICE std::uint32_t count() const { return count_; }
  FOREBAY_DEVICE Slot& operator[](std::uint32_t i) const { return slots_[mine_.first + i]; }
  /// Among the slots of all threads.
  FOREBAY_DEVICE std::uint32_t number(std::uint32_t i) const { return mine_.first + i; }

  /// Starts the command of the free slot `i`.
  template <class Work>
  FOREBAY_DEVICE void begin(std::uint32_t i, Work& work) {
    begin(i, work, M::clock_ns());
  }
  /// The same for a caller that has just read the clock.
  template <class Work>
  FOREBAY_DEVICE void begin(std::uint32_t i, Work& work, std::uint64_t now_ns) {
    Slot& s = (*this)[i];
    s.begun_ns = now_ns;
    submit(s, i, work);
    s.in_flight = true;
    ++count_;
    give_up_ns_ = s.submitted_ns + timeout_ns_;
  }

  /// Returns when commands were finished, `woken()` holds, or the deadline has passed. If none completed in time, each
  /// command is finished as `timed_out`, or with its own status if it has completed after all. Recovery has been asked
  /// for the commands that stay away, and what they name belongs to them until the storage is drained.
  template <class Work, class Woken>
  FOREBAY_DEVICE void wait(Work& work, std::uint64_t deadline_ns, Woken&& woken) {
    bool const may_give_up = count_ != 0 && give_up_ns_ < deadline_ns;
    if (may_give_up) deadline_ns = give_up_ns_;
    // Giving up is the same poll once more and not another function, so its code, and that of `work`, exists once.
    for (bool give_up = false; !M::wait_until([&] { return poll(work, give_up) || woken(); }, deadline_ns);) {
      if (!may_give_up) return;
      give_up = true;
    }
  }
  template <class Work>
  FOREBAY_DEVICE void wait(Work& work) {
    wait(work, simt::no_deadline, [] { return false; });
  }

 private:
  template <class Work>
  FOREBAY_DEVICE void submit(Slot& s, std::uint32_t i, Work& work) {
    s.token = work.submit(i);
    s.submitted_ns = M::clock_ns();
  }

  /// Finishes every command that has completed; with `give_up`, every command. Returns whether there was one.
  template <class Work>
  FOREBAY_DEVICE bool poll(Work& work, bool give_up) {
    bool any = false;
    // A thread with one command has nothing else to look at.
    std::uint32_t const looks = mine_.count == 1 ? M::looks_per_poll : 1;
    for (std::uint32_t i = 0; i < mine_.count; ++i) {
      Slot& s = (*this)[i];
      if (!s.in_flight || (!s.token.ready(looks) && !give_up)) continue;
      std::uint64_t const now_ns = M::clock_ns();
      status const outcome = s.token.wait(now_ns);
      if (!give_up && (outcome == status(fault::busy) || outcome == status(fault::no_record))) {
        submit(s, i, work);  // which is no progress
        continue;
      }
      if (outcome == status(fault::timed_out)) s.token.detach();
      s.in_flight = false;
      --count_;
      give_up_ns_ = now_ns + timeout_ns_;
      work.finish(i, outcome, now_ns);
      any = true;
    }
    return any;
  }

  Slot* slots_;
  in_flight_share mine_;
  std::uint64_t timeout_ns_;
  std::uint64_t give_up_ns_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace forebay::apps
