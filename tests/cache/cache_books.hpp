// SPDX-License-Identifier: Apache-2.0
//! \file
//! The books of a schedule of the page directory: what lanes wrote and saw, and the conditions that must hold during
//! the schedule and afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "cache_shapes.hpp"
#include "cache_world.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/fingerprints.hpp"
#include "forebay/detail/cache/host_pool.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/queue/slot_pool.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/status.hpp"
#include "support/queue_audit.hpp"
#include "support/queue_schedule.hpp"
#include "support/recovery_agent.hpp"

namespace forebay::test {

struct cache_outcome {
  bool ok = true;
  std::string what;
  std::uint64_t operations = 0;
  std::uint64_t steps = 0;
  std::uint64_t commands = 0;
  std::uint64_t failures = 0;  ///< operations that ended with an injected status
  std::uint64_t no_frame = 0;
  std::uint64_t late = 0;        ///< operations whose deadline passed
  std::uint64_t cancelled = 0;   ///< operations whose command recovery ended
  std::uint64_t asked = 0;       ///< commands that recovery was asked for, each counted once
  std::uint64_t overwrites = 0;  ///< of whole pages, by `seek_overwrite`
  cache_counters counted{};
};

/// What each lane wrote and saw. The numbers in a word grow, so a reader knows the least number that it must see.
template <class Policy, class Pools, class Rules>
class cache_books : protected cache_world<Policy, Pools, Rules> {
  using base = cache_world<Policy, Pools, Rules>;

 protected:
  using base::buffers_per_lane;
  using base::commands_of;
  using base::encode;
  using base::frame_count;
  using base::index_of;
  using base::lane_count_;
  using base::on_drive;
  using base::owner_of;
  using base::page_bytes;
  using base::page_on_drive;
  using base::pages_per_request;
  using base::queue_count;
  using base::sets;
  using base::shape_;
  using base::state_;
  using base::words_per_page;
  using typename base::client;
  using typename base::page_type;

  struct held_page {
    std::uint64_t page = 0;
    std::uint32_t frame = 0;
    bool written = false;
  };
  struct lent_page {
    std::uint64_t page = 0;
    std::uint32_t buffer = 0;
    bool written = false;
    page_type shared;
  };
  struct lane_books {
    std::vector<std::uint32_t> written;  // per word of the storage that is the lane's: the last number it wrote
    std::vector<std::uint32_t> seen;     // per word of the storage: the greatest number it has seen
    std::vector<std::uint32_t>
        owed;  // what a flush has to bring to the drives; here, since lanes that fail are dropped
    std::vector<held_page> held;
    std::vector<lent_page> lent;
    std::vector<std::uint32_t> buffers;  // pages of memory that are the lane's to lend
    bool must_not_wait = false;
  };

  explicit cache_books(cache_shape const& shape) : base(shape) {
    books_.resize(lane_count_);
    for (lane_books& b : books_) {
      b.written.assign(shape_.pages * words_per_page, 0);
      b.seen.assign(shape_.pages * words_per_page, 0);
      b.owed.assign(shape_.pages * words_per_page, 0);
    }
    for (std::uint32_t lane = 0; lane < lane_count_; ++lane) {
      for (std::uint32_t k = pages_per_request; k < buffers_per_lane; ++k) {
        books_[lane].buffers.push_back(lane * buffers_per_lane + k);
      }
    }
    returned_.assign(shape_.pages * words_per_page, 0);
  }

  /// A word that only this lane writes; `words_per_page`: there is none.
  std::uint32_t own_word(std::uint32_t me, std::uint64_t page, simt::random_source& random) const {
    std::uint32_t const group = std::min(lane_count_, words_per_page);
    std::uint32_t const word = random.below(words_per_page / group) * group + me % words_per_page;
    return owner_of(page, word) == me ? word : words_per_page;
  }

  /// The number that the lane writes next.
  std::uint32_t next_number(std::uint32_t me, std::uint64_t page, std::uint32_t word) const {
    return books_[me].written[index_of(page, word)] + 1;
  }
  void has_written(std::uint32_t me, std::uint64_t page, std::uint32_t word, std::uint32_t number) {
    books_[me].written[index_of(page, word)] = number;
    unobserved const quiet;
    returned_[index_of(page, word)] = number;
  }

  void verify(std::uint32_t me, std::uint64_t page, std::uint32_t word, std::uint64_t value, char const* what) {
    client::check(value >> 32 == encode(page, word, 0) >> 32, what);
    std::size_t const at = index_of(page, word);
    auto const number = static_cast<std::uint32_t>(value);
    lane_books& books = books_[me];
    if (owner_of(page, word) == me) client::check(number == books.written[at], what);
    client::check(number >= books.seen[at], what);
    books.seen[at] = number;
  }

  /// Whether the status says that something took too long, or that recovery ended it for that.
  bool is_late(status outcome) const {
    return outcome.kind() == fault::timed_out || outcome.kind() == fault::busy || outcome.kind() == fault::cancelled;
  }
  void failed(status outcome) {
    unobserved const quiet;
    if (outcome.kind() == fault::no_frame) {
      ++outcome_.no_frame;
      client::check(shape_.has_timeout() || lane_count_ * shape_.guards >= cache_ways,
                    "C3: no frame, though they cannot all be pinned");
      return;
    }
    if (outcome.kind() == fault::cancelled) {
      client::check(shape_.withholds(), "Q7: a healthy command was cancelled");
      ++outcome_.cancelled;
      return;
    }
    if (is_late(outcome)) {
      client::check(shape_.has_timeout() || shape_.impatient != 0, "C4: a deadline passed, but there was none");
      ++outcome_.late;
      return;
    }
    client::check(shape_.faults.error_ppm != 0 && outcome == status::from_nvme(shape_.faults.error_status_field),
                  "C4: an operation fails with a status that no command had");
    ++outcome_.failures;
  }

  /// A failed status whose cause no caller learns.
  void failed_unseen() {
    unobserved const quiet;
    client::check(shape_.faults.error_ppm != 0 || shape_.has_timeout(), "C4: an operation fails on sound drives");
    ++outcome_.failures;
  }

  /// C1, as an observer outside the run sees it at any moment.
  void inspect() {
    bool once = false;
    {
      unobserved const quiet;
      once = duplicates().empty();
    }
    client::check(once, "C1: two frames hold one page");
  }

  void add_counters() {
    for (std::uint32_t k = 0; k < cache_core::counter_stripes; ++k) {
      cache_counters const& c = state_.counters[k];
      outcome_.counted += c;
    }
  }

  /// Recovery is asked for commands that the drives keep back, and for no others (Q7).
  std::string asked_wrong(recovery_agent const& recovery) {
    std::vector<recovery_agent::asked_command> once;
    for (auto const& command : recovery.asked()) {
      if (std::find(once.begin(), once.end(), command) == once.end()) once.push_back(command);
    }
    // A waiter that looks once, at its deadline, may see an old state of the ring, however long ago the drive wrote it.
    if (memory_model_ == simt::memory_model::stale_reads) return {};
    outcome_.asked = once.size();
    if (!shape_.withholds() && recovery.requests() != 0) return "Q7: recovery was asked for a healthy command";
    std::uint64_t withheld = 0;
    for (std::uint32_t i = 0; i < queue_count(); ++i) {
      emulator::fault_plan plan = shape_.faults;
      plan.seed += i / shape_.queues_per_drive;
      for (std::uint64_t n = 0; n < commands_of(i); ++n) {
        withheld += plan.at((std::uint64_t{i % shape_.queues_per_drive + 1} << 48) + n).withheld;
      }
    }
    if (once.size() > withheld) {
      return "Q7: recovery was asked for " + std::to_string(once.size()) + " commands, but the drives kept " +
             std::to_string(withheld) + " back";
    }
    return {};
  }

  std::string settled_wrong() {
    if (not_settled_ != 0) return "C4: " + std::to_string(not_settled_) + " commands were given up at the end";
    if (not_drained_ != 0) return "C4: " + std::to_string(not_drained_) + " queues are busy at the end";
    for (std::uint64_t page = 0; page < shape_.pages; ++page) {
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        std::uint32_t const owner = owner_of(page, w);
        if (on_drive(page, w) != encode(page, w, books_[owner].written[index_of(page, w)])) {
          return "C2: word " + std::to_string(w) + " of page " + std::to_string(page) + " was lost";
        }
      }
    }
    for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
      page_word const word{state_.words[frame]};
      std::string const name = "frame " + std::to_string(frame);
      if (word.pins() != 0) return "C3: " + name + " stays pinned";
      if (word.state() == page_state::busy || word.is_writing()) return "C4: " + name + " stays busy";
      if (word.state() == page_state::valid && word.is_dirty()) return "C2: " + name + " stays dirty";
    }
    for (std::uint32_t set = 0; set < shape_.sets; ++set) {
      if (sets()[set].lock != 0) return "Q4: the lock of set " + std::to_string(set) + " is held";
    }
    for (std::uint32_t frame = 0; frame < shape_.sets * cache_ways; ++frame) {
      std::uint32_t const wanted = fingerprints::of(page_word{state_.words[frame]}.tag());
      std::uint64_t const word = state_.fingerprints[frame / 8];
      if ((word & fingerprints::byte_of(frame % 8, 0xff)) != fingerprints::byte_of(frame % 8, wanted)) {
        return "the fingerprint of frame " + std::to_string(frame) + " is another page's";
      }
    }
    std::string const twice = duplicates();
    if (!twice.empty()) return "C1: " + twice;
    std::uint32_t listed = 0;
    for (std::uint32_t set = 0; set < shape_.sets; ++set) {
      for (std::uint32_t k = sets()[set].outside; k != 0 && listed <= shape_.overflow + shape_.users;
           k = state_.outside[k - 1].next) {
        if (k > shape_.overflow) return "C3: a user's buffer stays a page's frame";
        ++listed;
      }
    }
    if (listed + count_free(state_.free_overflow) != shape_.overflow) return "C3: an overflow frame is lost";
    if (count_free(state_.free_users) != shape_.users) return "C3: a user frame is lost";
    if (state_.staging.frame_count != 0 && count_free(state_.staging.free) != shape_.staging) {
      return "C4: a staging page is lost";
    }
    for (std::uint32_t way = 0; way < shape_.sets * state_.host.groups * cache_ways; ++way) {
      host_word const word{state_.host.words[way]};
      if (word.what() == host_word::content::nothing) continue;
      std::string const name = "way " + std::to_string(way) + " of the host pool";
      if (word.what() != host_word::content::page) return name + " is still being copied";
      std::uint64_t const page = state_.mapping.page_of({way / (state_.host.groups * cache_ways), word.tag()});
      if (std::memcmp(state_.host.frames + std::size_t{way} * page_bytes, page_on_drive(page), page_bytes) != 0) {
        return "C6: " + name + " is out of date";
      }
    }
    bool const all_fit =
        shape_.pages <= shape_.sets && shape_.faults.error_ppm == 0 && !shape_.withholds() && shape_.invalidate == 0;
    if (all_fit && outcome_.counted.misses + outcome_.counted.prefetches > shape_.pages) {
      return "C1: a page that never left was read twice";
    }
    return {};
  }

  std::vector<lane_books> books_;
  std::vector<std::uint32_t> returned_;  // per word of the storage: the last number whose writer has let go
  cache_outcome outcome_;
  simt::memory_model memory_model_ = simt::memory_model::sequential;
  std::uint32_t not_settled_ = 0;
  std::uint32_t not_drained_ = 0;

 private:
  std::string duplicates() {
    std::set<std::uint64_t> held;
    for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
      page_word const word{state_.words[frame]};
      if (word.state() != page_state::valid && word.state() != page_state::busy) continue;
      std::uint32_t const cached = shape_.sets * cache_ways;
      std::uint64_t const page = frame < cached ? state_.mapping.page_of({frame / cache_ways, word.tag()})
                                                : state_.outside[frame - cached].page;
      if (page == outside_frame::no_page) continue;  // just taken
      if (!held.insert(page).second) return "page " + std::to_string(page) + " is in two frames";
    }
    return {};
  }

  static std::uint32_t count_free(slot_pool const& pool) {
    std::uint32_t free = 0;
    for (std::uint32_t w = 0; w < pool.word_count; ++w) free += simt::count_bits(pool.words[w]);
    return free;
  }
};

}  // namespace forebay::test
