// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/waiting_work.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

namespace forebay::simt {
namespace {

struct alignas(64) place {
  std::atomic<waiting_work*> work{nullptr};
  std::atomic<std::uint32_t> users{0};
};

std::array<place, offered_work::offers_max> places;
/// No later place is in use. It only grows.
std::atomic<std::size_t> places_used{0};
/// Whether the thread does such work or waits for it, or never does any.
thread_local bool busy = false;

/// The child has neither the threads that offered the work nor those that did it.
void forget_all() {
  // Relaxed, all: the child has one thread.
  for (place& p : places) {
    p.work.store(nullptr, std::memory_order_relaxed);
    p.users.store(0, std::memory_order_relaxed);
  }
  places_used.store(0, std::memory_order_relaxed);
}

/// Calls `use(work)` for the work of each place until it returns true.
template <class Use>
void for_each(std::size_t count, Use&& use) {
  for (std::size_t i = 0; i < count; ++i) {
    place& p = places[i];
    // Relaxed: it only saves the closer look.
    if (p.work.load(std::memory_order_relaxed) == nullptr) continue;
    // Sequentially consistent, as the two in `~offered_work`: either this sees that the work is gone, or that sees a
    // user.
    p.users.fetch_add(1, std::memory_order_seq_cst);
    waiting_work* const found = p.work.load(std::memory_order_seq_cst);
    bool const ends = found != nullptr && use(*found);
    // Release: pairs with the look in `~offered_work`; what was done to the work came before.
    p.users.fetch_sub(1, std::memory_order_release);
    if (ends) return;
  }
}

}  // namespace

offered_work::offered_work(waiting_work& work) : work_(&work) {
  static int const registered = pthread_atfork(nullptr, nullptr, &forget_all);
  if (registered != 0) return;
  for (std::size_t i = 0; i < places.size(); ++i) {
    waiting_work* none = nullptr;
    // Sequentially consistent: as a release it pairs with the load in `for_each`, which finds the work ready.
    if (!places[i].work.compare_exchange_strong(none, work_, std::memory_order_seq_cst)) continue;
    place_ = static_cast<int>(i);
    // Relaxed: a thread that does not see it yet finds the work later.
    std::size_t known = places_used.load(std::memory_order_relaxed);
    while (known <= i && !places_used.compare_exchange_weak(known, i + 1, std::memory_order_relaxed)) {
    }
    return;
  }
}

offered_work::~offered_work() {
  if (place_ < 0) return;
  place& mine = places[static_cast<std::size_t>(place_)];
  // Sequentially consistent: see `for_each`. After a fork the place may be another's.
  waiting_work* expected = work_;
  if (!mine.work.compare_exchange_strong(expected, nullptr, std::memory_order_seq_cst)) return;
  while (mine.users.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

bool at_waiting_work() {
  return busy;
}

void do_no_waiting_work() {
  busy = true;
}

bool do_waiting_work(std::uint64_t most_ns) {
  std::size_t const count = places_used.load(std::memory_order_relaxed);  // see `offered_work`
  if (count == 0 || busy) return false;
  busy = true;
  bool worked = false, taken = false;
  for_each(count, [&](waiting_work& w) {
    waiting_work::result const r = w.work();
    worked = worked || r == waiting_work::result::some;
    taken = taken || r == waiting_work::result::taken;
    return false;
  });
  // If another thread does some of it, what the caller waits for may come at once.
  if (!worked && !taken && most_ns != 0) {
    for_each(count, [&](waiting_work& w) { return worked = w.wait(most_ns); });
  }
  busy = false;
  return worked;
}

}  // namespace forebay::simt
