// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/backoff.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "forebay/detail/simt/waiting_work.hpp"

namespace forebay::simt {

namespace {

/// Linux adds up to the thread's timer slack to every sleep: 50 us unless told otherwise.
constexpr unsigned long slack_ns = 1'000;

/// The calling thread may be the user's, so its timer slack is set back afterwards.
void sleep_for(std::uint64_t nap_ns) {
  int const slack_before_ns = prctl(PR_GET_TIMERSLACK);
  bool const changes = slack_before_ns > static_cast<int>(slack_ns);
  if (changes) prctl(PR_SET_TIMERSLACK, slack_ns);
  timespec const nap{0, static_cast<long>(nap_ns)};
  nanosleep(&nap, nullptr);  // if a signal ends it early, the caller only looks once more
  if (changes) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_before_ns));
}

}  // namespace

void backoff::rest(std::uint64_t now_ns, std::uint64_t latest_ns) const {
  std::uint64_t const waited_ns = now_ns - since_ns_;
  std::uint64_t const left_ns = latest_ns > now_ns ? latest_ns - now_ns : 0;
  std::uint64_t nap = nap_ns(waited_ns);
  // A wait for that work ends when there is some, so it may be longer than a nap.
  std::uint64_t const most_ns = waited_ns < looking_ns ? 0 : std::min(std::max(nap, longest_nap_ns), left_ns);
  if (do_waiting_work(most_ns) || waited_ns < looking_ns) return;
  if (waited_ns < precise_wait_ns) {
    nap = left_ns <= waking_ns ? 0 : std::min(nap, left_ns - waking_ns);
  } else {
    // Some things are due every few microseconds for as long as a slow disk takes.
    nap = std::min(nap, std::max(left_ns, shortest_nap_ns));
  }
  if (nap == 0) {
    sched_yield();
  } else {
    sleep_for(nap);
  }
}

}  // namespace forebay::simt
