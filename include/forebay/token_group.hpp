// SPDX-License-Identifier: Apache-2.0
//! \file
//! Several requests that are waited for as one.
#pragma once

#include <cstdint>

#include "forebay/detail/queue/parked.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// The common status of two requests: `timed_out` while one of them has not ended, else the first failure.
FOREBAY_DEVICE constexpr status joint_status(status first, status second) {
  bool const second_counts = first.ok() || (second == status(fault::timed_out));
  return second_counts ? second : first;
}

/// `N` requests of one type, such as the rows that one sample needs. An entry that was never assigned is a request that
/// has ended with success. Index the array with constants, in unrolled loops, so that it stays in registers. A model of
/// a token: after `timed_out` the group may be waited for again.
template <class Token, std::uint32_t N>
class [[nodiscard]] token_array {
 public:
  /// The group while it is not used, as `token::parked`.
  struct parked {
    typename parking<Token>::type tokens[N];
  };

  token_array() = default;
  /// The group again; and its parked form.
  FOREBAY_DEVICE explicit token_array(parked const& p) {
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) tokens_[k] = Token(p.tokens[k]);
  }
  FOREBAY_DEVICE parked park() const {
    parked p;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) p.tokens[k] = parking<Token>::park(tokens_[k]);
    return p;
  }

  /// Request `k`.
  FOREBAY_DEVICE Token& operator[](std::uint32_t k) { return tokens_[k]; }

  /// The latest of the deadlines that waits would have that start now.
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const {
    std::uint64_t latest = 0;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) {
      std::uint64_t const deadline_ns = tokens_[k].default_deadline_ns();
      latest = latest < deadline_ns ? deadline_ns : latest;
    }
    return latest;
  }
  /// Waits for all requests, up to the storage's default time or a deadline. Returns their `joint_status`.
  FOREBAY_DEVICE status wait() { return wait(default_deadline_ns()); }
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    status all;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) all = joint_status(all, tokens_[k].wait(deadline_ns));
    return all;
  }
  /// Gives up the results, as token::detach().
  FOREBAY_DEVICE void detach() {
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) tokens_[k].detach();
  }

 private:
  Token tokens_[N];
};

/// Two requests of any types, also of groups: what `join` makes. A model of a token.
template <class First, class Second>
class [[nodiscard]] token_pair {
 public:
  /// The pair while it is not used, as `token::parked`.
  struct parked {
    typename parking<First>::type first;
    typename parking<Second>::type second;
  };

  token_pair() = default;
  /// The two requests.
  FOREBAY_DEVICE token_pair(First const& first, Second const& second) : first_(first), second_(second) {}
  /// The pair again; and its parked form.
  FOREBAY_DEVICE explicit token_pair(parked const& p) : first_(p.first), second_(p.second) {}
  FOREBAY_DEVICE parked park() const { return {parking<First>::park(first_), parking<Second>::park(second_)}; }

  /// The later of the deadlines that waits would have that start now.
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const {
    std::uint64_t const first = first_.default_deadline_ns(), second = second_.default_deadline_ns();
    return first < second ? second : first;
  }
  /// Waits for both requests, up to the storage's default time or a deadline. Returns their `joint_status`.
  FOREBAY_DEVICE status wait() { return wait(default_deadline_ns()); }
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    status const first = first_.wait(deadline_ns);
    return joint_status(first, second_.wait(deadline_ns));
  }
  /// Gives up the results, as token::detach().
  FOREBAY_DEVICE void detach() {
    first_.detach();
    second_.detach();
  }

 private:
  First first_;
  Second second_;
};

/// One token for several: `join(graph.read_async(...), features.read_async(...))`. A `token_pair` of two, or nested
/// pairs of more.
template <class First, class Second>
FOREBAY_DEVICE token_pair<First, Second> join(First const& first, Second const& second) {
  return {first, second};
}
template <class First, class Second, class... More>
FOREBAY_DEVICE auto join(First const& first, Second const& second, More const&... more) {
  return join(first, join(second, more...));
}

}  // namespace forebay
