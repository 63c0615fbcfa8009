// SPDX-License-Identifier: Apache-2.0
//! \file
//! Bytes of a drive that clients have claimed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "forebay/error.hpp"

namespace forebay::drive::served {

/// The claims that a drive's clients have. They mean nothing to the drive: they only keep apart clients that ask first.
/// Thread-safe.
class claims {
 public:
  static constexpr std::size_t most_of_one_client = 1024;

  /// Returns 0 if [first, first + bytes) is now `client`'s. Otherwise another client's claim is in the way, and the
  /// result is where that claim ends.
  std::uint64_t add(void const* client, std::uint64_t first, std::uint64_t bytes) {
    if (bytes == 0 || bytes > ~std::uint64_t{0} - first) {
      throw refused_input("bytes", std::to_string(bytes), "claim at least one byte, and none beyond the last one");
    }
    std::lock_guard const lock(mutex_);
    std::size_t of_client = 0;
    for (claim const& c : all_) {
      if (c.client == client) {
        ++of_client;
      } else if (c.first < first + bytes && first < c.first + c.bytes) {
        return c.first + c.bytes;
      }
    }
    if (of_client == most_of_one_client) {
      throw operation_failed("drive daemon: a client may have " + std::to_string(most_of_one_client) + " claims");
    }
    all_.push_back({client, first, bytes});
    return 0;
  }
  void remove(void const* client, std::uint64_t first, std::uint64_t bytes) {
    std::lock_guard const lock(mutex_);
    auto const found = std::find_if(all_.begin(), all_.end(), [&](claim const& c) {
      return c.client == client && c.first == first && c.bytes == bytes;
    });
    if (found != all_.end()) all_.erase(found);
  }
  void remove_all(void const* client) {
    std::lock_guard const lock(mutex_);
    std::erase_if(all_, [&](claim const& c) { return c.client == client; });
  }

 private:
  struct claim {
    void const* client;
    std::uint64_t first, bytes;
  };
  std::mutex mutex_;
  std::vector<claim> all_;
};

}  // namespace forebay::drive::served
