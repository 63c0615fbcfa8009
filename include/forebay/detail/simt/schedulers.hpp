// SPDX-License-Identifier: Apache-2.0
//! \file
//! The schedulers of deterministic runs (run.hpp), which decide which lane runs next. One object serves one run at a
//! time; `begin` resets it, so that two runs with the same object have the same schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace forebay::simt {

/// Every choice of a run in order: which lane runs at each step, and every data choice.
using trace = std::vector<std::uint16_t>;

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0..n-1; the bias is below n / 2^32.
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((next() >> 32) * n >> 32); }

 private:
  std::uint64_t state_;
};

/// Makes the choices of a run. Lanes are numbered 0..n-1: the lanes of the grid first, then the agents.
class scheduler {
 public:
  virtual ~scheduler() = default;
  /// A run of `lanes` lanes starts; none of them is runnable yet.
  virtual void begin(std::uint32_t lanes) = 0;
  virtual void runnable(std::uint32_t lane, bool is) = 0;
  /// Returns one of the runnable lanes; there is at least one. `last` ran last.
  virtual std::uint32_t next(std::uint32_t last) = 0;
  /// A data choice, 0..n-1.
  virtual std::uint32_t choose(std::uint32_t n) = 0;
  /// The predicate of a wait of `lane` was false for the `misses`-th time after the first.
  virtual void unmet(std::uint32_t /*lane*/, std::uint32_t /*misses*/) {}
  /// The expression that constructs this scheduler again, for failure reports.
  virtual std::string describe() const = 0;
};

/// The set of runnable lanes, with constant-time random access.
class runnable_set {
 public:
  void begin(std::uint32_t lanes) {
    members_.clear();
    position_.assign(lanes, absent);
  }
  void set(std::uint32_t lane, bool is);
  bool has(std::uint32_t lane) const { return position_[lane] != absent; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  /// How many lanes there are, runnable or not.
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(position_.size()); }
  std::uint32_t operator[](std::uint32_t i) const { return members_[i]; }

 private:
  static constexpr std::uint32_t absent = ~0u;
  std::vector<std::uint32_t> members_;
  std::vector<std::uint32_t> position_;
};

/// Lanes in turn, one step each. Data choices are pseudo-random, the same in every run.
class round_robin final : public scheduler {
 public:
  void begin(std::uint32_t lanes) override;
  void runnable(std::uint32_t lane, bool is) override;
  std::uint32_t next(std::uint32_t last) override;
  std::uint32_t choose(std::uint32_t n) override { return source_.below(n); }
  std::string describe() const override { return "round_robin()"; }

 private:
  random_source source_{0};
  std::vector<std::uint64_t> words_;
  std::uint32_t last_ = 0;
};

/// Stays with the same lane, and at each step switches to a random one with probability 1 / `stickiness`.
class random final : public scheduler {
 public:
  explicit random(std::uint64_t seed, std::uint32_t stickiness = 8)
      : seed_(seed), stickiness_(stickiness), source_(seed) {}
  void begin(std::uint32_t lanes) override;
  void runnable(std::uint32_t lane, bool is) override { set_.set(lane, is); }
  std::uint32_t next(std::uint32_t last) override;
  std::uint32_t choose(std::uint32_t n) override { return source_.below(n); }
  std::string describe() const override;

 private:
  std::uint64_t seed_;
  std::uint32_t stickiness_;
  random_source source_;
  runnable_set set_;
};

/// Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with
/// Probabilistic Guarantees of Finding Bugs, ASPLOS 2010): random priorities, lowered at `depth` - 1 random steps of
/// the `expected_steps`. A lane whose wait stays unmet twice is lowered below all others; without this, waits that help
/// would livelock.
class pct final : public scheduler {
 public:
  pct(std::uint64_t seed, std::uint32_t depth, std::uint64_t expected_steps)
      : seed_(seed), depth_(depth), expected_steps_(expected_steps), source_(seed) {}
  void begin(std::uint32_t lanes) override;
  void runnable(std::uint32_t lane, bool is) override { mark(slot_[lane], is); }
  std::uint32_t next(std::uint32_t last) override;
  std::uint32_t choose(std::uint32_t n) override { return source_.below(n); }
  void unmet(std::uint32_t lane, std::uint32_t misses) override;
  std::string describe() const override;

 private:
  void mark(std::uint32_t slot, bool is);
  std::uint32_t highest() const;
  void lower(std::uint32_t lane);
  void move(std::uint32_t lane, std::uint32_t slot);

  std::uint64_t seed_;
  std::uint32_t depth_;
  std::uint64_t expected_steps_;
  random_source source_;
  std::vector<std::uint32_t> slot_;     // of each lane; a higher slot is a higher priority
  std::vector<std::uint32_t> holder_;   // of each slot
  std::vector<std::uint64_t> words_;    // slots whose lane is runnable
  std::vector<std::uint64_t> changes_;  // steps at which the running lane is lowered, descending
  std::uint64_t step_ = 0;
  std::uint32_t lowest_ = 0;  // every slot below is free
};

/// Makes the choices that `recorded` holds, then those of a run that goes lane by lane. If the program no longer offers
/// a recorded choice, the run fails with "replay diverged".
class replay final : public scheduler {
 public:
  explicit replay(trace recorded) : recorded_(static_cast<trace&&>(recorded)) {}
  void begin(std::uint32_t lanes) override;
  void runnable(std::uint32_t lane, bool is) override { set_.set(lane, is); }
  std::uint32_t next(std::uint32_t last) override;
  std::uint32_t choose(std::uint32_t n) override;
  std::string describe() const override;

 private:
  trace recorded_;
  std::size_t at_ = 0;
  runnable_set set_;
};

}  // namespace forebay::simt
