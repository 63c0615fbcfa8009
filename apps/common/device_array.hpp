// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array in the memory of the machine that a kernel runs on, filled and read by the host between launches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "forebay/memory.hpp"

namespace forebay::apps {

/// Move-only. Not thread-safe; no launch may be running while the host copies.
template <class T>
class device_array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// `count` elements of zero bytes.
  device_array(memory::resource& from, std::size_t count)
      : memory_(from, bytes_for(count), alignment_bytes), count_(count) {}
  device_array(memory::resource& from, std::span<T const> values) : device_array(from, values.size()) {
    assign(values);
  }

  T* data() const { return memory_.as<T>(); }
  std::size_t size() const { return count_; }
  /// Sets the first `values.size()` elements.
  void assign(std::span<T const> values) {
    if (!values.empty()) memory_.from().copy_in(memory_.data(), values.data(), values.size_bytes());
  }
  /// Forgets all elements but the first `count`, and keeps their memory.
  void truncate(std::size_t count) { count_ = std::min(count, count_); }
  /// The first `count` elements.
  std::vector<T> to_host(std::size_t count) const {
    std::vector<T> values(count);
    if (count != 0) memory_.from().copy_out(values.data(), memory_.data(), count * sizeof(T));
    return values;
  }
  std::vector<T> to_host() const { return to_host(count_); }

 private:
  static constexpr std::size_t alignment_bytes = 256;  // no two arrays share a cache line
  static std::size_t bytes_for(std::size_t count) { return count == 0 ? sizeof(T) : count * sizeof(T); }

  memory::allocation memory_;
  std::size_t count_;
};

}  // namespace forebay::apps
