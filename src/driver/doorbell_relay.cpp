// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/driver/doorbell_relay.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::driver {

namespace {

using simt::native;

/// What a word holds while it has no news. No ring has so many entries.
constexpr std::uint32_t nothing = 0xffffffff;
constexpr std::size_t page_bytes = 4096;

auto shared(std::uint32_t& word) {
  return simt::atomic<native, simt::scope::system>(word);
}

memory::resource& reachable(memory::resource& from) {
  if (from.kind() == memory::kind::device) {
    throw refused_input("memory", "device", "give host or pinned memory, because a host thread reads the doorbells");
  }
  return from;
}

std::size_t size_bytes(std::uint32_t words) {
  if (words == 0) throw refused_input("words", "0", "give one word or more");
  return words * sizeof(std::uint32_t);
}

}  // namespace

doorbell_relay::doorbell_relay(memory::resource& from, std::uint32_t words, forward_function forward)
    : page_(reachable(from), size_bytes(words), page_bytes), words_(words), forward_(std::move(forward)) {
  std::fill_n(page_.as<std::uint32_t>(), words_, nothing);
  thread_ = std::thread([this] { run(); });
}

doorbell_relay::~doorbell_relay() {
  // Relaxed: the join below orders everything else.
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
  forward_stored();
}

std::uint32_t* doorbell_relay::word(std::uint32_t offset_bytes) const {
  std::uint32_t const index = (offset_bytes - nvme::registers::doorbell_base) / std::uint32_t{sizeof(std::uint32_t)};
  if (offset_bytes < nvme::registers::doorbell_base || offset_bytes % sizeof(std::uint32_t) != 0 || index >= words_) {
    throw std::out_of_range("no doorbell word for the register at " + std::to_string(offset_bytes));
  }
  // Relaxed: a thread that sees a value in the word sees this too, if the store is ordered before its look. The relay's
  // thread sees it in the end.
  std::uint32_t known = words_in_use();
  while (known <= index && !words_in_use_.compare_exchange_weak(known, index + 1, std::memory_order_relaxed)) {
  }
  return page_.as<std::uint32_t>() + index;
}

void doorbell_relay::forward_stored() {
  // A value that another thread has taken is forwarded when that thread gives up the lock.
  std::lock_guard const lock(mutex_);
  std::uint32_t const in_use = words_in_use();
  for (std::uint32_t i = 0; i < in_use; ++i) {
    auto const word = shared(page_.as<std::uint32_t>()[i]);
    // Relaxed: only a hint that saves the exchange. The caller sees what was stored before, if that is ordered before
    // the call.
    if (word.load(simt::order::relaxed) == nothing) continue;
    // Acquire: pairs with the release fence before the doorbell's store, so that the controller finds the entries when
    // it hears of them. The exchange lets the same value be seen again.
    std::uint32_t const value = word.exchange(nothing, simt::order::acquire);
    forward_(nvme::registers::doorbell_base + i * std::uint32_t{sizeof(std::uint32_t)}, value);
    // Relaxed: a statistic.
    forwarded_.fetch_add(1, std::memory_order_relaxed);
  }
}

std::uint64_t doorbell_relay::forwarded() const {
  // Relaxed: a statistic.
  return forwarded_.load(std::memory_order_relaxed);
}

void doorbell_relay::run() {
  // Relaxed: the destructor joins the thread, and forwards afterwards what the thread did not see.
  auto const stopped = [this] { return stop_.load(std::memory_order_relaxed); };
  while (!stopped()) {
    // Each wait backs off anew, so a doorbell soon after another is seen at once, and an idle relay sleeps.
    static_cast<void>(native::wait_until([&] { return has_news() || stopped(); }, simt::no_deadline));
    forward_stored();
  }
}

std::uint32_t doorbell_relay::words_in_use() const {
  // Relaxed: see `word`.
  return words_in_use_.load(std::memory_order_relaxed);
}

bool doorbell_relay::has_news() const {
  // Relaxed: the exchange in `forward_stored` is what orders.
  return std::any_of(page_.as<std::uint32_t>(), page_.as<std::uint32_t>() + words_in_use(),
                     [](std::uint32_t& word) { return shared(word).load(simt::order::relaxed) != nothing; });
}

}  // namespace forebay::driver
