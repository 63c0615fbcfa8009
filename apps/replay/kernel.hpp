// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernel behind `forebay replay`: threads that take the operations of a trace one after the other and keep them in
//! flight together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "apps/common/command_latencies.hpp"
#include "apps/common/in_flight.hpp"
#include "apps/common/latency_histogram.hpp"
#include "apps/common/pattern.hpp"
#include "apps/replay/operation.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::replay {

/// The work of the threads. Offsets and lengths of the operations are multiples of `block_bytes`, itself a multiple of
/// 64.
struct workload {
  std::uint64_t operations = 0;
  std::uint64_t slot_bytes = 0;  ///< of the longest operation
  std::uint64_t block_bytes = 512;
  std::uint64_t seed = 1;
  std::uint64_t timeout_ns = 0;    ///< a thread gives up if none of its operations completes for this long
  std::uint64_t lag_bound_ns = 0;  ///< operations that are submitted later than this after their time are counted
  std::uint32_t threads = 1;       ///< at most `iodepth`
  std::uint32_t iodepth = 1;       ///< operations in flight, of all threads together
  bool open_loop = false;          ///< submit each when it is due; else as soon as one has completed
  bool verify = false;

  /// Words of the bitmap over the blocks that the longest operation touches, wherever it begins.
  FOREBAY_DEVICE constexpr std::uint64_t snapshot_words() const { return slot_bytes / block_bytes / 32 + 2; }
};

/// Words that the threads share. Zeroed before the launch.
struct control {
  std::uint64_t epoch_ns = 0;  ///< clock at the replay's begin
  std::uint64_t taken = 0;     ///< operations that some thread has taken, and attempts beyond the trace's end
  std::uint32_t stop = 0;      ///< some thread met an error
  std::uint32_t unused = 0;
};

/// The counts of one thread, over the operations that completed with success.
struct thread_result {
  apps::command_summary read;
  apps::command_summary write;
  apps::command_summary flush;
  apps::latency_summary lag;  ///< of every operation submitted: from when it was due to the call that submits
  std::uint64_t above_bound = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t write_bytes = 0;
  std::uint64_t last_completion_ns = 0;
  std::uint64_t verified_blocks = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch_byte = ~std::uint64_t{0};
  std::uint64_t errors = 0;
  status first_error;
  std::uint32_t first_error_line = 0;
};

/// The histograms that the threads share, `apps::latency_bins::count` words each.
struct shared_bins {
  std::uint64_t* read;
  std::uint64_t* write;
  std::uint64_t* flush;
  std::uint64_t* lag;
};

/// `Storage` is a `storage_ref<M>` or a model of its asynchronous members; `Buffer` a `buffer_ref`.
///
/// A write stores data that depends on the seed and on the address alone. So a block that was ever written keeps one
/// content, whatever other writes of it are in flight, and the data that a read must find is known at any depth.
template <class M, class Storage, class Buffer>
struct kernel {
  using token_type =
      decltype(std::declval<Storage const&>().read_async(std::declval<Buffer>(), std::uint64_t{}, std::uint64_t{}));
  using slot_type = apps::in_flight_slot<token_type, operation>;

  Storage storage;
  Buffer buffer;  ///< `iodepth * slot_bytes`
  workload work;
  operation const* operations;
  replay::control* control;
  slot_type* slots;        ///< `iodepth`, zeroed
  thread_result* results;  ///< `threads`
  shared_bins bins;
  std::uint32_t* written;         ///< one bit a block, set once a write of it has completed; used where `verify` is set
  std::uint32_t* written_before;  ///< `iodepth * snapshot_words()`: what a read found of `written` as it began

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const rank = M::thread_rank();
    if (rank < work.threads) thread(*this, rank).run();
  }

 private:
  class thread {
   public:
    FOREBAY_DEVICE thread(kernel const& k, std::uint32_t rank)
        : k_(k),
          work_(k.work),
          rank_(rank),
          commands_(k.slots, apps::in_flight_share::of(work_.iodepth, work_.threads, rank), work_.timeout_ns),
          read_(k.bins.read),
          write_(k.bins.write),
          flush_(k.bins.flush),
          lag_(k.bins.lag) {}

    FOREBAY_DEVICE void run() {
      agree_on_epoch();
      for (;;) {
        submit_what_is_due();
        if (commands_.count() == 0 && !taken_) break;
        // A taken operation must not be submitted any more once there was an error.
        commands_.wait(*this, taken_ ? due_ns() : simt::no_deadline, [this] { return taken_ && stopped(); });
      }
      result_.read.completion = read_.summary();
      result_.write.completion = write_.summary();
      result_.flush.completion = flush_.summary();
      result_.lag = lag_.summary();
      k_.results[rank_] = result_;
    }

    FOREBAY_DEVICE token_type submit(std::uint32_t i) const {
      operation const& op = commands_[i].command;
      switch (op.kind) {
        case operation_kind::read:
          return k_.storage.read_async(room(i, op.bytes), op.offset_bytes, op.bytes);
        case operation_kind::write:
          return k_.storage.write_async(room(i, op.bytes), op.offset_bytes, op.bytes);
        case operation_kind::flush:
          break;
      }
      return k_.storage.flush_async();
    }

    FOREBAY_DEVICE void finish(std::uint32_t i, status outcome, std::uint64_t now) {
      slot_type const& s = commands_[i];
      operation const& op = s.command;
      if (!taken_) next_ = i;
      if (!outcome) return fail(outcome, op.line);
      switch (op.kind) {
        case operation_kind::read:
          record(s, now, result_.read, read_);
          result_.read_bytes += op.bytes;
          if (work_.verify) check_data(i);
          break;
        case operation_kind::write:
          record(s, now, result_.write, write_);
          result_.write_bytes += op.bytes;
          if (work_.verify) mark_written(op);
          break;
        case operation_kind::flush:
          record(s, now, result_.flush, flush_);
          break;
      }
      result_.last_completion_ns = now;
    }

   private:
    FOREBAY_DEVICE void agree_on_epoch() {
      auto epoch = simt::atomic<M>(k_.control->epoch_ns);
      std::uint64_t seen = 0;
      std::uint64_t const now = M::clock_ns();
      // relaxed: the word is all that is shared; whichever value wins, every thread uses that one.
      if (epoch.compare_exchange(seen, now, simt::order::relaxed)) seen = now;
      epoch_ns_ = seen;
    }

    FOREBAY_DEVICE Buffer room(std::uint32_t i, std::uint64_t bytes) const {
      return k_.buffer.subspan(commands_.number(i) * work_.slot_bytes, bytes);
    }
    FOREBAY_DEVICE std::uint32_t* snapshot(std::uint32_t i) const {
      return k_.written_before + commands_.number(i) * work_.snapshot_words();
    }
    FOREBAY_DEVICE std::uint64_t due_ns() const { return epoch_ns_ + commands_[next_].command.at_ns; }
    FOREBAY_DEVICE bool stopped() const {
      // relaxed: seeing `stop` late costs a few operations.
      return simt::atomic<M>(k_.control->stop).load(simt::order::relaxed) != 0;
    }

    FOREBAY_DEVICE void submit_what_is_due() {
      while (take()) {
        if (work_.open_loop && M::clock_ns() < due_ns()) return;
        begin();
      }
    }

    /// Whether this thread has an operation to submit next, in slot `next_`: the one that it took before, or the next
    /// one of the trace if a slot is free. The slot's data is prepared here, before the operation is due.
    FOREBAY_DEVICE bool take() {
      if (stopped()) taken_ = false;
      if (taken_ || exhausted_ || commands_.count() == commands_.size() || stopped()) return taken_;
      // relaxed: the word only hands out numbers.
      std::uint64_t const number = simt::atomic<M>(k_.control->taken).fetch_add(1, simt::order::relaxed);
      if (number >= work_.operations) {
        exhausted_ = true;
        return false;
      }
      while (commands_[next_].in_flight) next_ = next_ + 1 < commands_.size() ? next_ + 1 : 0;
      operation const& from = k_.operations[number];
      operation& op = commands_[next_].command;
      op = {M::ld(&from.offset_bytes), M::ld(&from.bytes), M::ld(&from.at_ns), M::ld(&from.kind), M::ld(&from.line)};
      // A read that transfers nothing must not find what the slot held before.
      if (op.kind == operation_kind::read && work_.verify) fill(op, apps::generation::laid_down);
      if (op.kind == operation_kind::write) fill(op, apps::generation::rewritten);
      taken_ = true;
      return true;
    }

    FOREBAY_DEVICE void fill(operation const& op, apps::generation g) const {
      apps::fill_pattern<M>(room(next_, op.bytes).data(), op.bytes, op.offset_bytes, work_.seed, g);
    }

    FOREBAY_DEVICE void begin() {
      slot_type& s = commands_[next_];
      if (work_.verify && s.command.kind == operation_kind::read) remember_what_was_written(next_);
      commands_.begin(next_, *this);
      if (work_.open_loop) {
        std::uint64_t const lag_ns = s.begun_ns - due_ns();
        lag_.add(lag_ns);
        if (lag_ns > work_.lag_bound_ns) ++result_.above_bound;
      }
      taken_ = false;
    }

    FOREBAY_DEVICE void record(slot_type const& s, std::uint64_t now, apps::command_summary& summary,
                               apps::latency_recorder<M>& completion) {
      summary.submission.add(s.submitted_ns - s.begun_ns);
      summary.total.add(now - s.begun_ns);
      completion.add(now - s.submitted_ns);
    }

    /// Calls `visit(word, bits)` for the words of `written`, and the bits in them, that stand for the blocks of `op`.
    template <class Visit>
    FOREBAY_DEVICE void for_words(operation const& op, Visit&& visit) const {
      std::uint64_t const end = (op.offset_bytes + op.bytes) / work_.block_bytes;
      for (std::uint64_t block = op.offset_bytes / work_.block_bytes; block < end; block = (block / 32 + 1) * 32) {
        std::uint64_t const left = end - block / 32 * 32;
        visit(block / 32, (left < 32 ? (1u << left) - 1 : ~0u) & ~0u << block % 32);
      }
    }

    FOREBAY_DEVICE void mark_written(operation const& op) const {
      for_words(op, [&](std::uint64_t word, std::uint32_t bits) {
        // release: pairs with the acquire in `remember_what_was_written`.
        simt::atomic<M>(k_.written[word]).fetch_or(bits, simt::order::release);
      });
    }

    FOREBAY_DEVICE void remember_what_was_written(std::uint32_t i) const {
      std::uint32_t* to = snapshot(i);
      for_words(commands_[i].command, [&](std::uint64_t word, std::uint32_t bits) {
        // acquire: pairs with the release in `mark_written`, so this read follows the write that set the bit.
        *to++ = simt::atomic<M>(k_.written[word]).load(simt::order::acquire) & bits;
      });
    }

    FOREBAY_DEVICE void check_data(std::uint32_t i) {
      operation const& op = commands_[i].command;
      std::byte const* const data = room(i, op.bytes).data();
      std::uint32_t const* seen = snapshot(i);
      for_words(op, [&](std::uint64_t word, std::uint32_t) {
        std::uint32_t const written = *seen++;
        for (std::uint32_t bit = 0; bit < 32; ++bit) {
          if ((written >> bit & 1) == 0) continue;
          std::uint64_t const address = (word * 32 + bit) * work_.block_bytes;
          ++result_.verified_blocks;
          if (apps::matches_pattern<M>(data + (address - op.offset_bytes), work_.block_bytes, address, work_.seed,
                                       apps::generation::rewritten)) {
            continue;
          }
          ++result_.mismatches;
          if (address < result_.first_mismatch_byte) result_.first_mismatch_byte = address;
        }
      });
    }

    FOREBAY_DEVICE void fail(status outcome, std::uint32_t line) {
      if (result_.errors++ == 0) {
        result_.first_error = outcome;
        result_.first_error_line = line;
      }
      // relaxed: see `stopped`.
      simt::atomic<M>(k_.control->stop).store(1, simt::order::relaxed);
    }

    kernel const& k_;
    workload const& work_;
    std::uint32_t rank_;
    apps::in_flight<M, slot_type> commands_;
    std::uint32_t next_ = 0;  ///< the slot of the operation taken; else where the search for a free one begins
    bool taken_ = false;
    bool exhausted_ = false;
    std::uint64_t epoch_ns_ = 0;
    apps::latency_recorder<M> read_;
    apps::latency_recorder<M> write_;
    apps::latency_recorder<M> flush_;
    apps::latency_recorder<M> lag_;
    thread_result result_;
  };
};

}  // namespace forebay::replay
