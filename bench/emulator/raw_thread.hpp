// SPDX-License-Identifier: Apache-2.0
//! \file
//! One thread of a client: draws its commands, puts them into a queue, and counts and checks their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/raw_workload.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

/// A thread has one command in flight, and uses two buffers in turn. So it checks the data of one command while the
/// next is in flight, and the check lengthens neither. The calls for each command, in this order: `prepare`, `store`,
/// `depart`, `land`, then `depart` of the next, then `account`. The next command is prepared and stored at the earliest
/// when the one before this is accounted for.
template <class M>
class raw_thread {
 public:
  FOREBAY_DEVICE raw_thread(raw_area const& area, raw_workload const& work, std::uint32_t rank, std::uint32_t threads)
      : area_(area), work_(work), rank_(rank), threads_(threads) {
    std::uint32_t const pages = raw_area::listed_pages(work.block_bytes);
    if (rank_ >= area.threads) return;
    for (std::uint32_t which = 0; which < 2 && pages != 0; ++which) {
      std::byte const* const buffer = area.buffer(rank, which, work.block_bytes);
      std::uint64_t* const list = area.list(rank, which, work.block_bytes);
      for (std::uint32_t i = 0; i < pages; ++i) {
        M::st(list + i, area.on_bus(buffer + std::size_t{i + 1} * raw_area::page_bytes));
      }
    }
  }

  /// Draws the next command. Puts the data of a write into place; for a read, fills the buffer with data that the read
  /// must not return.
  FOREBAY_DEVICE void prepare() {
    std::uint64_t const draw = emulator::mix(work_.seed ^ emulator::mix((std::uint64_t{rank_} << 32) + round_));
    std::uint64_t const next = std::uint64_t{round_} * threads_ + rank_;
    next_.block = (work_.in_order ? next : draw >> 8) % work_.blocks;
    next_.write = (draw & 0xff) * 100 < work_.write_percent * 256u;
    next_.buffer = round_ & 1;
    ++round_;
    auto* const words = reinterpret_cast<std::uint32_t*>(area_.buffer(rank_, next_.buffer, work_.block_bytes));
    for (std::uint32_t w = 0; w < checked_words(); ++w) {
      std::uint32_t const word = pattern(next_.block, w);
      M::st(words + w, next_.write ? word : ~word);
    }
  }
  /// Whether all commands have been prepared.
  FOREBAY_DEVICE bool finished() const { return round_ == work_.rounds; }

  /// Stores the command that was prepared into a queue, where no doorbell covers it yet.
  FOREBAY_DEVICE void store(nvme::submission_entry* slot, std::uint32_t command_id) const {
    auto entry = nvme::make_io_command(
        next_.write ? nvme::io_opcode::write : nvme::io_opcode::read, static_cast<std::uint16_t>(command_id), 1,
        next_.block * (work_.block_bytes / work_.lba_bytes), work_.block_bytes / work_.lba_bytes);
    entry.prp1 = area_.on_bus(area_.buffer(rank_, next_.buffer, work_.block_bytes));
    if (work_.block_bytes > 2 * raw_area::page_bytes) {
      entry.prp2 = area_.on_bus(area_.list(rank_, next_.buffer, work_.block_bytes));
    } else if (work_.block_bytes > raw_area::page_bytes) {
      entry.prp2 = entry.prp1 + raw_area::page_bytes;
    }
    auto* const to = reinterpret_cast<simt::vec16*>(slot);
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < 4; ++i) {
      simt::vec16 part;
      std::memcpy(&part, reinterpret_cast<std::byte const*>(&entry) + 16 * i, 16);
      M::st(to + i, part);
    }
  }
  /// The command that was stored is in flight.
  FOREBAY_DEVICE void depart() { flying_ = next_; }

  /// The command in flight is complete.
  FOREBAY_DEVICE void land(std::uint64_t took_ns, std::uint32_t status) {
    landed_ = flying_;
    took_ns_ = took_ns;
    status_ = status;
  }

  /// Counts the command that landed, and checks the data that it read.
  FOREBAY_DEVICE void account(raw_result& result) {
    ++commands_;
    sum_ns_ += took_ns_;
    if (took_ns_ < min_ns_) min_ns_ = took_ns_;
    if (took_ns_ > max_ns_) max_ns_ = took_ns_;
    // Relaxed: a counter.
    simt::atomic<M>(result.latency_bin[raw_result::bin_of(took_ns_)]).fetch_add(1, simt::order::relaxed);
    failed_ += status_ != 0;
    writes_ += landed_.write;
    if (landed_.write) return;
    auto const* const words =
        reinterpret_cast<std::uint32_t const*>(area_.buffer(rank_, landed_.buffer, work_.block_bytes));
    for (std::uint32_t w = 0; w < checked_words(); ++w) wrong_ += M::ld(words + w) != pattern(landed_.block, w);
  }

  FOREBAY_DEVICE void add_to(raw_result& result) const {
    auto const add = [](std::uint64_t& to, std::uint64_t value) {
      if (value != 0) simt::atomic<M>(to).fetch_add(value, simt::order::relaxed);  // relaxed: a counter
    };
    add(result.commands, commands_);
    add(result.writes, writes_);
    add(result.failed, failed_);
    add(result.wrong, wrong_);
    add(result.latency_sum_ns, sum_ns_);
    simt::atomic<M>(result.latency_max_ns).fetch_max(max_ns_, simt::order::relaxed);  // relaxed: as above
    // Relaxed, both: as above.
    std::uint64_t seen = simt::atomic<M>(result.latency_min_ns).load(simt::order::relaxed);
    while (min_ns_ < seen &&
           !simt::atomic<M>(result.latency_min_ns).compare_exchange(seen, min_ns_, simt::order::relaxed)) {
    }
  }

 private:
  struct command {
    std::uint64_t block = 0;
    std::uint32_t buffer = 0;
    bool write = false;
  };

  FOREBAY_DEVICE std::uint32_t checked_words() const { return work_.check_all ? work_.block_bytes / 4 : 1; }

  raw_area const& area_;
  raw_workload const& work_;
  std::uint32_t const rank_;
  std::uint32_t const threads_;
  std::uint32_t round_ = 0;  ///< commands prepared
  command next_, flying_, landed_;
  std::uint64_t took_ns_ = 0;
  std::uint32_t status_ = 0;
  std::uint32_t commands_ = 0, writes_ = 0, failed_ = 0, wrong_ = 0;
  std::uint64_t sum_ns_ = 0, min_ns_ = ~std::uint64_t{0}, max_ns_ = 0;
};

}  // namespace forebay::bench
