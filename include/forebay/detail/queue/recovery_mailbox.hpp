// SPDX-License-Identifier: Apache-2.0
//! \file
//! How device code asks the host to abort a command that does not complete.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// A command that is too old.
struct recovery_request {
  std::uint32_t pair_index = 0;
  std::uint32_t command_id = 0;
  /// `command_slot::time_of` the command's word. It distinguishes the command from a later one that has its id, and
  /// perhaps its target, when the host looks.
  std::uint32_t submitted = 0;

  FOREBAY_DEVICE friend constexpr bool operator==(recovery_request const& a, recovery_request const& b) {
    return a.pair_index == b.pair_index && a.command_id == b.command_id && a.submitted == b.submitted;
  }
};

/// A few words in memory that both sides reach (pinned, if the device is a GPU). Losing a request is harmless: the
/// thread that next waits for the command asks again. Trivially copyable; any number of threads post, one takes.
struct recovery_mailbox {
  std::uint64_t* words = nullptr;
  std::uint32_t capacity = 0;

  /// Drops the request if the mailbox is full or already holds it.
  template <class M>
  FOREBAY_DEVICE void post(recovery_request const& request) const {
    std::uint64_t const wanted = encode(request);
    for (std::uint32_t k = 0; k < capacity; ++k) {
      std::uint64_t seen = 0;
      // Release pairs with the acquire in take(). No plain load comes first: it could return a request that was taken
      // long ago, and this one would be dropped.
      if (simt::atomic<M, simt::scope::system>(words[k]).compare_exchange(seen, wanted, simt::order::release)) return;
      if (seen == wanted) return;
    }
  }

  /// The next request; false if there is none.
  template <class M>
  FOREBAY_DEVICE bool take(recovery_request& request) const {
    for (std::uint32_t k = 0; k < capacity; ++k) {
      auto word = simt::atomic<M, simt::scope::system>(words[k]);
      // Acquire pairs with the release in post().
      std::uint64_t const found = word.load(simt::order::acquire);
      if (found == 0) continue;
      // Relaxed: frees the word; there is nothing that a poster must see.
      word.store(0, simt::order::relaxed);
      request = {static_cast<std::uint32_t>(found >> 48) - 1, static_cast<std::uint32_t>(found >> 32 & 0xffff),
                 static_cast<std::uint32_t>(found)};
      return true;
    }
    return false;
  }

 private:
  /// Never 0: there are fewer than 65535 pairs.
  FOREBAY_DEVICE static std::uint64_t encode(recovery_request const& r) {
    return static_cast<std::uint64_t>(r.pair_index + 1) << 48 | static_cast<std::uint64_t>(r.command_id) << 32 |
           r.submitted;
  }
};

}  // namespace forebay
