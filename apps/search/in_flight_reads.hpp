// SPDX-License-Identifier: Apache-2.0
//! \file
//! The reads that a warp has in flight, one for each lane.
#pragma once

#include <cstdint>

#include "apps/search/keys.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::search {

/// Each lane has a copy. All lanes of a full warp call each member together, unless it says otherwise. A lane has one
/// piece of buffer; a piece whose read was given up belongs to that read for good, and its lane begins no other.
template <class Source>
class in_flight_reads {
  using machine = typename Source::machine;
  using warp_type = typename machine::warp;

 public:
  /// `arrived`: a word in the memory of the block. `first_piece`: that of lane 0. The first `pieces` lanes have one.
  /// `lost`: lanes whose pieces belong to reads that were given up before.
  FOREBAY_DEVICE in_flight_reads(Source const& source, std::uint32_t* arrived, std::uint64_t first_piece,
                                 std::uint32_t pieces, std::uint32_t lost, std::uint64_t timeout_ns)
      : source_(source),
        arrived_(arrived),
        first_piece_(first_piece),
        timeout_ns_(timeout_ns),
        lost_(lost | (pieces < 32 ? ~std::uint32_t{0} << pieces : 0)) {}

  /// How many more reads can be begun, if at most `width` may be in flight.
  FOREBAY_DEVICE std::uint32_t room(std::uint32_t width) const {
    std::uint32_t const free = simt::count_bits(~(pending_ | lost_)), busy = simt::count_bits(pending_);
    std::uint32_t const more = width > busy ? width - busy : 0;
    return more < free ? more : free;
  }
  FOREBAY_DEVICE bool any() const { return pending_ != 0; }
  /// Lanes that begin no read any more.
  FOREBAY_DEVICE std::uint32_t lost() const { return lost_; }
  /// Whether no lane can begin a read any more.
  FOREBAY_DEVICE bool exhausted() const { return lost_ == ~std::uint32_t{0}; }

  /// Begins to read the records of `count` keys, at most `room` of them.
  FOREBAY_DEVICE void begin(warp_type const& warp, key const* keys, std::uint32_t count) {
    std::uint32_t const free = ~(pending_ | lost_);
    std::uint32_t const lane = warp.thread_rank();
    std::uint32_t const number = simt::count_bits(free & ((1u << lane) - 1));
    bool const mine = (free >> lane & 1) != 0 && number < count;
    if (mine) {
      key_ = keys[number];
      deadline_ns_ = machine::clock_ns() + timeout_ns_;
      token_ = source_.begin(first_piece_ + lane, slot_of(key_));
    }
    pending_ |= warp.ballot(mine);
  }

  /// Waits until a read has ended, and returns the lanes whose reads have. There must be one in flight.
  FOREBAY_DEVICE std::uint32_t wait(warp_type const& warp) {
    std::uint32_t const lane = warp.thread_rank();
    bool const waits = (pending_ >> lane & 1) != 0;
    if constexpr (!Source::reads) {
      std::uint32_t const all = pending_;
      pending_ = 0;
      return all;
    }
    auto arrived = simt::atomic<machine, simt::scope::block>(*arrived_);
    // relaxed, all: the barriers of the warp order the word, and the token orders what was read.
    if (lane == 0) arrived.store(0, simt::order::relaxed);
    warp.sync();
    if (waits) {
      bool const ended =
          machine::idle_until([&] { return token_.ready() || arrived.load(simt::order::relaxed) != 0; }, deadline_ns_);
      if (!ended || token_.ready()) arrived.fetch_or(1u << lane, simt::order::relaxed);
    }
    warp.sync();
    std::uint32_t const lanes = arrived.load(simt::order::relaxed);
    outcome_ = {};
    bool again = false;
    if ((lanes >> lane & 1) != 0) {
      outcome_ = token_.wait(deadline_ns_);
      if (outcome_ == status(fault::timed_out)) token_.detach();
      again = (outcome_ == status(fault::busy) || outcome_ == status(fault::no_record)) &&
              machine::clock_ns() < deadline_ns_;
    }
    std::uint32_t const lost = warp.ballot(outcome_ == status(fault::timed_out));
    std::uint32_t const retry = warp.ballot(again);
    lost_ |= lost;
    if (again) {
      // There was no room: reads of others end meanwhile.
      std::uint64_t const soon_ns = machine::clock_ns() + 1000;
      (void)machine::wait_until([] { return false; }, soon_ns < deadline_ns_ ? soon_ns : deadline_ns_);
      token_ = source_.begin(first_piece_ + lane, slot_of(key_));
    }
    warp.sync();
    pending_ &= ~lanes | retry;
    return lanes & ~retry;
  }

  /// Of a lane that `wait` returned: how its read ended, and whose record it was.
  FOREBAY_DEVICE status outcome(warp_type const& warp, std::uint32_t lane) const { return warp.shfl(outcome_, lane); }
  FOREBAY_DEVICE key key_of(warp_type const& warp, std::uint32_t lane) const { return warp.shfl(key_, lane); }
  FOREBAY_DEVICE std::uint32_t const* words(std::uint32_t lane, std::uint32_t slot) const {
    return source_.words(first_piece_ + lane, slot);
  }

 private:
  Source const& source_;
  std::uint32_t* arrived_;
  std::uint64_t first_piece_;
  std::uint64_t timeout_ns_;
  typename Source::token_type token_;
  std::uint64_t deadline_ns_ = 0;
  key key_ = no_key;
  status outcome_;
  std::uint32_t pending_ = 0;  ///< lanes with a read in flight
  std::uint32_t lost_;         ///< lanes without a piece, or whose piece belongs to a read that was given up
};

}  // namespace forebay::search
