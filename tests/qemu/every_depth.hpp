// SPDX-License-Identifier: Apache-2.0
//! \file
//! Many commands through queues of every depth, for any machine: threads write to a QEMU drive, read back what they
//! wrote, and look at every byte.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "storage/patience.hpp"
#include "storage/storage_kernels.hpp"
#include "support/environment.hpp"
#include "support/qemu_scheme.hpp"

namespace forebay::storage_test {

/// The results of `write_and_read_back`; a read whose bytes or whose neighbours are wrong counts as `wrong_data`.
struct read_back_tally {
  tally transfers;
  std::uint64_t bytes_each_way = 0;
};

/// Each thread has a part of the drive and of the buffer for each of its transfers in flight. In each round it writes
/// some blocks and reads them back, to another place in the buffer.
template <class M>
struct write_and_read_back {
  static constexpr std::uint32_t in_flight = 2;
  static constexpr std::uint32_t blocks_max = 24;
  static constexpr std::uint32_t page_bytes = 4096;

  storage_ref<M> storage;
  buffer_ref buffer;  ///< `threads * in_flight` parts
  std::uint32_t threads;
  std::uint32_t rounds;
  std::uint64_t seed;
  read_back_tally* result;

  /// Room for a transfer that begins anywhere in a page, and for the words before and after it.
  FOREBAY_DEVICE static constexpr std::uint64_t part_bytes(std::uint64_t block_bytes) {
    return blocks_max * block_bytes + page_bytes;
  }
  FOREBAY_DEVICE static constexpr std::uint32_t word_of(std::uint64_t offset_bytes, std::uint64_t round) {
    return static_cast<std::uint32_t>(stamp(offset_bytes, round) >> 32);
  }
  static constexpr std::uint32_t guard = 0xfeedbeef;

  struct range {
    std::uint64_t offset_bytes;
    std::uint64_t bytes;
  };

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const me = M::thread_rank();
    if (me >= threads) return;
    typename storage_ref<M>::token_type tokens[in_flight];
    range ranges[in_flight];
    buffer_ref places[in_flight];
    std::uint64_t bytes = 0;
    for (std::uint32_t r = 0; r < rounds; ++r) {
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        std::uint64_t const dice = mix(seed + (me * std::uint64_t{rounds} + r) * in_flight + i);
        ranges[i] = range_in(me * in_flight + i, dice);
        places[i] = place_in(me * in_flight + i, dice >> 44, ranges[i].bytes);
        put(places[i], ranges[i], r);
        tokens[i] = storage.write_async(places[i], ranges[i].offset_bytes, ranges[i].bytes);
      }
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        count<M>(&result->transfers, tokens[i].wait(), true);
        bytes += ranges[i].bytes;
      }
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        places[i] = place_in(me * in_flight + i, mix(ranges[i].offset_bytes + r), ranges[i].bytes);
        spoil(places[i], ranges[i], r);
        tokens[i] = storage.read_async(places[i], ranges[i].offset_bytes, ranges[i].bytes);
      }
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        status const s = tokens[i].wait();
        count<M>(&result->transfers, s, holds(places[i], ranges[i], r));
      }
    }
    // Relaxed: the launch orders it before the host's read.
    simt::atomic<M>(result->bytes_each_way).fetch_add(bytes, simt::order::relaxed);
  }

 private:
  /// Half of them are single blocks.
  FOREBAY_DEVICE range range_in(std::uint64_t part, std::uint64_t dice) const {
    std::uint64_t const block = storage.block_bytes();
    std::uint64_t const of_part = storage.size_bytes() / block / (std::uint64_t{threads} * in_flight);
    std::uint64_t const most = of_part < blocks_max ? of_part : blocks_max;
    std::uint64_t const blocks = (dice & 1) != 0 ? 1 : 1 + (dice >> 1) % most;
    return {(part * of_part + (dice >> 20) % (of_part - blocks + 1)) * block, blocks * block};
  }
  FOREBAY_DEVICE buffer_ref place_in(std::uint64_t part, std::uint64_t dice, std::uint64_t bytes) const {
    std::uint64_t const all = part_bytes(storage.block_bytes());
    return buffer.subspan(part * all + 4 + dice % (page_bytes / 4 - 2) * 4, bytes);
  }
  FOREBAY_DEVICE static std::uint32_t* words_of(buffer_ref const& place) {
    return reinterpret_cast<std::uint32_t*>(place.data());
  }
  FOREBAY_DEVICE static void put(buffer_ref const& place, range const& of, std::uint32_t round) {
    for (std::uint64_t at = 0; at < of.bytes; at += 4)
      M::st(words_of(place) + at / 4, word_of(of.offset_bytes + at, round));
  }
  /// No byte is what it is to be.
  FOREBAY_DEVICE static void spoil(buffer_ref const& place, range const& of, std::uint32_t round) {
    M::st(words_of(place) - 1, guard);
    for (std::uint64_t at = 0; at < of.bytes; at += 4)
      M::st(words_of(place) + at / 4, ~word_of(of.offset_bytes + at, round));
    M::st(words_of(place) + of.bytes / 4, guard);
  }
  FOREBAY_DEVICE static bool holds(buffer_ref const& place, range const& of, std::uint32_t round) {
    std::uint32_t wrong = M::ld(words_of(place) - 1) ^ guard;
    for (std::uint64_t at = 0; at < of.bytes; at += 4)
      wrong |= M::ld(words_of(place) + at / 4) ^ word_of(of.offset_bytes + at, round);
    return (wrong | (M::ld(words_of(place) + of.bytes / 4) ^ guard)) == 0;
  }
};

/// At least `wanted` commands, each transfer being one, through `pairs` queue pairs of `depth` entries. `Machine` is
/// one of the storage suite's. Returns how many commands the drive counted.
template <class Machine>
std::uint64_t write_and_read_back_through(std::uint32_t depth, std::uint32_t pairs, std::uint64_t wanted) {
  using M = typename Machine::machine;
  using kernel = write_and_read_back<M>;
  constexpr std::uint32_t lanes = 64, most_threads = 4096;
  SCOPED_TRACE(std::to_string(pairs) + " queue pairs of " + std::to_string(depth) + " entries");
  test::add_qemu_scheme();
  storage_options o;
  o.drives = {"qemu:size=256M,as=every_depth,depth=" + std::to_string(depth)};
  o.device = Machine::device();
  o.timeout_ns = patience_ns();
  o.queues.per_drive = pairs;
  o.queues.depth = depth;
  o.queues.prp_list_pages = 4096;
  storage st(o);
  // More requests than entries, where there are so many commands that each thread has two rounds.
  std::uint64_t const per_round = 2 * kernel::in_flight;
  std::uint64_t const full = pairs * (depth - 1) * 5 / 4 / kernel::in_flight + 4;
  auto const threads = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(wanted / per_round / 2, 1, std::min<std::uint64_t>(full, most_threads)));
  auto const rounds = static_cast<std::uint32_t>((wanted + threads * per_round - 1) / (threads * per_round));
  std::uint64_t const seed = testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("replay with --gtest_random_seed=" + std::to_string(seed));

  registered_buffer const buffer =
      st.allocate_buffer(threads * kernel::in_flight * kernel::part_bytes(st.block_bytes()));
  registered_buffer const results = st.allocate_buffer(sizeof(read_back_tally));
  auto* const found = reinterpret_cast<read_back_tally*>(results.data());
  st.reset_statistics();
  auto const begun = std::chrono::steady_clock::now();
  {
    storage_lease const running = st.lease();
    [[maybe_unused]] auto const dog = watched(st);
    Machine::run({(threads + lanes - 1) / lanes, lanes},
                 kernel{st.ref<M>(), buffer.ref(), threads, rounds, seed << 32, found});
  }
  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();

  test::qemu_traffic const counted = test::traffic_in(st.report());
  std::uint64_t const half = std::uint64_t{threads} * rounds * kernel::in_flight;
  EXPECT_EQ(found->transfers.ok, 2 * half) << to_string(status::from_bits(found->transfers.first_failure));
  EXPECT_EQ(found->transfers.wrong_data, 0u);
  EXPECT_EQ(counted.write_commands, half);
  EXPECT_EQ(counted.read_commands, half);
  EXPECT_EQ(counted.bytes_written, found->bytes_each_way);
  EXPECT_EQ(counted.bytes_read, found->bytes_each_way);
  EXPECT_TRUE(test::opened_qemu("every_depth").dma().stray_pages().empty());
  std::uint64_t const commands = counted.read_commands + counted.write_commands;
  std::printf("depth %4u, %u queue pairs, %4u threads: %7llu commands, %6.2f s, %6.0f IOPS\n", depth, pairs, threads,
              static_cast<unsigned long long>(commands), seconds, static_cast<double>(commands) / seconds);
  std::fflush(stdout);
  return commands;
}

/// FOREBAY_QEMU_COMMANDS commands, shared out over depths and numbers of queue pairs.
template <class Machine>
void write_and_read_back_at_every_depth() {
  std::uint64_t const wanted = test::number_from_environment("FOREBAY_QEMU_COMMANDS", 20'000);
  constexpr std::uint32_t depths[] = {2, 3, 7, 64, 256, 1024};
  constexpr std::uint32_t pairs[] = {1, 4, 8};
  constexpr std::uint64_t shares = std::size(depths) * std::size(pairs);
  std::uint64_t commands = 0;
  for (std::uint32_t const depth : depths) {
    for (std::uint32_t const count : pairs) {
      commands += write_and_read_back_through<Machine>(depth, count, (wanted + shares - 1) / shares);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(commands, wanted);
  std::printf("all: %llu commands\n", static_cast<unsigned long long>(commands));
}

}  // namespace forebay::storage_test
