// SPDX-License-Identifier: Apache-2.0
//! \file
//! What workloads do on the host: fill buffers with seeded numbers, and compare results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/common/random.hpp"

namespace forebay::transfer {

/// Calls `part(begin, end)` for parts of [0, count), on as many threads as the machine runs at a time. `part` may be
/// called for several parts at once, and does not throw. Parts have at least `least` items.
template <class Part>
void in_parallel(std::uint64_t count, std::uint64_t least, Part&& part) {
  std::uint64_t const most = std::max(1u, std::thread::hardware_concurrency());
  std::uint64_t const threads = std::clamp<std::uint64_t>(count / std::max<std::uint64_t>(least, 1), 1, most);
  std::vector<std::jthread> others;
  for (std::uint64_t i = 1; i < threads; ++i) {
    others.emplace_back([&part, begin = count * i / threads, end = count * (i + 1) / threads] { part(begin, end); });
  }
  part(std::uint64_t{0}, count / threads);
}

/// Number `index` of a sequence of 64 random bits each. Sequences of different `(seed, stream)` are unrelated.
constexpr std::uint64_t bits_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return apps::mix64(apps::mix64(seed * 0x9e3779b97f4a7c15u + stream) ^ (index * 0xd1342543de82ef95u + 1));
}
/// The same as a multiple of 2^-23 in [-1, 1): exact as a float.
constexpr float float_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<float>(bits_at(seed, stream, index) >> 40) * 0x1p-23f - 1.0f;
}

/// Fills `count` floats with `float_at`.
inline void fill_floats(float* to, std::uint64_t count, std::uint64_t seed, std::uint64_t stream) {
  in_parallel(count, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) to[i] = float_at(seed, stream, i);
  });
}

/// `checks` places of [0, count), spread evenly with a random offset each, the first and the last among them; all of
/// them if there are no more.
inline std::vector<std::uint64_t> sampled_places(std::uint64_t count, std::uint64_t checks, std::uint64_t seed) {
  std::vector<std::uint64_t> places;
  if (count <= checks) {
    for (std::uint64_t i = 0; i < count; ++i) places.push_back(i);
    return places;
  }
  places.reserve(checks);
  for (std::uint64_t k = 0; k < checks; ++k) {
    std::uint64_t const begin = count / checks * k, width = count / checks;
    places.push_back(k == 0 ? 0 : k + 1 == checks ? count - 1 : begin + bits_at(seed, 99, k) % width);
  }
  return places;
}

/// Compares results from several threads, and keeps the first wrong one.
class comparison {
 public:
  /// `what` names the buffer that is compared.
  explicit comparison(std::string what) : what_(std::move(what)) {}

  /// `bound`: how far the result may be from the exact one, in the unit of both.
  void near(std::uint64_t at, double found, double expected, double bound) {
    // The other way round it would pass a result that is no number.
    if (std::abs(found - expected) <= bound) return;
    note_far(at, found, expected, bound);
  }
  template <class T>
  void equal(std::uint64_t at, T found, T expected) {
    if (found == expected) return;
    note(at, "is " + std::to_string(found) + " instead of " + std::to_string(expected));
  }
  /// "" if nothing was wrong, else `what[place] is ...`.
  std::string result() const { return text_; }

 private:
  void note(std::uint64_t at, std::string const& text);
  void note_far(std::uint64_t at, double found, double expected, double bound);

  std::string what_;
  std::mutex mutex_;
  std::uint64_t first_ = 0;  // guarded by `mutex_`, as `text_`
  std::string text_;
};

}  // namespace forebay::transfer
