// SPDX-License-Identifier: Apache-2.0
// The parts of which the searches of vectors are made, each against a model of it.
//
// FOREBAY_SCHEDULES: each test that has lanes runs as many schedules (default 60). FOREBAY_SEED: run that one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "apps/search/distance.hpp"
#include "apps/search/exact_record.hpp"
#include "apps/search/keys.hpp"
#include "apps/search/record.hpp"
#include "apps/search/sorted_keys.hpp"
#include "apps/search/visited_slots.hpp"
#include "forebay/detail/simt/run.hpp"
#include "support/schedules.hpp"

namespace forebay::search {
namespace {

using M = simt::fiber;
using emulator::testing::on_team;
using random_numbers = std::independent_bits_engine<std::mt19937_64, 32, std::uint32_t>;

/// Calls `use(seed, random)` for each schedule's seed.
template <class Use>
void for_seeds(Use&& use) {
  emulator::testing::explore([&](std::uint64_t seed, simt::memory_model, simt::scheduler&) {
    random_numbers random(static_cast<std::uint32_t>(seed));
    use(seed, random);
  });
}

// Keys
// ---------------------------------------------------------------------------------------------------------------------

TEST(search_keys, the_lesser_distance_and_then_the_lesser_slot_is_first) {
  std::uint32_t const values[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xfffffffe};
  std::uint32_t const slots[] = {0, 1, 31, slots_max - 1, slots_max};
  for (std::uint32_t const distance : values) {
    for (std::uint32_t const slot : slots) {
      key const k = make_key(distance, slot);
      EXPECT_EQ(distance_of(k), distance);
      EXPECT_EQ(slot_of(k), slot);
      EXPECT_FALSE(is_expanded(k));
      EXPECT_TRUE(is_expanded(expanded(k)));
      EXPECT_EQ(slot_of(expanded(k)), slot);
      EXPECT_TRUE(are_same(k, expanded(k)));
      EXPECT_LT(expanded(k), no_key);
      for (std::uint32_t const other : values) {
        for (std::uint32_t const other_slot : slots) {
          bool const less = std::pair(distance, slot) < std::pair(other, other_slot);
          EXPECT_EQ(expanded(k) < make_key(other, other_slot), less);
          bool const same = distance == other && slot == other_slot;
          EXPECT_EQ(are_same(k, make_key(other, other_slot)), same);
        }
      }
    }
  }
}

TEST(search_keys, the_order_of_floats_is_that_of_their_bits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> floats{-infinity, -3.4e38f, -1.5f, -1, -1e-40f, -0.0f, 0.0f, 1e-45f, 1e-30f, 1, 1.5f, 3.4e38f};
  floats.push_back(infinity);
  random_numbers random(1);
  for (int i = 0; i < 500; ++i) {
    std::uint32_t const bits = random();
    float f;
    std::memcpy(&f, &bits, sizeof f);
    if (!std::isnan(f)) floats.push_back(f);
  }
  for (float const a : floats) {
    float const again = distance_from_ordered(ordered_bits(a));
    EXPECT_EQ(std::memcmp(&again, &a, sizeof a), 0) << a;
    for (float const b : floats) {
      if (a < b) {
        EXPECT_LT(ordered_bits(a), ordered_bits(b)) << a << ' ' << b;
      }
    }
  }
}

// Sorted keys
// ---------------------------------------------------------------------------------------------------------------------

/// What a list must be: the least keys, each once.
class model_of_keys {
 public:
  explicit model_of_keys(std::uint32_t capacity) : capacity_(capacity) {}
  void merge(std::vector<key> const& keys) {
    for (key const k : keys) {
      if (k != no_key && !holds(k)) keys_.insert(k);
    }
    while (keys_.size() > capacity_) keys_.erase(std::prev(keys_.end()));
  }
  bool holds(key k) const {
    return std::any_of(keys_.begin(), keys_.end(), [&](key of) { return are_same(of, k); });
  }
  std::vector<key> take(std::uint32_t wanted) {
    std::vector<key> taken;
    for (key const k : keys_) {
      if (!is_expanded(k) && taken.size() < wanted) taken.push_back(k);
    }
    for (key const k : taken) {
      keys_.erase(k);
      keys_.insert(expanded(k));
    }
    return taken;
  }
  bool begins_expanded(std::uint32_t count) const {
    for (key const k : keys_) {
      if (count-- == 0) return true;
      if (!is_expanded(k)) return false;
    }
    return true;
  }
  std::vector<key> all() const {
    std::vector<key> keys(keys_.begin(), keys_.end());
    keys.resize(capacity_, no_key);
    return keys;
  }

 private:
  std::uint32_t capacity_;
  std::set<key> keys_;
};

struct key_step {
  std::vector<key> merged;  ///< of each lane
  std::uint32_t wanted;     ///< then taken; 0: none
};

/// Few slots, each with a distance of its own, so that keys come again: after they were taken, after they were pushed
/// out, and more than once in one merge.
std::vector<key_step> some_steps(random_numbers& random) {
  std::uint32_t const slots = 1 + random() % 150, distances = 1 + random() % 60;
  std::vector<key_step> steps(12);
  for (key_step& step : steps) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      auto const slot = random() % slots;
      step.merged.push_back(random() % 4 == 0 ? no_key : make_key(slot * 0x9e3779b1u % distances, slot));
    }
    if (random() % 8 == 0) step.merged.assign(32, step.merged[0]);
    step.wanted = random() % 3 == 0 ? 0 : 1 + random() % 32;
  }
  return steps;
}

TEST(search_sorted_keys, hold_what_a_set_holds) {
  for_seeds([](std::uint64_t seed, random_numbers& random) {
    constexpr std::uint32_t capacities[] = {1, 2, 31, 32, 33, 100};
    std::uint32_t const capacity = capacities[seed % std::size(capacities)];
    auto const steps = some_steps(random);
    std::vector<std::vector<key>> wanted, taken(steps.size());
    std::vector<std::vector<key>> wanted_taken;
    model_of_keys model(capacity);
    std::vector<model_of_keys> after;
    for (key_step const& step : steps) {
      model.merge(step.merged);
      wanted_taken.push_back(model.take(step.wanted));
      wanted.push_back(model.all());
      after.push_back(model);
    }

    std::vector<key> memory(sorted_keys<M>::memory_keys(capacity)), incoming(32), scratch(32);
    on_team(32, seed, [&] {
      auto const warp = M::this_warp();
      std::uint32_t const lane = warp.thread_rank();
      sorted_keys<M> list(memory.data(), incoming.data(), capacity);
      list.clear(warp);
      for (std::size_t s = 0; s < steps.size(); ++s) {
        list.merge(warp, steps[s].merged[lane]);
        std::uint32_t const count = list.take(warp, steps[s].wanted, scratch.data());
        M::check(count == wanted_taken[s].size(), "the number of keys taken");
        for (std::uint32_t i = 0; i < count; ++i) M::check(scratch[i] == wanted_taken[s][i], "a key taken");
        for (std::uint32_t i = lane; i < capacity; i += 32) M::check(list[i] == wanted[s][i], "a key of the list");
        key const some = steps[s].merged[lane];
        M::check(some == no_key || list.holds(some) == after[s].holds(some), "whether the list holds a key");
        M::check(list.begins_expanded(lane) == after[s].begins_expanded(lane), "whether the first keys are expanded");
      }
      warp.sync();  // all lanes have checked the list
      list.rename(warp, [](key k) { return make_key(distance_of(k), slot_of(k) + 1000); });
      for (std::uint32_t i = lane; i < capacity; i += 32) {
        key const before = wanted.back()[i];
        M::check(
            before == no_key ? list[i] == no_key : list[i] == make_key(distance_of(before), slot_of(before) + 1000),
            "a key with another name");
      }
      list.clear(warp);
      for (std::uint32_t i = lane; i < capacity; i += 32) M::check(list[i] == no_key, "a key of a list that is empty");
    });
  });
}

// Distances
// ---------------------------------------------------------------------------------------------------------------------

TEST(search_distance, each_half_has_its_value) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    std::uint32_t const exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) continue;  // not finite
    double const magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    double const wanted = (half & 0x8000) != 0 ? -magnitude : magnitude;
    float const got = half_to_float(half);
    ASSERT_EQ(static_cast<double>(got), wanted) << half;
    ASSERT_EQ(std::signbit(got), (half & 0x8000) != 0) << half;
  }
}

/// The bits of a component that is a whole number, and the number.
std::pair<std::uint32_t, double> some_component(element e, random_numbers& random) {
  switch (e) {
    case element::u8: {
      auto const v = static_cast<std::uint32_t>(random() % 8 == 0 ? 255 : random() % 256);
      return {v, v};
    }
    case element::i8: {
      auto const v = static_cast<std::int8_t>(random() % 8 == 0 ? -128 : static_cast<int>(random() % 256) - 128);
      return {static_cast<std::uint8_t>(v), v};
    }
    case element::f16: {
      auto const half = static_cast<std::uint32_t>((random() % 2) << 15 | (12 + random() % 8) << 10 | random() % 1024);
      return {half, half_to_float(half)};
    }
    case element::f32:
      break;
  }
  float const v = std::uniform_real_distribution<float>(-3, 3)(random);
  std::uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return {bits, v};
}

struct some_vector {
  std::vector<std::uint32_t> words;
  std::vector<double> components;

  some_vector(element e, std::uint32_t dimension, random_numbers& random) {
    std::uint32_t const per_word = 4 / bytes_of(e), bits = 8 * bytes_of(e);
    words.assign((dimension + per_word - 1) / per_word, 0);
    for (std::uint32_t i = 0; i < dimension; ++i) {
      auto const [of, value] = some_component(e, random);
      words[i / per_word] |= of << (bits * (i % per_word)) % 32;
      components.push_back(value);
    }
  }
};

TEST(search_distance, is_right_for_every_element_and_metric) {
  for_seeds([](std::uint64_t seed, random_numbers& random) {
    for (element const e : {element::u8, element::i8, element::f16, element::f32}) {
      constexpr std::uint32_t dimensions[] = {1, 3, 32, 129, 768};
      std::uint32_t const dimension = dimensions[random() % std::size(dimensions)];
      some_vector const a(e, dimension, random), b(e, dimension, random);
      double squares = 0, products = 0, magnitudes = 0, norm_a = 0, norm_b = 0;
      for (std::uint32_t i = 0; i < dimension; ++i) {
        double const x = a.components[i], y = b.components[i];
        squares += (x - y) * (x - y);
        products += x * y;
        magnitudes += std::abs(x * y);
        norm_a += x * x;
        norm_b += y * y;
      }
      for (metric const m : {metric::l2, metric::inner_product, metric::cosine}) {
        if (m == metric::cosine && (norm_a == 0 || norm_b == 0)) continue;
        double const lengths = std::sqrt(norm_a) * std::sqrt(norm_b);
        double const wanted = m == metric::l2              ? squares
                              : m == metric::inner_product ? -products
                                                           : 1 - products / lengths;
        // Each of `dimension` sums of floats rounds by 2^-24 of what was added up, at most.
        double const of = m == metric::l2              ? squares
                          : m == metric::inner_product ? magnitudes
                                                       : 1 + magnitudes / lengths;
        double const error = of * (dimension + 4) * std::ldexp(1, -23);
        auto const norm = static_cast<float>(std::sqrt(norm_a));
        distance_parts alone;
        for (std::size_t i = 0; i < a.words.size(); ++i) alone.add(e, m, a.words[i], b.words[i]);
        ASSERT_NEAR(alone.of_one_lane(e, m, norm), wanted, error) << int(e) << ' ' << int(m) << ' ' << dimension;

        float together[32];
        on_team(32, seed, [&] {
          std::uint32_t const lane = M::this_warp().thread_rank();
          distance_parts parts;
          for (std::size_t i = lane; i < a.words.size(); i += 32) parts.add(e, m, a.words[i], b.words[i]);
          together[lane] = parts.of_all_lanes<M>(e, m, norm);
        });
        for (float const of_lane : together) {
          ASSERT_EQ(of_lane, together[0]);
          ASSERT_NEAR(of_lane, wanted, error) << int(e) << ' ' << int(m) << ' ' << dimension;
        }
      }
    }
  });
}

TEST(search_distance, the_longest_vectors_of_bytes_do_not_overflow) {
  struct ends {
    element of;
    std::uint32_t a, b;
    double squares, products;
  };
  for (ends const& e : {ends{element::u8, 0, 0xffffffff, 65025, 0}, ends{element::u8, 0xffffffff, 0xffffffff, 0, 65025},
                        ends{element::i8, 0x80808080, 0x7f7f7f7f, 65025, -16256},
                        ends{element::i8, 0x80808080, 0x80808080, 0, 16384}}) {
    distance_parts l2, product, cosine;
    for (std::uint32_t i = 0; i < distance_parts::dimension_max / 4; ++i) {
      l2.add(e.of, metric::l2, e.a, e.b);
      product.add(e.of, metric::inner_product, e.a, e.b);
      cosine.add(e.of, metric::cosine, e.a, e.b);
    }
    constexpr double n = distance_parts::dimension_max;
    EXPECT_EQ(l2.of_one_lane(e.of, metric::l2, 0), static_cast<float>(n * e.squares));
    EXPECT_EQ(product.of_one_lane(e.of, metric::inner_product, 0), static_cast<float>(-n * e.products));
    if (e.products != 0) {
      double const of_a = e.of == element::u8 ? 255 : 128;
      double const direction = e.products > 0 ? 0 : 2;
      EXPECT_NEAR(cosine.of_one_lane(e.of, metric::cosine, static_cast<float>(of_a * std::sqrt(n))), direction, 1e-6);
    }
  }
}

// Checksums
// ---------------------------------------------------------------------------------------------------------------------

std::uint32_t checksum_of(std::uint32_t slot, std::vector<std::uint32_t> const& words) {
  std::uint32_t sum = checksum_of_slot(slot);
  for (std::uint32_t i = 0; i < words.size(); ++i) sum += checksum_of_word(i, words[i]);
  return sum;
}

TEST(search_checksum, shows_each_change_of_one_word_and_a_wrong_place) {
  for_seeds([](std::uint64_t, random_numbers& random) {
    std::vector<std::uint32_t> words(1 + random() % 300);
    for (std::uint32_t& word : words) word = random();
    auto const slot = static_cast<std::uint32_t>(random() % slots_max);
    std::uint32_t const right = checksum_of(slot, words);
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::uint32_t const before = words[i];
      for (std::uint32_t bit = 0; bit < 32; ++bit) {
        words[i] = before ^ 1u << bit;
        ASSERT_NE(checksum_of(slot, words), right) << i << ' ' << bit;
      }
      words[i] = random();
      ASSERT_EQ(checksum_of(slot, words) == right, words[i] == before);
      words[i] = before;
    }
    for (std::uint32_t other = 0; other < 1000; ++other) {
      ASSERT_EQ(checksum_of(other, words) == right, other == slot);
    }
    ASSERT_NE(checksum_of(slot ^ 1u << random() % 31, words), right);
  });
}

TEST(search_checksum, of_a_block_that_was_never_written_is_wrong) {
  for (std::uint32_t slot = 0; slot < 100'000; ++slot) {
    ASSERT_NE(checksum_of(slot, std::vector<std::uint32_t>(10)), 0u) << slot;
  }
}

// Visited slots
// ---------------------------------------------------------------------------------------------------------------------

TEST(search_visited_slots, one_lane_adds_a_slot_and_the_others_find_it) {
  for_seeds([](std::uint64_t seed, random_numbers& random) {
    // At most half full. 32 probes then reach a free word, or the whole table.
    constexpr std::uint32_t bits = 8;
    std::vector<std::uint32_t> words(1u << bits, 7), slots(4 * 32);
    auto const spread = static_cast<std::uint32_t>(1 + random() % 100);
    for (std::uint32_t& slot : slots) slot = static_cast<std::uint32_t>(random() % spread) * 0x10000;
    std::vector<char> added(slots.size());
    on_team(32, seed, [&] {
      auto const warp = M::this_warp();
      visited_slots<M> visited(words.data(), bits);
      visited.clear(warp);
      for (std::size_t i = warp.thread_rank(); i < slots.size(); i += 32) added[i] = visited.add(slots[i]);
    });
    std::set<std::uint32_t> const wanted(slots.begin(), slots.end());
    std::multiset<std::uint32_t> got;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (added[i] != 0) got.insert(slots[i]);
    }
    ASSERT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
    std::multiset<std::uint32_t> kept(words.begin(), words.end());
    kept.erase(visited_slots<M>::empty);
    ASSERT_TRUE(std::equal(kept.begin(), kept.end(), wanted.begin(), wanted.end()));
  });
}

TEST(search_visited_slots, a_crowded_table_may_forget_but_never_claims_to_have_seen_what_is_new) {
  for_seeds([](std::uint64_t seed, random_numbers& random) {
    constexpr std::uint32_t bits = 5;
    std::vector<std::uint32_t> words(1u << bits), slots(100);
    for (std::uint32_t i = 0; i < slots.size(); ++i) slots[i] = i * 77;
    std::shuffle(slots.begin(), slots.end(), random);
    on_team(32, seed, [&] {
      auto const warp = M::this_warp();
      visited_slots<M> visited(words.data(), bits);
      visited.clear(warp);
      for (std::size_t i = warp.thread_rank(); i < slots.size(); i += 32) {
        M::check(visited.add(slots[i]), "a slot that is new");
      }
    });
  });
}

}  // namespace
}  // namespace forebay::search
