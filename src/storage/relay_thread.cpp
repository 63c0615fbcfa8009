// SPDX-License-Identifier: Apache-2.0
#include "storage/relay_thread.hpp"

#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "forebay/detail/simt/native.hpp"

namespace forebay::detail {

relay_thread::relay_thread(std::shared_ptr<opened_drives> drives, bool data_on_gpu, memory::resource& shared_memory)
    : drives_(std::move(drives)) {
  std::vector<drive::device*> late;
  for (opened_drive const& d : *drives_) {
    if (d.source->data_may_be_late(false) || d.source->data_may_be_late(data_on_gpu)) late.push_back(d.source.get());
  }
  if (late.empty()) return;
  relay_ = std::make_unique<completion_relay>(shared_memory, [this, late = std::move(late)] {
    for (drive::device* const d : late) d->order_data();
    // Relaxed: a statistic.
    flushes_.fetch_add(1, std::memory_order_relaxed);
  });
  thread_ = std::thread([this] { run(); });
}

relay_thread::~relay_thread() {
  // Relaxed: the join orders everything else.
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

completion_relay* relay_thread::of(std::size_t drive, bool data_on_gpu) const {
  return (*drives_)[drive].source->data_may_be_late(data_on_gpu) ? relay_.get() : nullptr;
}

std::uint64_t relay_thread::flushes() const {
  // Relaxed: a statistic.
  return flushes_.load(std::memory_order_relaxed);
}

void relay_thread::run() {
  // Relaxed: the destructor joins the thread.
  auto const stopped = [this] { return stop_.load(std::memory_order_relaxed); };
  try {
    while (!stopped()) {
      // Each wait backs off anew, so a completion soon after another is seen at once, and an idle thread sleeps.
      static_cast<void>(simt::native::wait_until([&] { return relay_->has_news() || stopped(); }, simt::no_deadline));
      relay_->step();
    }
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "forebay: storage: completions cannot be delivered, because their data is not there: %s\n",
                 failure.what());
  }
}

}  // namespace forebay::detail
