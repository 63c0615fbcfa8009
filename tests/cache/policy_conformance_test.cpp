// SPDX-License-Identifier: Apache-2.0
//! \file
//! What every replacement policy must do, whichever pages it prefers.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "docs/examples/lru.hpp"
#include "forebay/clock.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/s3_fifo.hpp"
#include "policy_set.hpp"

namespace forebay::test {
namespace {

/// The smallest valid policy: it keeps no state, and always evicts the same page.
struct lowest_way {
  static constexpr char const* name = "lowest_way";
  static constexpr std::uint32_t mark_bits = 0;
  struct set_state {};

  template <class M>
  FOREBAY_DEVICE static std::uint32_t hit(std::uint32_t marks, set_state*, std::uint32_t) {
    return marks;
  }
  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t victim(Set const& set, set_state*) {
    std::uint32_t const evictable = set.look().evictable;
    return evictable == 0 ? replacement::no_way : simt::lowest_bit(evictable);
  }
  template <class M, class Set>
  FOREBAY_DEVICE static void evicted(Set const&, set_state*, std::uint32_t, std::uint32_t, std::uint32_t) {}
  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t filled(Set const&, set_state*, std::uint32_t, std::uint32_t) {
    return 0;
  }
};

template <class Policy>
class PolicyConformance : public testing::Test {
 protected:
  template <class M = simt::native>
  using set_of = policy_set<M, Policy>;
  static constexpr std::uint32_t no_way = replacement::no_way;

  /// Uses, pins, unpins and drops pages at random.
  template <class Set>
  static void live(Set& set, simt::random_source& random, std::uint32_t steps) {
    for (std::uint32_t k = 0; k < steps; ++k) {
      std::uint32_t const way = random.below(set.ways());
      switch (random.below(8)) {
        case 0:
          if (set.find(set.tag(way)) == way) set.set_evictable(way, random.below(2) == 0);
          break;
        case 1:
          if (random.below(4) == 0) set.erase(way);
          break;
        default:
          set.use(1 + random.below(set.ways() * 2));
      }
    }
  }
  /// Lets pages in until no way is free.
  template <class Set>
  static void fill(Set& set, std::uint32_t first_tag) {
    for (std::uint32_t way = set.free_way(); way != no_way; way = set.free_way()) set.fill(way, first_tag++);
  }
};

using policies = testing::Types<replacement::clock, replacement::s3_fifo, lru, lowest_way>;
struct policy_names {
  template <class Policy>
  static std::string GetName(int) {
    return Policy::name;
  }
};
TYPED_TEST_SUITE(PolicyConformance, policies, policy_names);

TYPED_TEST(PolicyConformance, FindsAWayThatMayLeaveAmongAnySubsetOfAnyNumberOfWays) {
  for (std::uint32_t ways = 1; ways <= replacement::max_ways; ++ways) {
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      simt::random_source random(seed * 100 + ways);
      typename TestFixture::template set_of<> set(ways);
      this->live(set, random, 40 * ways);
      this->fill(set, 1000);
      for (std::uint32_t evictable = 0; evictable < 1u << ways; ++evictable) {
        auto copy = set;
        for (std::uint32_t way = 0; way < ways; ++way) copy.set_evictable(way, (evictable >> way & 1) != 0);
        std::uint32_t const way = copy.victim();
        if (evictable == 0) {
          ASSERT_EQ(way, this->no_way) << ways << " ways";
        } else {
          ASSERT_LT(way, ways);
          ASSERT_NE(evictable >> way & 1, 0u) << "way " << way << " of " << ways << " may not leave: " << evictable;
        }
      }
    }
  }
}

TYPED_TEST(PolicyConformance, MayBeAskedAgainForAsLongAsWhatItNamesIsInUse) {
  for (std::uint32_t ways = 1; ways <= replacement::max_ways; ++ways) {
    simt::random_source random(ways);
    typename TestFixture::template set_of<> set(ways);
    for (std::uint32_t round = 0; round < 50; ++round) {
      this->live(set, random, 10);
      this->fill(set, 1000 + round * 100);
      for (std::uint32_t way = 0; way < ways; ++way) set.set_evictable(way, true);
      // Asking alone changes nothing.
      for (std::uint32_t k = random.below(100); k > 0; --k) ASSERT_LT(set.victim(), ways);
      for (std::uint32_t left = ways; left > 0; --left) {
        std::uint32_t const way = set.victim();
        ASSERT_LT(way, ways);
        ASSERT_NE(set.look().evictable >> way & 1, 0u) << "names a way again that may not leave";
        set.set_evictable(way, false);
      }
      ASSERT_EQ(set.victim(), this->no_way);
      for (std::uint32_t way = 0; way < ways; ++way) set.set_evictable(way, true);
    }
  }
}

TYPED_TEST(PolicyConformance, EndsThoughHitsGoOn) {
  for (std::uint32_t ways = 1; ways <= replacement::max_ways; ++ways) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      simt::random_source random(seed * 100 + ways);
      typename TestFixture::template set_of<> set(ways);
      this->live(set, random, 20 * ways);
      this->fill(set, 1000);
      for (std::uint32_t way = 0; way < ways; ++way) {
        set.set_evictable(way, true);
        for (std::uint32_t k = 0; k < 4; ++k) set.hit(way);
      }
      set.begin_storm_of_hits();
      std::uint32_t const before = set.unmarks();
      ASSERT_LT(set.victim(), ways);
      EXPECT_LE(set.unmarks() - before, ways + replacement::max_mark_bits) << "does not end in few steps";
    }
  }
}

TYPED_TEST(PolicyConformance, AnyWayMayLeaveThoughThePolicyNamedAnother) {
  for (std::uint32_t ways = 1; ways <= replacement::max_ways; ++ways) {
    simt::random_source random(ways);
    typename TestFixture::template set_of<> set(ways);
    for (std::uint32_t tag = 1; tag < 2000; ++tag) {
      if (std::uint32_t const way = random.below(ways); set.find(set.tag(way)) == way) set.evict(way);
      set.use(tag);
      if (set.free_way() == this->no_way) {
        ASSERT_LT(set.victim(), ways);
      }
    }
  }
}

/// Lanes hit without a lock while lanes evict and fill under one. A policy's accesses to its state are no data race,
/// and it finds a way under every schedule.
TYPED_TEST(PolicyConformance, HitsRunBesideEvictions) {
  using M = simt::fiber;
  simt::memory_model const models[] = {simt::memory_model::race_detector, simt::memory_model::stale_reads,
                                       simt::memory_model::store_buffers};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::uint32_t const ways = 1 + static_cast<std::uint32_t>(seed % replacement::max_ways);
    typename TestFixture::template set_of<M> set(ways);
    std::uint32_t lock = 0;
    simt::run_options options;
    options.memory = models[seed % 3];
    options.record = false;
    simt::random scheduler(seed, 3);
    auto const result = simt::run(options, scheduler, {2, 3, 0}, [&] {
      std::uint32_t const me = M::thread_rank();
      simt::random_source random(seed * 100 + me);
      for (std::uint32_t k = 0; k < 12; ++k) {
        if (me % 2 == 0) {
          set.hit(random.below(ways));
          continue;
        }
        // Acquire pairs with the release below: the policy's state is as the previous holder of the lock left it.
        bool const locked = M::wait_until([&] { return simt::atomic<M>(lock).exchange(1, simt::order::acquire) == 0; },
                                          simt::no_deadline);
        M::check(locked, "the lock");
        std::uint32_t way = set.free_way();
        if (way == replacement::no_way) {
          way = set.victim();
          M::check(way < ways, "no way found though all may leave");
          set.evict(way);
        }
        set.fill(way, 1 + random.below(ways * 2));
        // Release pairs with the acquire above.
        simt::atomic<M>(lock).store(0, simt::order::release);
      }
    });
    ASSERT_TRUE(result.ok) << result.what << "\n  seed " << seed;
  }
}

TEST(Clock, GoesOnWhereItWasWhenWhatItNamedIsInUseByNow) {
  policy_set<simt::native, replacement::clock> set(4);
  for (std::uint32_t way = 0; way < 4; ++way) set.fill(way, 10 + way);
  set.hit(0);
  ASSERT_EQ(set.victim(), 1u);
  set.set_evictable(1, false);
  EXPECT_EQ(set.victim(), 2u) << "not the one that lost its mark just now";
}

TEST(S3Fifo, KeepsLittleForASetAndTellsTagsThatLieCloseTogetherApart) {
  EXPECT_LE(sizeof(replacement::s3_fifo::set_state), 64u);
  std::vector<bool> seen(1u << 16);
  for (std::uint32_t tag = 0; tag < 16384; ++tag) {
    std::uint32_t const fingerprint = replacement::s3_fifo::fingerprint(tag);
    ASSERT_LT(fingerprint, seen.size());
    ASSERT_FALSE(seen[fingerprint]) << "tag " << tag;
    seen[fingerprint] = true;
  }
}

/// A word and a note of its own, a byte of fingerprints, and its share of the set.
template <class Policy>
constexpr double bytes_for_each_frame() {
  return sizeof(std::uint64_t) + sizeof(std::uint32_t) + 1 +
         static_cast<double>(sizeof(cache_set<Policy>)) / cache_ways;
}

TEST(Bookkeeping, TakesAsManyBytesForEachFrameAsCacheOptionsSay) {
  EXPECT_EQ(bytes_for_each_frame<replacement::clock>(), 17);
  EXPECT_EQ(bytes_for_each_frame<replacement::s3_fifo>(), 19);
}

}  // namespace
}  // namespace forebay::test
