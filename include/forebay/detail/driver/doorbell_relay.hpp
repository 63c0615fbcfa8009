// SPDX-License-Identifier: Apache-2.0
//! \file
//! Doorbells of a controller whose registers the ringing threads cannot reach: words in memory, and a thread that
//! forwards what is stored there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "forebay/memory.hpp"

namespace forebay::driver {

/// Gives each doorbell register a word in memory, to which any thread stores as to the register: a thread of a GPU too,
/// if that GPU reaches the memory. A thread of this object looks at the words and forwards each value that it finds,
/// also if the register had that value before. Of values that follow each other quickly in one word, only the last is
/// sure to be forwarded. The thread looks at the words up to the last one that `word` was asked for, so words that
/// nobody uses cost it no time. All members may be called from any thread.
class doorbell_relay {
 public:
  /// Stores `value` to the register at `offset_bytes`, as `register_space::write32` does. It is called by one thread at
  /// a time, it must not throw, and it must not call the relay.
  using forward_function = std::function<void(std::uint32_t offset_bytes, std::uint32_t value)>;

  /// Makes words for the registers from `registers::doorbell_base` on, `words` registers of 32 bits. Throws
  /// `refused_input` if `from` gives memory that host threads do not reach, or if there are no words, and what
  /// `from` throws if it has no memory. `from` must outlive the relay.
  doorbell_relay(memory::resource& from, std::uint32_t words, forward_function forward);
  doorbell_relay(doorbell_relay const&) = delete;
  doorbell_relay& operator=(doorbell_relay const&) = delete;
  /// Forwards the values that were stored before, then ends. The words are gone afterwards.
  ~doorbell_relay();

  /// The word of the register at `offset_bytes`. Valid as long as this object. Throws `std::out_of_range` if there is
  /// none. Order a store to it after the queue's entries with `fence(scope::system, order::release)`. A word cannot
  /// carry the value 0xffffffff, which no ring needs.
  std::uint32_t* word(std::uint32_t offset_bytes) const;

  /// Forwards the values that were stored before this call, if the thread has not yet done so. Comes before an access
  /// of another register that must not overtake a doorbell, as it could not on a bus.
  void forward_stored();

  /// How many values were forwarded so far.
  std::uint64_t forwarded() const;

 private:
  void run();
  bool has_news() const;
  std::uint32_t words_in_use() const;

  memory::allocation page_;
  std::uint32_t words_;
  mutable std::atomic<std::uint32_t> words_in_use_ = 0;  ///< no word from here on was asked for
  forward_function forward_;
  std::mutex mutex_;  ///< one thread takes values and forwards them
  std::atomic<std::uint64_t> forwarded_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace forebay::driver
