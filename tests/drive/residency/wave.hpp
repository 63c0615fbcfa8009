// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernel of the residency proof: threads that write and read their own blocks of a drive, and read those that all
//! clients share; every byte is checked, every command counted.
#pragma once

#include <cstdint>

#include "apps/common/pattern.hpp"
#include "apps/common/random.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/storage_ref.hpp"

namespace forebay::residency {

/// The threads' own counts of a wave, from 0 on, for the life of a client.
struct totals {
  std::uint64_t read_commands = 0;
  std::uint64_t write_commands = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t wrong_blocks = 0;
  std::uint64_t failed = 0;
  std::uint64_t begun = 0;             ///< threads whose first command has completed
  std::uint64_t first_wrong_byte = 0;  ///< valid where `wrong_blocks` is not 0
  std::uint32_t first_failure = 0;     ///< bits of a `status`; valid where `failed` is not 0
  std::uint32_t stop = 0;              ///< by the first thread that failed: the others leave
};

/// Which bytes a client has, and what its threads do with them. Bytes are multiples of the block.
struct plan {
  std::uint64_t common_first = 0;  ///< version 1 of the pattern, which nobody changes
  std::uint64_t common_bytes = 0;
  std::uint64_t own_first = 0;
  std::uint64_t run_blocks = 0;  ///< consecutive blocks of each thread
  std::uint32_t threads = 0;
  std::uint32_t piece_blocks = 0;  ///< of a command at most
  std::uint32_t block_bytes = 512;
  std::uint64_t seed = 0;
  std::uint64_t client = 0;  ///< tells the random choices of clients apart

  FOREBAY_DEVICE std::uint64_t own_bytes() const { return std::uint64_t{threads} * run_blocks * block_bytes; }
  /// Of each thread: a piece of its own, and a block of the common ones.
  FOREBAY_DEVICE std::uint64_t buffer_bytes() const { return std::uint64_t{piece_blocks + 1} * block_bytes; }
};

/// The content of the block at `address` in version `version`.
template <class M>
FOREBAY_DEVICE bool holds(std::byte const* data, plan const& p, std::uint64_t address, std::uint32_t version) {
  return apps::matches_pattern<M>(data, p.block_bytes, address, p.seed, static_cast<apps::generation>(version));
}

template <class M>
struct wave {
  storage_ref<M> storage;
  buffer_ref buffer;
  plan work;
  std::uint32_t* versions = nullptr;  ///< of each block of the client's own; read and written by its thread alone
  totals* sums = nullptr;
  std::uint64_t number = 0;  ///< of the wave; 0 writes every block of the client's once
  std::uint32_t rounds = 0;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const rank = M::thread_rank();
    if (rank >= work.threads) return;
    thread self(*this, rank);
    self.run();
  }

  class thread {
   public:
    FOREBAY_DEVICE thread(wave const& of, std::uint32_t rank)
        : w_(of), p_(of.work), rank_(rank), random_(p_.seed, (p_.client << 40 | of.number) << 20 ^ rank) {}

    FOREBAY_DEVICE void run() {
      if (w_.number == 0) {
        for (std::uint64_t at = 0; at < p_.run_blocks && !stopped();) {
          std::uint64_t const left = p_.run_blocks - at;
          std::uint32_t const n = left < p_.piece_blocks ? static_cast<std::uint32_t>(left) : p_.piece_blocks;
          round(at, n, true, false);
          at += n;
        }
      } else {
        for (std::uint32_t r = 0; r < w_.rounds && !stopped(); ++r) {
          std::uint64_t const most = p_.run_blocks < p_.piece_blocks ? p_.run_blocks : p_.piece_blocks;
          auto const n = static_cast<std::uint32_t>(1 + random_.below(most));
          std::uint64_t const at = random_.below(p_.run_blocks - n + 1);
          round(at, n, random_.below(10) < 3, random_.below(4) == 0);
        }
      }
      report();
    }

   private:
    using token_type = token<M>;

    FOREBAY_DEVICE std::uint64_t address(std::uint64_t block) const {
      return p_.own_first + (rank_ * p_.run_blocks + block) * p_.block_bytes;
    }
    FOREBAY_DEVICE std::uint32_t* version(std::uint64_t block) const {
      return w_.versions + rank_ * p_.run_blocks + block;
    }
    FOREBAY_DEVICE buffer_ref own_buffer(std::uint64_t bytes) const {
      return w_.buffer.subspan(rank_ * p_.buffer_bytes(), bytes);
    }
    FOREBAY_DEVICE buffer_ref common_buffer() const {
      return w_.buffer.subspan(rank_ * p_.buffer_bytes() + std::uint64_t{p_.piece_blocks} * p_.block_bytes,
                               p_.block_bytes);
    }
    FOREBAY_DEVICE bool stopped() const {
      // Relaxed: nothing is handed over by it.
      return simt::atomic<M>(w_.sums->stop).load(simt::order::relaxed) != 0;
    }

    /// One command on `n` blocks of the thread's own, and at the same time one on a common block.
    FOREBAY_DEVICE void round(std::uint64_t at, std::uint32_t n, bool is_write, bool reads_common) {
      std::uint64_t const bytes = std::uint64_t{n} * p_.block_bytes;
      buffer_ref const mine = own_buffer(bytes);
      if (is_write) {
        for (std::uint32_t i = 0; i < n; ++i) {
          apps::fill_pattern<M>(mine.data() + i * p_.block_bytes, p_.block_bytes, address(at + i), p_.seed,
                                static_cast<apps::generation>(M::ld(version(at + i)) + 1));
        }
      }
      // A read must not take data that was in its buffer before for data that it transferred.
      for (std::uint32_t i = 0; i < n && !is_write; ++i) spoil(mine.data() + i * p_.block_bytes);
      token_type own = start(is_write, mine, address(at), bytes);
      token_type common;
      std::uint64_t common_address = 0;
      if (reads_common) {
        common_address = p_.common_first + random_.below(p_.common_bytes / p_.block_bytes) * p_.block_bytes;
        spoil(common_buffer().data());
        common = start(false, common_buffer(), common_address, p_.block_bytes);
      }
      bool const done = finish(own, is_write, mine, address(at), bytes);
      bool const common_done = reads_common && finish(common, false, common_buffer(), common_address, p_.block_bytes);
      if (done) {
        for (std::uint32_t i = 0; i < n; ++i) {
          std::uint32_t* const v = version(at + i);
          if (is_write) {
            M::st(v, M::ld(v) + 1);
          } else {
            check(mine.data() + i * p_.block_bytes, address(at + i), M::ld(v));
          }
        }
      }
      if (common_done) check(common_buffer().data(), common_address, 1);
      begin();
    }

    FOREBAY_DEVICE void spoil(std::byte* block) const {
      for (std::uint32_t at : {0u, p_.block_bytes - 8}) {
        auto* const word = reinterpret_cast<std::uint64_t*>(block + at);
        M::st(word, ~M::ld(word));
      }
    }

    FOREBAY_DEVICE token_type start(bool is_write, buffer_ref const& data, std::uint64_t at,
                                    std::uint64_t bytes) const {
      return is_write ? w_.storage.write_async(data, at, bytes) : w_.storage.read_async(data, at, bytes);
    }

    /// Waits for the command, and starts it again if there was no room for it: it was then never sent.
    FOREBAY_DEVICE bool finish(token_type t, bool is_write, buffer_ref const& data, std::uint64_t at,
                               std::uint64_t bytes) {
      status outcome = t.wait();
      while ((outcome == status(fault::busy) || outcome == status(fault::no_record)) && !stopped()) {
        t = start(is_write, data, at, bytes);
        outcome = t.wait();
      }
      if (!outcome.ok()) {
        t.detach();
        fail(outcome);
        return false;
      }
      ++(is_write ? mine_.write_commands : mine_.read_commands);
      (is_write ? mine_.bytes_written : mine_.bytes_read) += bytes;
      return true;
    }

    FOREBAY_DEVICE void check(std::byte const* data, std::uint64_t at, std::uint32_t expected) {
      if (holds<M>(data, p_, at, expected)) return;
      if (mine_.wrong_blocks++ == 0) mine_.first_wrong_byte = at;
    }

    FOREBAY_DEVICE void fail(status outcome) {
      if (mine_.failed++ == 0) mine_.first_failure = outcome.bits();
      // Relaxed: see `stopped`.
      simt::atomic<M>(w_.sums->stop).store(1, simt::order::relaxed);
    }

    /// Tells the host that the kernel is at work, once.
    FOREBAY_DEVICE void begin() {
      if (mine_.begun++ == 0) add(w_.sums->begun, 1);
    }

    FOREBAY_DEVICE void report() const {
      totals& sums = *w_.sums;
      add(sums.read_commands, mine_.read_commands);
      add(sums.write_commands, mine_.write_commands);
      add(sums.bytes_read, mine_.bytes_read);
      add(sums.bytes_written, mine_.bytes_written);
      if (mine_.wrong_blocks != 0 && add(sums.wrong_blocks, mine_.wrong_blocks) == 0) {
        M::st(&sums.first_wrong_byte, mine_.first_wrong_byte);
      }
      if (mine_.failed != 0 && add(sums.failed, mine_.failed) == 0) M::st(&sums.first_failure, mine_.first_failure);
    }
    FOREBAY_DEVICE static std::uint64_t add(std::uint64_t& to, std::uint64_t n) {
      // Relaxed: the end of the launch orders them before the host's read.
      return simt::atomic<M>(to).fetch_add(n, simt::order::relaxed);
    }

    wave const& w_;
    plan const& p_;
    std::uint64_t rank_;
    apps::splitmix64 random_;
    totals mine_;
  };
};

}  // namespace forebay::residency
