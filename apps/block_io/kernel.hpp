// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernel behind `forebay bench`: threads that each keep their share of `iodepth` commands in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "apps/common/command_latencies.hpp"
#include "apps/common/in_flight.hpp"
#include "apps/common/latency_histogram.hpp"
#include "apps/common/pattern.hpp"
#include "apps/common/random.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::block_io {

/// The work of the threads. `block_bytes` divides `first_byte` and `region_bytes` and is a multiple of 64.
struct workload {
  std::uint64_t first_byte = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t block_bytes = 512;
  std::uint64_t seed = 1;
  std::uint64_t ramp_ns = 0;     ///< completions earlier than this after the first submission are not counted
  std::uint64_t runtime_ns = 0;  ///< length of the measured interval; 0: until `commands` are done, all counted
  std::uint64_t commands = 0;    ///< ignored where `runtime_ns` is not 0
  std::uint64_t timeout_ns = 0;  ///< a thread gives up if none of its commands completes for this long
  std::uint32_t threads = 1;     ///< at most `iodepth`
  std::uint32_t iodepth = 1;     ///< commands in flight, of all threads together
  std::uint32_t read_percent = 100;
  bool random = true;
  bool verify = false;
  bool lands = false;      ///< on a GPU: reads end and writes begin in its memory, even if the drives do not reach that
  bool laid_down = false;  ///< every block was written by this run's own first pass; else by some earlier run
};

/// Words that the threads share. Zeroed before the launch.
struct control {
  std::uint64_t epoch_ns = 0;  ///< clock at the first submission
  std::uint64_t issued = 0;    ///< commands begun; numbers sequential blocks
  std::uint32_t stop = 0;      ///< some thread met an error
  std::uint32_t unused = 0;
};

/// What one thread counted: the commands whose completion it saw within the measured interval.
struct thread_result {
  apps::command_summary read;
  apps::command_summary write;
  std::uint64_t last_completion_ns = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch_byte = ~std::uint64_t{0};
  std::uint64_t errors = 0;
  status first_error;
};

/// What a thread remembers of a command in flight.
struct block_command {
  std::uint64_t offset_bytes;
  bool is_write;
  bool rewritten_before;  ///< a write of this block had completed before this read began
};

/// `Storage` is a `storage_ref<M>` or a model of its `read_async`/`write_async`; `Buffer` a `buffer_ref`. If it
/// `Lands`, reads end and writes begin in memory that the drives do not reach, and the threads copy.
template <class M, class Storage, class Buffer, bool Lands = false>
struct kernel {
  using token_type =
      decltype(std::declval<Storage const&>().read_async(std::declval<Buffer>(), std::uint64_t{}, std::uint64_t{}));
  using slot_type = apps::in_flight_slot<token_type, block_command>;

  Storage storage;
  Buffer buffer;       ///< `iodepth` blocks of `block_bytes`
  std::byte* landing;  ///< if it `Lands`: as many bytes in that memory
  workload work;
  block_io::control* control;
  slot_type* slots;          ///< `iodepth`, zeroed
  thread_result* results;    ///< `threads`
  std::uint64_t* read_bins;  ///< `apps::latency_bins::count` each
  std::uint64_t* write_bins;
  std::uint32_t* written;  ///< one bit a block, set once a write of it has completed; used where `verify` is set

  FOREBAY_DEVICE void operator()() const {
    if constexpr (Lands) {
      auto const warp = M::this_warp();
      std::uint32_t const rank = M::thread_rank() / warp.size();
      if (rank >= work.threads) return;
      if (warp.thread_rank() != 0) return help_copy();
      thread(*this, rank).run();
      copy(nullptr, nullptr, 0);
    } else {
      std::uint32_t const rank = M::thread_rank();
      if (rank < work.threads) thread(*this, rank).run();
    }
  }

 private:
  /// What the other lanes of a warp do until its first lane copies no bytes.
  FOREBAY_DEVICE void help_copy() const {
    while (copy(nullptr, nullptr, 0) != 0) {
    }
  }
  /// All lanes of a warp copy what the first one says. Returns how many bytes.
  FOREBAY_DEVICE std::uint64_t copy(std::byte* to, std::byte const* from, std::uint64_t bytes) const {
    auto const warp = M::this_warp();
    bytes = warp.shfl(bytes, 0);
    to = warp.shfl(to, 0);
    from = warp.shfl(from, 0);
    warp.sync();  // the completion that the first lane has seen comes before the reads of all lanes
    if (bytes != 0) simt::move_bytes<M>(warp.thread_rank(), warp.size(), to, from, bytes);
    warp.sync();  // the first lane may use what the others have written
    return bytes;
  }

  class thread {
   public:
    FOREBAY_DEVICE thread(kernel const& k, std::uint32_t rank)
        : k_(k),
          work_(k.work),
          rank_(rank),
          commands_(k.slots, apps::in_flight_share::of(work_.iodepth, work_.threads, rank), work_.timeout_ns),
          random_(work_.seed, rank),
          read_(k.read_bins),
          write_(k.write_bins) {}

    FOREBAY_DEVICE void run() {
      agree_on_interval();
      for (std::uint32_t i = 0; i < commands_.size(); ++i) begin(i, M::clock_ns());
      while (commands_.count() != 0) commands_.wait(*this);
      result_.read.completion = read_.summary();
      result_.write.completion = write_.summary();
      k_.results[rank_] = result_;
    }

    FOREBAY_DEVICE token_type submit(std::uint32_t i) const {
      block_command const& c = commands_[i].command;
      if constexpr (Lands) {
        if (c.is_write) k_.copy(block(i).data(), data(i), work_.block_bytes);
      }
      return c.is_write ? k_.storage.write_async(block(i), c.offset_bytes, work_.block_bytes)
                        : k_.storage.read_async(block(i), c.offset_bytes, work_.block_bytes);
    }

    /// Starts a command in the slot of the one that ended.
    FOREBAY_DEVICE void finish(std::uint32_t i, status outcome, std::uint64_t now) {
      if (!outcome) return fail(outcome);
      slot_type const& s = commands_[i];
      bool const is_write = s.command.is_write;
      if constexpr (Lands) {
        if (!is_write) k_.copy(data(i), block(i).data(), work_.block_bytes);
        now = M::clock_ns();
      }
      if (work_.verify) is_write ? mark_written(s.command) : check_data(i);
      if (now >= begin_ns_ && now < end_ns_) {
        apps::command_summary& summary = is_write ? result_.write : result_.read;
        summary.submission.add(s.submitted_ns - s.begun_ns);
        summary.total.add(now - s.begun_ns);
        (is_write ? write_ : read_).add(now - s.submitted_ns);
        result_.last_completion_ns = now;
      }
      begin(i, work_.verify ? M::clock_ns() : now);  // the check takes time
    }

   private:
    FOREBAY_DEVICE void agree_on_interval() {
      auto epoch = simt::atomic<M>(k_.control->epoch_ns);
      std::uint64_t seen = 0;
      std::uint64_t const now = M::clock_ns();
      // relaxed: the word is all that is shared; whichever value wins, every thread uses that one.
      if (epoch.compare_exchange(seen, now, simt::order::relaxed)) seen = now;
      begin_ns_ = seen + work_.ramp_ns;
      end_ns_ = work_.runtime_ns == 0 ? simt::no_deadline : begin_ns_ + work_.runtime_ns;
    }

    FOREBAY_DEVICE Buffer block(std::uint32_t i) const {
      return k_.buffer.subspan(commands_.number(i) * work_.block_bytes, work_.block_bytes);
    }

    /// Where reads end and writes begin.
    FOREBAY_DEVICE std::byte* data(std::uint32_t i) const {
      return Lands ? k_.landing + commands_.number(i) * work_.block_bytes : block(i).data();
    }

    /// Starts the next command of the workload in free slot `i`, unless the workload is over.
    FOREBAY_DEVICE void begin(std::uint32_t i, std::uint64_t now) {
      // relaxed, both: seeing `stop` late costs a few commands; `issued` only hands out numbers.
      if (simt::atomic<M>(k_.control->stop).load(simt::order::relaxed) != 0) return;
      if (now >= end_ns_) return;
      std::uint64_t const number = simt::atomic<M>(k_.control->issued).fetch_add(1, simt::order::relaxed);
      if (work_.runtime_ns == 0 && number >= work_.commands) return;

      block_command& c = commands_[i].command;
      std::uint64_t const blocks = work_.region_bytes / work_.block_bytes;
      std::uint64_t const index = work_.random ? random_.below(blocks) : number % blocks;
      c.offset_bytes = work_.first_byte + index * work_.block_bytes;
      c.is_write = work_.read_percent < 100 && random_.below(100) >= work_.read_percent;
      if (work_.verify && c.is_write) {
        apps::fill_pattern<M>(data(i), work_.block_bytes, c.offset_bytes, work_.seed, apps::generation::rewritten);
      }
      // acquire: pairs with the release in `mark_written`, so this read follows the write that set the bit.
      c.rewritten_before =
          work_.verify && !c.is_write &&
          (simt::atomic<M>(k_.written[index / 32]).load(simt::order::acquire) >> (index % 32) & 1) != 0;
      commands_.begin(i, *this, now);
    }

    FOREBAY_DEVICE void mark_written(block_command const& c) {
      std::uint64_t const index = (c.offset_bytes - work_.first_byte) / work_.block_bytes;
      // release: pairs with the acquire in `begin`.
      simt::atomic<M>(k_.written[index / 32]).fetch_or(1u << index % 32, simt::order::release);
    }

    FOREBAY_DEVICE void check_data(std::uint32_t i) {
      if (data_holds(i)) return;
      ++result_.mismatches;
      std::uint64_t const offset_bytes = commands_[i].command.offset_bytes;
      if (offset_bytes < result_.first_mismatch_byte) result_.first_mismatch_byte = offset_bytes;
    }
    FOREBAY_DEVICE bool data_holds(std::uint32_t i) const {
      block_command const& c = commands_[i].command;
      std::byte const* const data = this->data(i);
      if (c.rewritten_before) {
        return apps::matches_pattern<M>(data, work_.block_bytes, c.offset_bytes, work_.seed,
                                        apps::generation::rewritten);
      }
      if (work_.laid_down && work_.read_percent == 100) {
        return apps::matches_pattern<M>(data, work_.block_bytes, c.offset_bytes, work_.seed,
                                        apps::generation::laid_down);
      }
      return apps::matches_either_pattern<M>(data, work_.block_bytes, c.offset_bytes, work_.seed);
    }

    FOREBAY_DEVICE void fail(status outcome) {
      if (result_.errors++ == 0) result_.first_error = outcome;
      // relaxed: see `begin`.
      simt::atomic<M>(k_.control->stop).store(1, simt::order::relaxed);
    }

    kernel const& k_;
    workload const& work_;
    std::uint32_t rank_;
    apps::in_flight<M, slot_type> commands_;
    std::uint64_t begin_ns_ = 0;
    std::uint64_t end_ns_ = 0;
    apps::splitmix64 random_;
    apps::latency_recorder<M> read_;
    apps::latency_recorder<M> write_;
    thread_result result_;
  };
};

}  // namespace forebay::block_io
