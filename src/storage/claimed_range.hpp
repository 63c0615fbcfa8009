// SPDX-License-Identifier: Apache-2.0
//! \file
//! Bytes of a storage that no other client of its drives may claim while this object lives.
#pragma once

#include <cstdint>

#include "forebay/detail/drive/drive.hpp"

namespace forebay::detail {

/// Claims on the first drive of a storage alone. Clients that share bytes of a storage have all its drives in the same
/// order, so one place keeps them apart. Not copyable; the drive must outlive it.
class claimed_range {
 public:
  claimed_range(drive::device& on, std::uint64_t first_byte, std::uint64_t bytes)
      : on_(on), first_byte_(first_byte), bytes_(bytes), taken_to_(on.claim(first_byte, bytes)) {}
  ~claimed_range() {
    if (taken_to_ == 0) on_.unclaim(first_byte_, bytes_);
  }
  claimed_range(claimed_range const&) = delete;
  claimed_range& operator=(claimed_range const&) = delete;
  /// 0 if the bytes are claimed. Otherwise the end of the claim that is in the way.
  std::uint64_t taken_to() const { return taken_to_; }

 private:
  drive::device& on_;
  std::uint64_t const first_byte_, bytes_, taken_to_;
};

}  // namespace forebay::detail
