// SPDX-License-Identifier: Apache-2.0
//! \file
//! The best candidates of a search, in order, in the memory of a block.
#pragma once

#include <cstdint>

#include "apps/search/keys.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {

/// The least keys of all that were merged into it, sorted. It belongs to one full warp, whose lanes call each member
/// together and have a copy each. A key that has once been pushed out does not come back: what is then in the list is
/// less. So a search needs no other memory of what it has seen.
template <class M>
class sorted_keys {
 public:
  /// How many keys the memory of a list with this capacity has.
  FOREBAY_DEVICE static constexpr std::uint32_t memory_keys(std::uint32_t capacity) { return 2 * capacity; }

  /// `memory`: `memory_keys(capacity)` keys. `incoming`: 32 keys, which lists of one warp may share.
  FOREBAY_DEVICE sorted_keys(key* memory, key* incoming, std::uint32_t capacity)
      : keys_(memory), next_(memory + capacity), incoming_(incoming), capacity_(capacity) {}

  FOREBAY_DEVICE std::uint32_t capacity() const { return capacity_; }
  /// The key at `i`, or `no_key`.
  FOREBAY_DEVICE key operator[](std::uint32_t i) const { return keys_[i]; }

  FOREBAY_DEVICE void clear(typename M::warp const& warp) {
    warp.sync();
    for (std::uint32_t i = warp.thread_rank(); i < capacity_; i += 32) keys_[i] = no_key;
    warp.sync();
  }

  /// Adds a key of each lane; `no_key` is none. A key that is in the list already is not added, nor one twice. None of
  /// them is expanded.
  FOREBAY_DEVICE void merge(typename M::warp const& warp, key mine) {
    bool fits = mine < keys_[capacity_ - 1];
    std::uint32_t less = 0;  // keys of the list
    if (fits) {
      less = count_less(mine);
      fits = !are_same(keys_[less], mine);  // there is such a key: the last is greater
    }
    std::uint32_t const lanes = warp.ballot(fits);
    if (lanes == 0) return;
    std::uint32_t const count = simt::count_bits(lanes);
    std::uint32_t const number = simt::count_bits(lanes & ((1u << warp.thread_rank()) - 1));
    if (fits) incoming_[number] = mine;
    warp.sync();
    bool again = false;  // a list of neighbours may name one twice
    for (std::uint32_t j = 0; fits && j < number; ++j) again = again || incoming_[j] == mine;
    if (warp.any(again)) {
      warp.sync();  // before others lose what a lane still reads
      if (again) incoming_[number] = no_key;
      warp.sync();
    }
    if (fits && !again) {
      std::uint32_t at = less;
      for (std::uint32_t j = 0; j < count; ++j) at += incoming_[j] < mine;
      if (at < capacity_) next_[at] = mine;
    }
    for (std::uint32_t i = warp.thread_rank(); i < capacity_; i += 32) {
      key const old = keys_[i];
      std::uint32_t at = i;
      for (std::uint32_t j = 0; j < count; ++j) at += incoming_[j] < old;
      if (at < capacity_) next_[at] = old;
    }
    warp.sync();
    key* const before = keys_;
    keys_ = next_;
    next_ = before;
  }

  /// Marks the first keys that are not expanded, `wanted` of them or as many as there are, at most 32. Returns how
  /// many; `taken` gets them. All lanes may read it then.
  FOREBAY_DEVICE std::uint32_t take(typename M::warp const& warp, std::uint32_t wanted, key* taken) {
    warp.sync();  // before `taken` and the list change, which all lanes may have read
    std::uint32_t count = 0;
    for (std::uint32_t first = 0; first < capacity_ && count < wanted; first += 32) {
      std::uint32_t const i = first + warp.thread_rank();
      key const mine = i < capacity_ ? keys_[i] : no_key;
      std::uint32_t const lanes = warp.ballot(mine != no_key && !is_expanded(mine));
      std::uint32_t const number = count + simt::count_bits(lanes & ((1u << warp.thread_rank()) - 1));
      if ((lanes >> warp.thread_rank() & 1) != 0 && number < wanted) {
        keys_[i] = expanded(mine);
        taken[number] = mine;
      }
      count += simt::count_bits(lanes);
    }
    warp.sync();
    return count < wanted ? count : wanted;
  }

  /// Gives each key the one that `name` makes of it, which has the same distance. Keys of one distance may then be in
  /// any order, until they are merged into another list.
  template <class Name>
  FOREBAY_DEVICE void rename(typename M::warp const& warp, Name&& name) {
    for (std::uint32_t i = warp.thread_rank(); i < capacity_; i += 32) {
      if (keys_[i] != no_key) keys_[i] = name(keys_[i]);
    }
    warp.sync();
  }

  /// Whether the first `count` keys are expanded. There may be fewer keys.
  FOREBAY_DEVICE bool begins_expanded(std::uint32_t count) const {
    bool all = true;
    for (std::uint32_t i = 0; i < count && i < capacity_; ++i) all = all && is_expanded(keys_[i]);
    return all;
  }
  /// Whether the list has `k`, which is not `no_key`, expanded or not.
  FOREBAY_DEVICE bool holds(key k) const {
    key const least = k & ~key{1};
    return least <= keys_[capacity_ - 1] && are_same(keys_[count_less(least)], k);
  }

 private:
  FOREBAY_DEVICE std::uint32_t count_less(key than) const {
    std::uint32_t low = 0, high = capacity_;
    while (low < high) {
      std::uint32_t const middle = (low + high) / 2;
      if (keys_[middle] < than) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  key* keys_;
  key* next_;
  key* incoming_;
  std::uint32_t capacity_;
};

}  // namespace forebay::search
