// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/schedulers.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace forebay::simt {

void runnable_set::set(std::uint32_t lane, bool is) {
  if (is == has(lane)) return;
  if (is) {
    position_[lane] = size();
    members_.push_back(lane);
    return;
  }
  std::uint32_t const hole = position_[lane];
  members_[hole] = members_.back();
  position_[members_[hole]] = hole;
  members_.pop_back();
  position_[lane] = absent;
}

namespace {

void set_bit(std::vector<std::uint64_t>& words, std::uint32_t i, bool is) {
  std::uint64_t const bit = std::uint64_t{1} << (i % 64);
  words[i / 64] = is ? words[i / 64] | bit : words[i / 64] & ~bit;
}

}  // namespace

void round_robin::begin(std::uint32_t lanes) {
  source_ = random_source(0);
  words_.assign((lanes + 63) / 64, 0);
  last_ = lanes - 1;
}

void round_robin::runnable(std::uint32_t lane, bool is) {
  set_bit(words_, lane, is);
}

std::uint32_t round_robin::next(std::uint32_t) {
  auto const slots = static_cast<std::uint32_t>(words_.size() * 64);
  std::uint32_t from = (last_ + 1) % slots;
  while ((words_[from / 64] >> (from % 64)) == 0) from = (from / 64 + 1) * 64 % slots;
  last_ = from + static_cast<std::uint32_t>(std::countr_zero(words_[from / 64] >> (from % 64)));
  return last_;
}

void random::begin(std::uint32_t lanes) {
  source_ = random_source(seed_);
  set_.begin(lanes);
}

std::uint32_t random::next(std::uint32_t last) {
  if (stickiness_ > 1 && set_.has(last) && source_.below(stickiness_) != 0) return last;
  return set_[source_.below(set_.size())];
}

std::string random::describe() const {
  return "random(seed=" + std::to_string(seed_) + ", stickiness=" + std::to_string(stickiness_) + ")";
}

void pct::begin(std::uint32_t lanes) {
  source_ = random_source(seed_);
  // Room to lower a lane a few times each before the slots have to be packed again.
  std::uint32_t const slots = 8 * lanes + depth_;
  holder_.assign(slots, ~0u);
  slot_.resize(lanes);
  words_.assign((slots + 63) / 64, 0);
  lowest_ = slots - lanes;
  std::vector<std::uint32_t> order(lanes);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = lanes; i-- > 1;) std::swap(order[i], order[source_.below(i + 1)]);
  for (std::uint32_t i = 0; i < lanes; ++i) {
    slot_[order[i]] = lowest_ + i;
    holder_[lowest_ + i] = order[i];
  }
  changes_.clear();
  for (std::uint32_t i = 1; i < depth_; ++i)
    changes_.push_back(1 + source_.next() % std::max<std::uint64_t>(1, expected_steps_));
  std::sort(changes_.begin(), changes_.end(), std::greater<>{});
  step_ = 0;
}

void pct::mark(std::uint32_t slot, bool is) {
  set_bit(words_, slot, is);
}

std::uint32_t pct::highest() const {
  std::size_t i = words_.size() - 1;
  while (words_[i] == 0) --i;
  return holder_[i * 64 + 63 - static_cast<std::size_t>(std::countl_zero(words_[i]))];
}

void pct::move(std::uint32_t lane, std::uint32_t slot) {
  std::uint32_t const old = slot_[lane];
  bool const runs = (words_[old / 64] >> (old % 64) & 1) != 0;
  mark(old, false);
  holder_[old] = ~0u;
  slot_[lane] = slot;
  holder_[slot] = lane;
  mark(slot, runs);
}

void pct::lower(std::uint32_t lane) {
  if (lowest_ == 0) {
    auto top = static_cast<std::uint32_t>(holder_.size());
    for (std::uint32_t slot = top; slot-- > 0;) {
      if (holder_[slot] == ~0u) continue;
      --top;
      if (top != slot) move(holder_[slot], top);
    }
    lowest_ = top;
  }
  move(lane, --lowest_);
}

std::uint32_t pct::next(std::uint32_t) {
  ++step_;
  while (!changes_.empty() && changes_.back() <= step_) {
    changes_.pop_back();
    lower(highest());
  }
  return highest();
}

void pct::unmet(std::uint32_t lane, std::uint32_t misses) {
  if (misses >= 1) lower(lane);
}

std::string pct::describe() const {
  return "pct(seed=" + std::to_string(seed_) + ", depth=" + std::to_string(depth_) +
         ", expected_steps=" + std::to_string(expected_steps_) + ")";
}

void replay::begin(std::uint32_t lanes) {
  at_ = 0;
  set_.begin(lanes);
}

std::uint32_t replay::next(std::uint32_t last) {
  if (at_ == recorded_.size()) return set_.has(last) ? last : set_[0];
  std::uint32_t const lane = recorded_[at_++];
  if (lane >= set_.capacity() || !set_.has(lane))
    throw std::runtime_error("replay diverged: choice " + std::to_string(at_ - 1) + " of the trace, lane " +
                             std::to_string(lane) + ", cannot run here");
  return lane;
}

std::uint32_t replay::choose(std::uint32_t n) {
  if (at_ == recorded_.size()) return 0;
  std::uint32_t const chosen = recorded_[at_++];
  if (chosen >= n)
    throw std::runtime_error("replay diverged: choice " + std::to_string(at_ - 1) + " of the trace is " +
                             std::to_string(chosen) + " of " + std::to_string(n));
  return chosen;
}

std::string replay::describe() const {
  return "replay(trace of " + std::to_string(recorded_.size()) + " choices)";
}

}  // namespace forebay::simt
