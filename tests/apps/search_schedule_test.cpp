// SPDX-License-Identifier: Apache-2.0
// Both searches of vectors under schedules. Drives delay, reorder, fail and withhold reads, and records are damaged: a
// query then has found what a simple search finds, or it says which read failed, and how.
//
// FOREBAY_SCHEDULES: each test runs a quarter as many schedules (default 60). FOREBAY_SEED: run that one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/search/exact_search.hpp"
#include "apps/search/pq_search.hpp"
#include "apps/search/record_source.hpp"
#include "cache/cache_world.hpp"
#include "forebay/s3_fifo.hpp"
#include "support/schedules.hpp"

namespace forebay::search {
namespace {

using client = test::cache_client;
using random_numbers = std::independent_bits_engine<std::mt19937_64, 32, std::uint32_t>;
constexpr std::uint32_t warp_count = 2;
constexpr std::uint32_t record_bytes = 256, record_words = record_bytes / 4;
constexpr std::uint32_t vector_words = 8, degree_max = 12;
constexpr std::uint32_t chunks = 4, queries = 6;
constexpr std::uint64_t timeout_ns = 50'000'000;  ///< of a read: far more than the drives delay one

/// What became of a read that a lane began.
struct read_made {
  std::uint64_t slot;
  std::byte const* piece;
  bool ended = false;
  bool given_up = false;
  status outcome = {};
};

/// A storage that keeps what is read from it, and refuses to read into a piece that a read still has.
struct recorded_storage {
  using machine = client;
  using inner_type = storage_ref<client>;

  class token_type {
   public:
    token_type() = default;
    token_type(inner_type::token_type const& inner, std::vector<read_made>* reads, std::size_t number)
        : inner_(inner), reads_(reads), number_(number) {}
    bool ready() const { return inner_.ready(); }
    status wait(std::uint64_t deadline_ns) {
      status const outcome = inner_.wait(deadline_ns);
      it().outcome = outcome;
      it().ended = outcome != status(fault::timed_out);
      client::check(it().ended || client::clock_ns() >= deadline_ns, "a read is given up at its deadline");
      return outcome;
    }
    void detach() {
      it().given_up = true;
      inner_.detach();
    }

   private:
    read_made& it() const { return (*reads_)[number_]; }
    inner_type::token_type inner_;
    std::vector<read_made>* reads_ = nullptr;
    std::size_t number_ = 0;
  };

  inner_type inner;
  std::vector<read_made>* reads = nullptr;
  std::uint64_t first_byte = 0;

  token_type read_async(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    for (read_made const& read : *reads) {
      client::check(read.piece != to.data() || read.ended, "a piece of buffer that a read still has is used again");
    }
    std::size_t const number = reads->size();
    reads->push_back({offset_bytes / bytes, to.data()});
    return {inner.read_async(to, first_byte + offset_bytes, bytes), reads, number};
  }
};

// The index
// ---------------------------------------------------------------------------------------------------------------------

/// A small graph whose distances are all whole numbers, so that each of them is exact in whatever order it is added up.
struct small_index {
  std::uint32_t slots;
  metric how;
  std::vector<std::vector<std::uint32_t>> neighbours;
  std::vector<std::uint32_t> vectors, query_words;  ///< `vector_words` each, of bytes
  std::vector<std::uint8_t> codes;
  std::vector<float> codebook, norms, components, offsets_and_scales;
  std::vector<std::uint32_t> navigation_slots, navigation_neighbours, filter, entries;
  std::uint32_t navigation_degree = 3;
  std::set<std::uint32_t> damaged, damaged_vectors;  ///< slots

  small_index(std::uint64_t seed, std::uint32_t count) : slots(count), how(static_cast<metric>(seed % 3)) {
    random_numbers random(static_cast<std::uint32_t>(seed) ^ 0x1f83d9abu);
    for (std::uint32_t i = 0; i < slots * vector_words; ++i) vectors.push_back(random() | 0x01010101u);
    for (std::uint32_t i = 0; i < queries * vector_words; ++i) query_words.push_back(random() | 0x01010101u);
    for (std::uint32_t s = 0; s < slots; ++s) {
      std::vector<std::uint32_t>& list = neighbours.emplace_back();
      for (std::uint32_t n = random() % (degree_max + 1); n != 0; --n) list.push_back(random() % slots);
      if (list.size() > 2 && random() % 8 == 0) list[0] = list[1];  // named twice
    }
    for (std::uint32_t i = 0; i < slots * chunks; ++i) codes.push_back(static_cast<std::uint8_t>(random()));
    for (std::uint32_t i = 0; i < chunks * 256; ++i) codebook.push_back(static_cast<float>(random() % 12));
    for (std::uint32_t q = 0; q < queries; ++q) {
      double norm = 0;
      for (std::uint32_t i = 0; i < vector_words * 4; ++i) norm += std::pow(byte_of(query_words, q, i), 2);
      norms.push_back(static_cast<float>(std::sqrt(norm)));
      for (std::uint32_t c = 0; c < chunks; ++c) components.push_back(static_cast<float>(random() % 12));
      // Products are no less than -121.
      offsets_and_scales.insert(offsets_and_scales.end(), {is_product() ? 121.0f : 0.0f, 2.0f});
    }
    for (std::uint32_t s = 0; s < slots; s += 5) navigation_slots.push_back(s);
    std::shuffle(navigation_slots.begin(), navigation_slots.end(), random);
    for (std::uint32_t i = 0; i < navigation_slots.size() * navigation_degree; ++i) {
      auto const of = static_cast<std::uint32_t>(navigation_slots.size());
      navigation_neighbours.push_back(random() % 4 == 0 ? navigation_graph::none : random() % of);
    }
    for (std::uint32_t i = 0; i < (slots + 31) / 32; ++i) filter.push_back(random());
    for (std::uint32_t i = 0; i < 40; ++i) entries.push_back(i * 7 % slots);
  }

  bool is_product() const { return how == metric::inner_product; }
  static std::uint32_t byte_of(std::vector<std::uint32_t> const& of, std::uint32_t row, std::uint32_t i) {
    return of[row * vector_words + i / 4] >> 8 * (i % 4) & 0xff;
  }
  bool allows(std::uint32_t slot, bool filtered) const {
    return !filtered || (filter[slot / 32] >> slot % 32 & 1) != 0;
  }
  float distance(std::uint32_t query, std::uint32_t slot) const {
    std::int64_t squares = 0, products = 0, norm = 0;
    for (std::uint32_t i = 0; i < vector_words * 4; ++i) {
      std::int64_t const a = byte_of(query_words, query, i), b = byte_of(vectors, slot, i);
      squares += (a - b) * (a - b);
      products += a * b;
      norm += b * b;
    }
    if (how == metric::l2) return static_cast<float>(squares);
    if (how == metric::inner_product) return -static_cast<float>(products);
    return 1 - static_cast<float>(products) / (norms[query] * std::sqrt(static_cast<float>(norm)));
  }
  double coded_distance(std::uint32_t query, std::uint32_t slot) const {
    double sum = 0;
    for (std::uint32_t c = 0; c < chunks; ++c) {
      double const x = components[query * chunks + c], y = codebook[c * 256 + codes[slot * chunks + c]];
      sum += 2 * ((is_product() ? -x * y : (x - y) * (x - y)) + offsets_and_scales[2 * query]);
    }
    return sum;
  }

  static std::uint32_t sum_of(std::uint32_t const* words, std::uint32_t count) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += checksum_of_word(i, words[i]);
    return sum;
  }
  std::vector<std::uint32_t> record(std::uint32_t slot) const {
    std::vector<std::uint32_t> words(record_words);
    std::copy_n(vectors.begin() + slot * vector_words, vector_words, words.begin());
    words[vector_words] = static_cast<std::uint32_t>(neighbours[slot].size());
    std::copy(neighbours[slot].begin(), neighbours[slot].end(), words.begin() + vector_words + 1);
    words.back() = checksum_of_slot(slot) + sum_of(words.data(), record_words - 1);
    return words;
  }
  std::vector<std::uint32_t> padded_vector(std::uint32_t slot) const {
    std::vector<std::uint32_t> words(record_words);
    std::copy_n(vectors.begin() + slot * vector_words, vector_words, words.begin());
    return words;
  }
  std::uint32_t short_checksum_of(std::uint32_t slot) const {
    return short_checksum(slot, sum_of(padded_vector(slot).data(), record_words));
  }
  std::vector<std::uint32_t> list(std::uint32_t slot) const {
    std::vector<std::uint32_t> words(record_words);
    words[0] = static_cast<std::uint32_t>(neighbours[slot].size());
    for (std::uint32_t i = 0; i < neighbours[slot].size(); ++i) {
      words[1 + i] = neighbours[slot][i];
      words[1 + degree_max + i / 2] |= short_checksum_of(neighbours[slot][i]) << 16 * (i % 2);
    }
    words.back() = checksum_of_slot(slot) + sum_of(words.data(), record_words - 1);
    return words;
  }

  /// Damages a record or a list whose degree is word `degree_at` and whose neighbours follow it.
  void damage(std::vector<std::uint32_t>& words, std::uint32_t slot, std::uint32_t degree_at, random_numbers& random) {
    damaged.insert(slot);
    switch (random() % 3) {
      case 0:
        words[random() % record_words] ^= 1u << random() % 32;
        return;
      case 1:
        words[degree_at] = degree_max + 1 + random() % 100;
        break;
      default:
        words[degree_at] = std::max(words[degree_at], 1u);
        words[degree_at + 1 + random() % words[degree_at]] = slots + random() % 1000;
    }
    words.back() = checksum_of_slot(slot) + sum_of(words.data(), record_words - 1);
  }
};

// The simple searches
// ---------------------------------------------------------------------------------------------------------------------

/// The best candidates that were ever offered, each once, and which of them were read.
class candidates {
 public:
  explicit candidates(std::size_t size) : size_(size) {}
  void offer(double distance, std::uint32_t name) {
    if (seen_.insert(name).second) best_.insert({distance, name});
    while (best_.size() > size_) best_.erase(std::prev(best_.end()));
  }
  std::vector<std::uint32_t> next(std::size_t wanted) {
    std::vector<std::uint32_t> names;
    for (auto const& [distance, name] : best_) {
      if (names.size() < wanted && read_.insert(name).second) names.push_back(name);
    }
    return names;
  }
  std::set<std::pair<double, std::uint32_t>> const& best() const { return best_; }

 private:
  std::size_t size_;
  std::set<std::pair<double, std::uint32_t>> best_;
  std::set<std::uint32_t> seen_, read_;
};

struct wanted_result {
  std::vector<std::pair<double, std::uint32_t>> found;
  std::vector<std::uint32_t> reads;  ///< slots, in order
};

/// It reads `at_a_time` records, and looks at all of them before it reads others.
wanted_result pq_reference(small_index const& index, std::uint32_t query, search_effort const& effort, std::uint32_t k,
                           bool filtered, std::uint32_t at_a_time) {
  candidates navigation(effort.navigation_size), list(effort.list_size), results(k);
  auto const meet = [&](std::uint32_t vertex) {
    if (vertex < index.navigation_slots.size()) {
      navigation.offer(index.coded_distance(query, index.navigation_slots[vertex]), vertex);
    }
  };
  for (std::uint32_t vertex = 0; vertex < 32; ++vertex) meet(vertex);
  for (auto next = navigation.next(1); !next.empty(); next = navigation.next(1)) {
    for (std::uint32_t i = 0; i < index.navigation_degree; ++i) {
      meet(index.navigation_neighbours[next[0] * index.navigation_degree + i]);
    }
  }
  for (auto const& [distance, vertex] : navigation.best()) list.offer(distance, index.navigation_slots[vertex]);
  wanted_result wanted;
  for (auto next = list.next(at_a_time); !next.empty(); next = list.next(at_a_time)) {
    for (std::uint32_t const slot : next) {
      wanted.reads.push_back(slot);
      if (index.allows(slot, filtered)) results.offer(index.distance(query, slot), slot);
      for (std::uint32_t const n : index.neighbours[slot]) list.offer(index.coded_distance(query, n), n);
    }
  }
  wanted.found.assign(results.best().begin(), results.best().end());
  return wanted;
}

/// It reads the same for each `width`, since it waits for all that it reads at a time.
wanted_result exact_reference(small_index const& index, std::uint32_t query, exact_effort const& effort,
                              std::uint32_t k, bool filtered) {
  candidates list(effort.list_size), results(k);
  wanted_result wanted;
  auto const meet = [&](std::uint32_t slot) {
    list.offer(index.distance(query, slot), slot);
    if (index.allows(slot, filtered)) results.offer(index.distance(query, slot), slot);
  };
  for (std::uint32_t const slot : index.entries) meet(slot);
  for (std::uint32_t i = 0; effort.iterations == 0 || i < effort.iterations; ++i) {
    auto const next = list.next(effort.width);
    if (next.empty()) break;
    for (std::uint32_t const slot : next) {
      wanted.reads.push_back(slot);
      for (std::uint32_t const n : index.neighbours[slot]) meet(n);
    }
  }
  wanted.found.assign(results.best().begin(), results.best().end());
  return wanted;
}

// The machine
// ---------------------------------------------------------------------------------------------------------------------

enum class trouble : std::uint8_t { none, errors, withheld, damage };

test::cache_shape shape_of(std::uint64_t seed, std::uint32_t pages, trouble with) {
  simt::random_source random(emulator::mix(seed));
  test::cache_shape shape = test::load(seed, random);
  shape.lanes = {1, warp_count * 32, 0};
  shape.pages = pages;
  shape.users = 0;
  if (with == trouble::errors) shape.faults.error_ppm = 15'000;
  if (with == trouble::withheld) {
    shape.faults.withhold_ppm = 15'000;
    shape.entries = 64;  // what is withheld keeps its place in the queue
    shape.timeout_ns = timeout_ns;
  }
  return shape;
}

class world : test::cache_world<replacement::clock, frame_pools<>, cache_rules> {
  using base = test::cache_world<replacement::clock, frame_pools<>, cache_rules>;

 public:
  world(std::uint64_t seed, std::uint32_t pages, trouble with, simt::memory_model model, simt::scheduler& schedule)
      : base(shape_of(seed, pages, with)), model_(model), schedule_(schedule) {}

  void put(std::uint64_t page, std::vector<std::uint32_t> const& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      storage_layout::piece const p = layout_.piece_at(page * record_bytes + i * 4, 4);
      std::memcpy(media_[p.drive].data() + p.byte_on_drive, &words[i], 4);
    }
  }
  drive_records<recorded_storage> source(std::uint64_t first_page, std::uint32_t first_piece, std::uint32_t pieces) {
    storage_ref<client> const all(io_queues_ref<client>(queues_->state()), layout_, 0, layout_.size_bytes, false);
    return {{all, &reads, first_page * record_bytes}, buffer(first_piece, pieces), record_bytes};
  }
  template <class Kernel>
  void run(Kernel const& kernel, std::uint32_t shared_bytes) {
    std::vector<simt::agent> agents;
    for (std::uint32_t d = 0; d < shape_.drives; ++d) {
      for (std::uint32_t unit = 0; unit < shape_.units; ++unit) {
        agents.push_back({"drive " + std::to_string(d) + " unit " + std::to_string(unit),
                          [this, d, unit] { serve(d, unit); }, true, 1 + d});
      }
    }
    auto const outcome = simt::run(
        {.memory = model_, .max_steps = 100'000'000, .record = false}, schedule_, {warp_count, 32, shared_bytes},
        [&] { kernel(); }, std::move(agents));
    ASSERT_TRUE(outcome.ok) << outcome.what;
  }

  std::vector<read_made> reads;

 private:
  simt::memory_model model_;
  simt::scheduler& schedule_;
};

/// What the queries of a launch found.
struct findings {
  explicit findings(std::uint32_t of) : k(of) {}
  search_batch batch() { return {queries, k, &next, slots.data(), distances.data(), outcomes.data()}; }

  std::uint32_t k;
  std::uint32_t next = 0;
  std::vector<std::uint32_t> slots = std::vector<std::uint32_t>(queries * k, 12345);
  std::vector<float> distances = std::vector<float>(queries * k);
  std::vector<query_outcome> outcomes = std::vector<query_outcome>(queries);
};

struct totals {
  std::uint64_t right = 0, failed = 0, never_begun = 0;
};

status const injected = status::from_nvme(nvme::status_field(nvme::media_status::unrecovered_read_error));

/// Checks what must hold of any search. `exact`: the results are those of `wanted`, else right distances in order.
void check(world const& drives, small_index const& index, findings const& got, std::vector<wanted_result> const& wanted,
           bool exact, bool filtered, trouble with, totals& sum) {
  std::multiset<std::uint64_t> failed_reads;
  for (read_made const& read : drives.reads) {
    ASSERT_TRUE(read.ended || read.given_up) << "a read that nothing waited for";
    ASSERT_FALSE(read.ended && read.given_up);
    if (read.given_up) {
      ASSERT_EQ(with, trouble::withheld);
      failed_reads.insert(read.slot << 32 | status(fault::timed_out).bits());
    } else if (!read.outcome.ok() && read.outcome != status(fault::busy) && read.outcome != status(fault::no_record)) {
      ASSERT_EQ(read.outcome.bits(), injected.bits());
      ASSERT_EQ(with, trouble::errors);
      failed_reads.insert(read.slot << 32 | injected.bits());
    }
  }
  for (std::uint32_t q = 0; q < queries; ++q) {
    SCOPED_TRACE("query " + std::to_string(q));
    query_outcome const& outcome = got.outcomes[q];
    std::uint32_t const* const slots = got.slots.data() + q * got.k;
    float const* const distances = got.distances.data() + q * got.k;
    if (slots[0] == 12345) {
      // No warp was left that could begin it.
      ASSERT_EQ(with, trouble::withheld);
      ASSERT_EQ(outcome.outcome.bits(), status(fault::timed_out).bits());
      ++sum.never_begun;
      continue;
    }
    if (!outcome.outcome.ok()) {
      ++sum.failed;
      for (std::uint32_t i = 0; i < got.k; ++i) {
        ASSERT_EQ(slots[i], search_batch::no_slot);
        ASSERT_EQ(distances[i], search_batch::no_distance);
      }
      if (outcome.outcome == corrupt_record()) {
        ASSERT_TRUE(index.damaged.contains(outcome.failed_slot) || index.damaged_vectors.contains(outcome.failed_slot));
      } else {
        auto const at = failed_reads.find(std::uint64_t{outcome.failed_slot} << 32 | outcome.outcome.bits());
        ASSERT_NE(at, failed_reads.end()) << "no read of " << outcome.failed_slot << " failed like that";
        failed_reads.erase(at);
      }
      continue;
    }
    ++sum.right;
    std::uint32_t found = 0;
    for (; found < got.k && slots[found] != search_batch::no_slot; ++found) {
      ASSERT_LT(slots[found], index.slots);
      ASSERT_TRUE(index.allows(slots[found], filtered));
      ASSERT_FALSE(index.damaged_vectors.contains(slots[found]));
      ASSERT_EQ(distances[found], index.distance(q, slots[found]));
      if (found != 0) {
        ASSERT_LT(std::pair(distances[found - 1], slots[found - 1]), std::pair(distances[found], slots[found]));
      }
    }
    for (std::uint32_t i = found; i < got.k; ++i) ASSERT_EQ(distances[i], search_batch::no_distance);
    if (!exact) continue;
    ASSERT_EQ(found, wanted[q].found.size());
    for (std::uint32_t i = 0; i < found; ++i) ASSERT_EQ(slots[i], wanted[q].found[i].second);
    for (std::uint32_t const slot : wanted[q].reads) ASSERT_FALSE(index.damaged.contains(slot));
  }
}

/// What many schedules must have come across. One alone need not.
void expect_all(totals const& sum, trouble with) {
  std::uint64_t const all = sum.right + sum.failed + sum.never_begun;
  EXPECT_TRUE(with != trouble::none || sum.right == all);
  if (all < 10 * queries) return;
  EXPECT_GT(sum.right, 0u);
  EXPECT_TRUE(with == trouble::none || sum.failed > 0);
}

// The search with codes
// ---------------------------------------------------------------------------------------------------------------------

/// When a query begins reads: one when the one before has ended, several when all before have, or whenever it may.
enum class reading : std::uint8_t { one_by_one, in_rounds, freely };

void search_by_codes(trouble with, reading order) {
  bool const one_at_a_time = order == reading::one_by_one;
  totals sum;
  emulator::testing::explore(
      [&](std::uint64_t seed, simt::memory_model model, simt::scheduler& schedule) {
        random_numbers random(static_cast<std::uint32_t>(seed));
        small_index index(seed, 60 + random() % 60);
        world drives(seed, index.slots, with, model, schedule);
        for (std::uint32_t slot = 0; slot < index.slots; ++slot) {
          auto words = index.record(slot);
          if (with == trouble::damage && random() % 40 == 0) index.damage(words, slot, vector_words, random);
          drives.put(slot, words);
        }
        constexpr std::uint32_t widths[] = {0, 2, 5, 32};
        bool const filtered = random() % 2 == 0;
        search_effort effort;
        effort.width = one_at_a_time ? 1 : widths[random() % std::size(widths)];
        if (order == reading::in_rounds && effort.width == 0) effort.width = 3;
        effort.list_size = 1 + random() % 40;
        effort.navigation_size = 1 + random() % 40;
        effort.timeout_ns = timeout_ns;
        std::uint32_t const pieces = effort.width == 0 ? 32 : effort.width;
        effort.refill = order == reading::in_rounds ? pieces : 1 + random() % pieces;
        findings got(1 + random() % effort.list_size);
        auto const memory =
            warp_memory_layout::of(chunks, effort.list_size, effort.navigation_size, got.k, vector_words);
        std::uint32_t lost[warp_count] = {};
        pq_search<drive_records<recorded_storage>> const kernel{
            .source = drives.source(0, 0, warp_count * pieces),
            .record = {record_words, vector_words, degree_max},
            .codes = {index.codes.data(), index.codebook.data(), chunks, 1, index.is_product()},
            .navigation = {index.navigation_slots.data(), index.navigation_neighbours.data(),
                           static_cast<std::uint32_t>(index.navigation_slots.size()), index.navigation_degree},
            .filter = {filtered ? index.filter.data() : nullptr},
            .batch = got.batch(),
            .effort = effort,
            .warp_memory = memory,
            .elements = element::u8,
            .how = index.how,
            .slots = index.slots,
            .pieces = pieces,
            .lost = lost,
            .query_words = index.query_words.data(),
            .query_norms = index.norms.data(),
            .query_components = index.components.data(),
            .query_offsets_and_scales = index.offsets_and_scales.data()};
        std::vector<wanted_result> wanted;
        for (std::uint32_t q = 0; q < queries; ++q)
          wanted.push_back(pq_reference(index, q, effort, got.k, filtered, order == reading::in_rounds ? pieces : 1));
        drives.run(kernel, memory.bytes);
        check(drives, index, got, wanted, order != reading::freely, filtered, with, sum);
        if (::testing::Test::HasFatalFailure() || order == reading::freely) return;
        for (std::uint32_t q = 0; q < queries; ++q) {
          if (got.slots[q * got.k] == 12345) continue;
          // What it read until it ended, or failed.
          query_outcome const& outcome = got.outcomes[q];
          ASSERT_LE(outcome.reads, wanted[q].reads.size());
          if (outcome.outcome.ok()) {
            ASSERT_EQ(outcome.reads, wanted[q].reads.size());
          } else {
            ASSERT_EQ(wanted[q].reads[outcome.reads - 1], outcome.failed_slot);
          }
        }
        // The pieces that were lost stay lost: a later launch of the same search begins nothing in them.
        if (with != trouble::withheld) return;
        findings later(got.k);
        auto again = kernel;
        again.batch = later.batch();
        drives.run(again, memory.bytes);
        check(drives, index, later, wanted, true, filtered, with, sum);
      },
      4);
  expect_all(sum, with);
}

TEST(search_schedule, by_codes_one_read_at_a_time_finds_what_a_simple_search_finds) {
  search_by_codes(trouble::none, reading::one_by_one);
}
TEST(search_schedule, by_codes_in_rounds_finds_what_a_simple_search_in_rounds_finds) {
  search_by_codes(trouble::none, reading::in_rounds);
}
TEST(search_schedule, by_codes_with_many_reads_finds_right_distances_in_order) {
  search_by_codes(trouble::none, reading::freely);
}
TEST(search_schedule, by_codes_a_read_that_fails_fails_its_query_alone) {
  search_by_codes(trouble::errors, reading::one_by_one);
  search_by_codes(trouble::errors, reading::freely);
}
TEST(search_schedule, by_codes_a_read_that_is_withheld_ends_at_its_deadline_and_keeps_its_piece) {
  search_by_codes(trouble::withheld, reading::one_by_one);
  search_by_codes(trouble::withheld, reading::freely);
}
TEST(search_schedule, by_codes_a_record_that_is_damaged_is_refused) {
  search_by_codes(trouble::damage, reading::one_by_one);
  search_by_codes(trouble::damage, reading::freely);
}

// The search by exact distances
// ---------------------------------------------------------------------------------------------------------------------

void search_exactly(trouble with) {
  totals sum;
  emulator::testing::explore(
      [&](std::uint64_t seed, simt::memory_model model, simt::scheduler& schedule) {
        random_numbers random(static_cast<std::uint32_t>(seed));
        small_index index(seed, 60 + random() % 60);
        world drives(seed, 2 * index.slots, with, model, schedule);
        for (std::uint32_t slot = 0; slot < index.slots; ++slot) {
          auto words = index.list(slot);
          if (with == trouble::damage && random() % 60 == 0) index.damage(words, slot, 0, random);
          drives.put(slot, words);
          words = index.padded_vector(slot);
          if (with == trouble::damage && random() % 300 == 0) {
            words[random() % record_words] ^= 1u << random() % 32;
            index.damaged_vectors.insert(slot);
          }
          drives.put(index.slots + slot, words);
        }
        bool const filtered = random() % 2 == 0;
        exact_effort effort;
        effort.width = 1 + random() % 4;
        effort.list_size = 1 + random() % 24;
        effort.iterations = random() % 2 == 0 ? 0 : 1 + random() % 6;
        effort.timeout_ns = timeout_ns;
        std::uint32_t const requests = (effort.width * degree_max + 31) / 32 * 32;
        findings got(1 + random() % effort.list_size);
        auto const memory = exact_memory_layout::of(effort.list_size, got.k, requests, record_words);
        // The words of a query have zeros up to those of a vector. A small table forgets what was read.
        std::vector<std::uint32_t> query_words, checksums;
        for (std::uint32_t q = 0; q < queries; ++q) {
          query_words.insert(query_words.end(), index.query_words.begin() + q * vector_words,
                             index.query_words.begin() + (q + 1) * vector_words);
          query_words.resize((q + 1) * record_words);
        }
        for (std::uint32_t const slot : index.entries) checksums.push_back(index.short_checksum_of(slot));
        std::uint32_t const bits = random() % 2 == 0 ? 9 : 5;
        std::vector<std::uint32_t> visited(warp_count << bits);
        std::uint32_t lost[warp_count] = {};
        using source = drive_records<recorded_storage>;
        exact_search<source, source> const kernel{
            .lists = drives.source(0, 0, warp_count * effort.width),
            .vectors = drives.source(index.slots, warp_count * effort.width, warp_count * requests),
            .layout = {record_words, record_words, degree_max},
            .entries = {index.entries.data(), checksums.data(), static_cast<std::uint32_t>(index.entries.size())},
            .filter = {filtered ? index.filter.data() : nullptr},
            .batch = got.batch(),
            .effort = effort,
            .warp_memory = memory,
            .elements = element::u8,
            .how = index.how,
            .slots = index.slots,
            .requests = requests,
            .lost = lost,
            .visited = visited.data(),
            .visited_bits = bits,
            .query_words = query_words.data(),
            .query_norms = index.norms.data()};
        std::vector<wanted_result> wanted;
        for (std::uint32_t q = 0; q < queries; ++q)
          wanted.push_back(exact_reference(index, q, effort, got.k, filtered));
        drives.run(kernel, memory.bytes);
        check(drives, index, got, wanted, true, filtered, with, sum);
        if (::testing::Test::HasFatalFailure() || with != trouble::withheld) return;
        findings later(got.k);
        auto again = kernel;
        again.batch = later.batch();
        drives.run(again, memory.bytes);
        check(drives, index, later, wanted, true, filtered, with, sum);
      },
      4);
  expect_all(sum, with);
}

TEST(search_schedule, exact_finds_what_a_simple_search_finds) {
  search_exactly(trouble::none);
}
TEST(search_schedule, exact_a_read_that_fails_fails_its_query_alone) {
  search_exactly(trouble::errors);
}
TEST(search_schedule, exact_a_read_that_is_withheld_ends_at_its_deadline_and_keeps_its_piece) {
  search_exactly(trouble::withheld);
}
TEST(search_schedule, exact_a_list_or_a_vector_that_is_damaged_is_refused) {
  search_exactly(trouble::damage);
}

}  // namespace
}  // namespace forebay::search
