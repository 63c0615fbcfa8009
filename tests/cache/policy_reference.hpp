// SPDX-License-Identifier: Apache-2.0
//! \file
//! Replacement policies of one set as a textbook would write them, in lists of pages, to compare the real ones with.
//! They share no code with these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

namespace forebay::test {

/// The pages that may be evicted now.
using may_leave = std::function<bool(std::uint32_t tag)>;

class reference_policy {
 public:
  virtual ~reference_policy() = default;
  /// A page that is held is used.
  virtual void hit(std::uint32_t tag) = 0;
  /// Picks the page to evict and drops it; nothing if none may be evicted.
  virtual std::optional<std::uint32_t> evict(may_leave const& may) = 0;
  /// A page comes in where there is room.
  virtual void insert(std::uint32_t tag) = 0;
  /// A page is dropped for another reason.
  virtual void erase(std::uint32_t tag) = 0;
};

/// Second chance on a circle of frames; a new page takes the first empty frame.
class reference_clock final : public reference_policy {
 public:
  explicit reference_clock(std::uint32_t ways) : frames_(ways) {}

  void hit(std::uint32_t tag) override { find(tag)->used = true; }

  std::optional<std::uint32_t> evict(may_leave const& may) override {
    for (std::size_t step = 0; step < 2 * frames_.size(); ++step) {
      frame& at = frames_[hand_];
      if (at.tag && may(*at.tag) && !at.used) {
        std::uint32_t const leaves = *at.tag;
        at = {};
        hand_ = (hand_ + 1) % frames_.size();
        return leaves;
      }
      if (at.tag && may(*at.tag)) at.used = false;
      hand_ = (hand_ + 1) % frames_.size();
    }
    return std::nullopt;
  }

  void insert(std::uint32_t tag) override {
    auto const empty = std::find_if(frames_.begin(), frames_.end(), [](frame const& f) { return !f.tag; });
    *empty = {tag, false};
  }

  void erase(std::uint32_t tag) override { *find(tag) = {}; }

 private:
  struct frame {
    std::optional<std::uint32_t> tag;
    bool used = false;
  };
  std::vector<frame>::iterator find(std::uint32_t tag) {
    return std::find_if(frames_.begin(), frames_.end(), [&](frame const& f) { return f.tag == tag; });
  }
  std::vector<frame> frames_;
  std::size_t hand_ = 0;
};

class reference_lru final : public reference_policy {
 public:
  void hit(std::uint32_t tag) override { pages_.splice(pages_.end(), pages_, std::ranges::find(pages_, tag)); }

  std::optional<std::uint32_t> evict(may_leave const& may) override {
    auto const at = std::ranges::find_if(pages_, may);
    if (at == pages_.end()) return std::nullopt;
    std::uint32_t const leaves = *at;
    pages_.erase(at);
    return leaves;
  }

  void insert(std::uint32_t tag) override { pages_.push_back(tag); }
  void erase(std::uint32_t tag) override { pages_.remove(tag); }

 private:
  std::list<std::uint32_t> pages_;  ///< the least recently used first
};

/// The parameters that S3-FIFO leaves open.
struct s3_fifo_shape {
  std::size_t small_share = 1;  ///< pages that small holds before main must give
  std::uint32_t hits_to_stay = 2;
  std::uint64_t ghosts = 16;  ///< departures from small that ghost remembers
};

class reference_s3_fifo final : public reference_policy {
 public:
  explicit reference_s3_fifo(s3_fifo_shape const& shape) : shape_(shape) {}

  void hit(std::uint32_t tag) override {
    for (auto* queue : {&small_, &main_}) {
      for (page& p : *queue) {
        if (p.tag == tag) p.hits = std::min(p.hits + 1, 3u);
      }
    }
  }

  std::optional<std::uint32_t> evict(may_leave const& may) override {
    auto const free_to_go = [&](page const& p) { return may(p.tag); };
    for (;;) {
      auto const in_small = std::ranges::find_if(small_, free_to_go);
      bool const any_in_main = std::ranges::any_of(main_, free_to_go);
      if (in_small == small_.end() && !any_in_main) return std::nullopt;
      if (in_small != small_.end() && (small_.size() >= shape_.small_share || !any_in_main)) {
        if (in_small->hits >= shape_.hits_to_stay) {
          in_small->hits = 0;
          main_.splice(main_.end(), small_, in_small);
          continue;
        }
        std::uint32_t const leaves = in_small->tag;
        small_.erase(in_small);
        ghost_.push_back({leaves, departures_++});
        ghost_.remove_if([&](ghost const& g) { return departures_ - g.departure > shape_.ghosts; });
        return leaves;
      }
      page& end = main_.front();
      if (free_to_go(end) && end.hits == 0) {
        std::uint32_t const leaves = end.tag;
        main_.pop_front();
        return leaves;
      }
      if (free_to_go(end)) --end.hits;
      main_.splice(main_.end(), main_, main_.begin());
    }
  }

  void insert(std::uint32_t tag) override {
    auto const known = std::ranges::find(ghost_, tag, &ghost::tag);
    if (known == ghost_.end()) {
      small_.push_back({tag, 0});
    } else {
      ghost_.erase(known);
      main_.push_back({tag, 0});
    }
  }

  void erase(std::uint32_t tag) override {
    for (auto* queue : {&small_, &main_}) queue->remove_if([&](page const& p) { return p.tag == tag; });
  }

 private:
  struct page {
    std::uint32_t tag;
    std::uint32_t hits;
  };
  struct ghost {
    std::uint32_t tag;
    std::uint64_t departure;
  };
  s3_fifo_shape const shape_;
  std::list<page> small_;  ///< each queue: the next to leave first
  std::list<page> main_;
  std::list<ghost> ghost_;
  std::uint64_t departures_ = 0;
};

}  // namespace forebay::test
