// SPDX-License-Identifier: Apache-2.0
//! \file
//! One array for each drive of a storage.
#pragma once

#include <cstdint>

#include "forebay/array_view.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// The drives of a storage whose `stripe_bytes` is 0, or that has only one drive, as arrays of their own:
/// `values[drive][i]` is element `i` of a drive. Each drive is an `array_view` from its first byte on; all have the
/// same size. Trivially copyable; thread-safe. The array of a drive that does not exist is empty: an access to it fails
/// with `out_of_range`, as one beyond the end of any array does.
template <class T, class Cache>
class drive_arrays_view {
 public:
  using machine = typename Cache::machine;
  using view_type = array_view<T, Cache>;

  drive_arrays_view() = default;
  /// Drive `d` is bytes [d * bytes_per_drive, (d + 1) * bytes_per_drive) of the storage; `bytes_per_drive` is a
  /// multiple of the alignment of `T`.
  FOREBAY_DEVICE drive_arrays_view(Cache const& cache, std::uint32_t drives, std::uint64_t bytes_per_drive,
                                   bool writable)
      : cache_(cache),
        bytes_per_drive_(bytes_per_drive),
        elements_(bytes_per_drive / sizeof(T)),
        drives_(drives),
        writable_(writable) {}

  /// The number of drives.
  FOREBAY_DEVICE std::uint32_t size() const { return drives_; }
  /// The array of one drive.
  FOREBAY_DEVICE view_type operator[](std::uint32_t drive) const {
    return view_type(cache_, drive * bytes_per_drive_, drive < drives_ ? elements_ : 0, writable_);
  }

 private:
  Cache cache_;
  std::uint64_t bytes_per_drive_ = 0;
  std::uint64_t elements_ = 0;
  std::uint32_t drives_ = 0;
  bool writable_ = false;
};

}  // namespace forebay
