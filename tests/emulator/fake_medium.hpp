// SPDX-License-Identifier: Apache-2.0
//! \file
//! A medium in memory that is as late, out of order, short of room or broken as its test wants.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "forebay/detail/emulator/medium.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator::testing {

struct fake_behaviour {
  std::uint32_t looks_max = 0;     ///< a piece is done at one of so many looks after the first
  std::uint32_t full_percent = 0;  ///< how often there is no room for a piece
  std::uint32_t fail_percent = 0;
  std::uint16_t fail_status = 0;
  std::uint32_t cancel_percent = 100;  ///< how often a cancellation comes in time
  bool manual = false;                 ///< nothing is done before `let_go`
  std::uint64_t seed = 0;
};

/// Moves words as a unit of machine `M` would. Its pieces move in two halves, at different looks.
template <class M>
class fake_medium final : public medium {
 public:
  fake_medium(std::byte* bytes, fake_behaviour const& how) : bytes_(bytes), how_(how) {}

  std::unique_ptr<medium_port> open(port_use) override {
    // Relaxed: units open their ports at the same time, and each needs a number of its own.
    return std::make_unique<port>(*this, how_.seed + opened_.fetch_add(1, std::memory_order_relaxed));
  }

  /// With `manual`: the next `count` pieces, in the order in which they came, may be done; `status` is what they end
  /// with.
  void let_go(std::uint32_t count = ~std::uint32_t{0}, std::uint16_t status = 0) {
    allowed_ = count;
    how_.fail_status = status;
  }
  std::uint32_t durable_count() const { return durable_; }
  /// Pieces that had to be durable by themselves.
  std::uint32_t through_count() const { return through_; }
  std::uint32_t in_flight() const { return in_flight_; }

 private:
  struct piece {
    medium_piece what;
    std::uint32_t looks = 0;
    bool half = false;
    bool cancelled = false;
  };

  class port final : public medium_port {
   public:
    port(fake_medium& of, std::uint64_t seed) : of_(of), random_(static_cast<std::uint32_t>(seed)) {}

    bool submit(medium_piece const& what) override {
      if (chance(of_.how_.full_percent)) return false;
      if (what.through) ++of_.through_;
      pieces_.push_back({what, below(of_.how_.looks_max + 1)});
      ++of_.in_flight_;
      return true;
    }

    std::size_t collect(std::span<medium_completion> into) override {
      if (!of_.how_.manual) std::shuffle(pieces_.begin(), pieces_.end(), random_);
      std::size_t count = 0;
      for (auto p = pieces_.begin(); p != pieces_.end() && count < into.size();) {
        int const status = look_at(*p);
        if (status < 0) {
          ++p;
          continue;
        }
        into[count++] = {p->what.tag, static_cast<std::uint16_t>(status)};
        p = pieces_.erase(p);
        --of_.in_flight_;
      }
      return count;
    }

    void cancel(std::uint64_t tag) override {
      for (piece& p : pieces_) {
        if (p.what.tag == tag && chance(of_.how_.cancel_percent)) p.cancelled = true;
      }
    }

    void wait(std::uint64_t) override { of_.allowed_ = ~std::uint32_t{0}; }

   private:
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
    bool chance(std::uint32_t percent) { return below(100) < percent; }

    /// The status of a piece that is done, or -1.
    int look_at(piece& p) {
      constexpr int aborted = 0x07;  // Command Abort Requested
      if (p.cancelled) return aborted;
      if (of_.how_.manual) {
        if (of_.allowed_ == 0) return -1;
        if (of_.allowed_ != ~std::uint32_t{0}) --of_.allowed_;
        if (of_.how_.fail_status != 0) return of_.how_.fail_status;
        of_.move(p.what, 0, p.what.bytes);
        return 0;
      }
      if (p.looks != 0) {
        --p.looks;
        return -1;
      }
      if (chance(of_.how_.fail_percent)) return of_.how_.fail_status;
      std::uint64_t const middle = p.what.bytes / 8 * 4;
      if (!p.half && middle != 0 && below(2) != 0) {
        of_.move(p.what, 0, middle);
        p.half = true;
        p.looks = below(of_.how_.looks_max + 1);
        return -1;
      }
      of_.move(p.what, p.half ? middle : 0, p.what.bytes);
      return 0;
    }

    fake_medium& of_;
    std::minstd_rand random_;
    std::vector<piece> pieces_;
  };

  void move(medium_piece const& what, std::uint64_t first, std::uint64_t stop) {
    if (what.operation == medium_operation::durable) {
      ++durable_;
      return;
    }
    if (what.operation == medium_operation::zero) {
      std::memset(bytes_ + what.offset_bytes + first, 0, stop - first);
      return;
    }
    std::uint64_t at = 0;
    for (dma_segment const& s : what.segments) {
      for (std::uint64_t i = 0; i < s.bytes; i += 4, at += 4) {
        if (at < first || at >= stop) continue;
        auto* const theirs = reinterpret_cast<std::uint32_t*>(s.address + i);
        std::byte* const ours = bytes_ + what.offset_bytes + at;
        std::uint32_t word = 0;
        if (what.operation == medium_operation::read) {
          std::memcpy(&word, ours, 4);
          M::st(theirs, word);
        } else {
          word = M::ld(theirs);
          std::memcpy(ours, &word, 4);
        }
      }
    }
  }

  std::byte* bytes_;
  fake_behaviour how_;
  std::uint32_t allowed_ = 0;
  // Units count at the same time.
  std::atomic<std::uint64_t> opened_ = 0;
  std::atomic<std::uint32_t> durable_ = 0;
  std::atomic<std::uint32_t> through_ = 0;
  std::atomic<std::uint32_t> in_flight_ = 0;
};

}  // namespace forebay::emulator::testing
