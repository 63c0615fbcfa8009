// SPDX-License-Identifier: Apache-2.0
#include "storage/relay_thread.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "forebay/detail/simt/native.hpp"
#include "storage/gpu_access.hpp"

namespace forebay::detail {

relay_thread::relay_thread(std::shared_ptr<opened_drives> drives, bool data_on_gpu, memory::resource& shared_memory)
    : drives_(std::move(drives)) {
  bool any = false;
  for (opened_drive const& d : *drives_) {
    drive::device* const its = d.source.get();
    relays_.emplace_back();
    // Also host threads' data may go to a GPU's memory, and kernels' to the host's.
    if (!its->data_may_be_late(false) && !its->data_may_be_late(data_on_gpu)) continue;
    any = true;
    relays_.back() = std::make_unique<completion_relay>(shared_memory, [this, its] {
      its->order_data();
      // Relaxed: a statistic.
      flushes_.fetch_add(1, std::memory_order_relaxed);
    });
  }
  if (any) thread_ = std::thread([this] { run(); });
}

relay_thread::~relay_thread() {
  // Relaxed: the join orders everything else.
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

std::uint64_t relay_thread::flushes() const {
  // Relaxed: a statistic.
  return flushes_.load(std::memory_order_relaxed);
}
void relay_thread::reset_counts() const {
  // Relaxed: a statistic.
  flushes_.store(0, std::memory_order_relaxed);
}

void relay_thread::run() {
  // A flush may ask CUDA, beside captures of the program's threads.
  if (gpu_access* const cuda = cuda_access()) cuda->allow_captures();
  // Relaxed: the destructor joins the thread.
  auto const stopped = [this] { return stop_.load(std::memory_order_relaxed); };
  auto const has_news = [](std::unique_ptr<completion_relay> const& r) { return r && r->has_news(); };
  while (!stopped()) {
    // Each wait backs off anew, so a completion soon after another is seen at once.
    static_cast<void>(simt::native::wait_until(
        [&] { return std::any_of(relays_.begin(), relays_.end(), has_news) || stopped(); }, simt::no_deadline));
    for (std::size_t d = 0; d < relays_.size(); ++d) {
      if (!has_news(relays_[d])) continue;
      try {
        relays_[d]->step();
      } catch (std::exception const& failure) {
        relays_[d]->end();
        std::fprintf(stderr, "forebay: drive '%s': no completion can be delivered, because its data is not there: %s\n",
                     (*drives_)[d].uri.c_str(), failure.what());
      }
    }
  }
}

}  // namespace forebay::detail
