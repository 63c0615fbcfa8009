// SPDX-License-Identifier: Apache-2.0
//! \file
//! A second, naive flash model, which the tests compare the real one with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "forebay/detail/emulator/flash_model.hpp"
#include "forebay/detail/emulator/timed_command.hpp"

namespace forebay::emulator::testing {

/// The flash model, written a second time for one caller: whole pages in whole vectors, and no counter for a number
/// that can be looked up.
class flash_reference {
 public:
  struct address {
    std::uint32_t block = 0;
    std::uint32_t index = 0;
    bool operator==(address const&) const = default;
  };

  flash_reference(flash_parameters const& p, flash_geometry const& g)
      : p_(p), g_(g), dies_(g.dies), buses_(g.channels) {
    for (std::uint32_t i = 0; i < g.dies; ++i) {
      dies_[i].number = i;
      dies_[i].blocks.resize(g.blocks_per_die);
      for (std::uint32_t b = 0; b < g.blocks_per_die; ++b) dies_[i].free.push_back(b);
    }
  }

  /// Returns when the flash is done with a command.
  std::uint64_t due(timed_command const& command, std::uint64_t arrival) {
    now_ = arrival;
    std::uint64_t done = arrival;
    std::uint64_t const end = command.offset_bytes + command.bytes;
    std::uint64_t at = command.offset_bytes;
    while (at < end) {  // one stretch after the other
      std::uint64_t const stretch = at / p_.program_bytes;
      std::uint64_t const to = std::min(end, (stretch + 1) * p_.program_bytes);
      die& d = dies_[stretch % g_.dies];
      if (command.op == operation::read) {
        done = std::max(done, read(d, at, to));
      } else {
        for (std::uint64_t page = at / p_.page_bytes; page * p_.page_bytes < to; ++page) {
          std::uint64_t const first = page * p_.page_bytes, last = first + p_.page_bytes;
          std::uint64_t const bytes = std::min(to, last) - std::max(at, first);
          if (command.op == operation::write) {
            done = std::max(done, write(d, page, bytes));
          } else if (bytes == p_.page_bytes) {
            forget(d, page);
          }
        }
      }
      at = to;
    }
    return done;
  }

  std::optional<address> where(std::uint64_t page) const {
    die const& d = dies_[page * p_.page_bytes / p_.program_bytes % g_.dies];
    auto const found = d.where.find(page);
    return found == d.where.end() ? std::nullopt : std::optional(found->second);
  }
  std::uint64_t busy_until(std::uint32_t d) const { return dies_[d].busy_until; }
  flash_counters const& counts() const { return counts_; }

 private:
  struct die {
    std::uint32_t number = 0;
    std::uint64_t busy_until = 0;
    std::vector<std::vector<std::uint64_t>> blocks;  ///< pages in the order in which they were appended
    std::deque<std::uint32_t> free;
    std::map<std::uint64_t, address> where;
    std::optional<std::uint32_t> open, victim;
    std::uint32_t passed = 0;
    std::optional<std::uint32_t> sensed;
    std::vector<std::uint64_t> programs_end;
    std::uint64_t victims = 0;
  };

  bool valid(die const& d, address a) const {
    auto const found = d.where.find(d.blocks[a.block][a.index]);
    return found != d.where.end() && found->second == a;
  }
  bool buffered(die const& d, address a) const {
    return d.open == a.block && a.index / g_.pages_per_program == d.blocks[a.block].size() / g_.pages_per_program;
  }
  std::uint64_t work(die& d, std::uint64_t from, std::uint64_t time, std::uint64_t bytes) {
    std::uint64_t const moves = bytes * p_.channel_byte_fs / 1000;
    d.busy_until = std::max(d.busy_until, from) + time + moves;
    if (moves == 0) return d.busy_until;
    std::uint64_t& bus = buses_[d.number % g_.channels];
    bus = std::max(bus, now_) + moves;
    return std::max(bus, d.busy_until);
  }

  std::uint64_t read(die& d, std::uint64_t at, std::uint64_t to) {
    std::uint64_t senses = 0, bytes = 0;
    std::optional<std::pair<bool, std::uint64_t>> last;
    for (std::uint64_t page = at / p_.page_bytes; page * p_.page_bytes < to; ++page) {
      auto const found = d.where.find(page);
      if (found != d.where.end() && buffered(d, found->second)) continue;
      std::uint64_t const per = g_.pages_per_read;
      auto const sensed =
          found == d.where.end()
              ? std::pair(false, page / per)
              : std::pair(true, (std::uint64_t{found->second.block} * g_.pages_per_block + found->second.index) / per);
      if (last != sensed) ++senses;
      last = sensed;
      bytes += std::min(to, (page + 1) * p_.page_bytes) - std::max(at, page * p_.page_bytes);
    }
    return senses == 0 ? now_ : work(d, now_, senses * p_.read_ps, bytes);
  }

  std::uint64_t room(die const& d) const {
    std::size_t const n = d.programs_end.size();
    return n < g_.buffered_programs ? now_ : std::max(now_, d.programs_end[n - g_.buffered_programs]);
  }

  std::uint64_t write(die& d, std::uint64_t page, std::uint64_t bytes) {
    counts_.host_bytes_written += bytes;
    ++counts_.host_pages_written;
    auto const found = d.where.find(page);
    if (found != d.where.end()) {
      if (buffered(d, found->second)) return room(d);
      if (bytes != p_.page_bytes) work(d, now_, p_.read_ps, p_.page_bytes);
    }
    if (d.free.size() <= 1) collect(d);
    std::uint64_t const accepted = room(d);
    append(d, page);
    return accepted;
  }

  void append(die& d, std::uint64_t page) {
    if (!d.open) {
      if (d.free.empty()) throw std::logic_error("no free block");
      d.open = d.free.front();
      d.free.pop_front();
    }
    std::vector<std::uint64_t>& block = d.blocks[*d.open];
    d.where[page] = {*d.open, static_cast<std::uint32_t>(block.size())};
    block.push_back(page);
    if (block.size() % g_.pages_per_program == 0) {
      d.programs_end.push_back(work(d, room(d), p_.program_ps, p_.program_bytes));
      counts_.pages_programmed += g_.pages_per_program;
    }
    if (block.size() == g_.pages_per_block) d.open.reset();
  }

  void collect(die& d) {
    for (bool paid = false; !paid && d.free.size() <= 1;) {
      if (!d.victim) {
        d.victim = choose(d);
        d.passed = 0;
        d.sensed.reset();
      }
      for (; !paid && d.passed < g_.pages_per_block; ++d.passed) {
        address const a{*d.victim, d.passed};
        if (!valid(d, a)) {
          paid = true;
          continue;
        }
        std::uint32_t const senses = a.index / g_.pages_per_read;
        work(d, now_, d.sensed == senses ? 0 : p_.read_ps, p_.page_bytes);
        d.sensed = senses;
        append(d, d.blocks[a.block][a.index]);
        ++counts_.pages_migrated;
      }
      if (paid) return;
      work(d, now_, g_.erase_ps, 0);
      d.blocks[*d.victim].clear();
      d.free.push_back(*d.victim);
      d.victim.reset();
      ++counts_.blocks_erased;
    }
  }

  std::uint32_t choose(die& d) {
    std::set<std::uint32_t> const free(d.free.begin(), d.free.end());
    std::uint64_t const turn = d.victims++;
    std::vector<std::uint32_t> candidates;
    if (g_.blocks_per_die > 64) {
      for (std::uint64_t i = 0; i < 64; ++i) {
        candidates.push_back(
            static_cast<std::uint32_t>(mix((turn * 64 + i) ^ std::uint64_t{d.number} << 48) % g_.blocks_per_die));
      }
    }
    for (std::uint32_t b = 0; b < g_.blocks_per_die; ++b) candidates.push_back(b);
    std::optional<std::uint32_t> best;
    std::uint32_t fewest = g_.pages_per_block;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (g_.blocks_per_die > 64 && i == 64 && best) break;
      std::uint32_t const b = candidates[i];
      if (free.contains(b) || d.open == b) continue;
      std::uint32_t n = 0;
      for (std::uint32_t index = 0; index < g_.pages_per_block; ++index) n += valid(d, {b, index}) ? 1 : 0;
      if (n < fewest) {
        fewest = n;
        best = b;
      }
    }
    return best.value();
  }

  void forget(die& d, std::uint64_t page) { d.where.erase(page); }

  flash_parameters p_;
  flash_geometry g_;
  std::vector<die> dies_;
  std::vector<std::uint64_t> buses_;
  flash_counters counts_;
  std::uint64_t now_ = 0;
};

}  // namespace forebay::emulator::testing
