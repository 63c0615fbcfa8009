// SPDX-License-Identifier: Apache-2.0
// A search over each view under schedules. Drives delay, reorder and fail reads: a search then has found what there is,
// or it says what failed.
//
// FOREBAY_SCHEDULES: each test runs as many schedules (default 60). FOREBAY_SEED: run that one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/direct_view.hpp"
#include "apps/common/external_view.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph_lists.hpp"
#include "cache/cache_world.hpp"
#include "forebay/external_memory.hpp"
#include "forebay/s3_fifo.hpp"
#include "support/schedules.hpp"

namespace forebay::graph {
namespace {

using client = test::cache_client;
constexpr std::uint32_t warp_count = 2;
constexpr std::uint32_t page_elements = 64;  // of 256 bytes

/// What a search may have had to do with.
struct totals {
  std::uint64_t right = 0;
  std::uint64_t failed = 0;
};

test::cache_shape shape_of(std::uint64_t seed) {
  simt::random_source random(emulator::mix(seed));
  test::cache_shape shape = test::load(seed, random);
  shape.lanes = {1, warp_count * 32, 0};
  shape.pages = 24;
  shape.overflow = 8;
  shape.users = 0;
  shape.faults.error_ppm = random.below(2) * 30'000;
  return shape;
}

/// Drives that hold the lists of a graph, and a machine whose lanes search them.
template <class Policy>
class world : test::cache_world<Policy, frame_pools<>, cache_rules> {
  using base = test::cache_world<Policy, frame_pools<>, cache_rules>;

 public:
  using machine = client;
  using base::storage;

  world(std::uint64_t seed, simt::memory_model model, simt::scheduler& schedule)
      : base(shape_of(seed)), model_(model), schedule_(schedule) {}

  std::uint64_t elements_max() const { return std::uint64_t{base::page_count()} * page_elements; }
  bool may_fail() const { return base::shape_.faults.error_ppm != 0; }
  void put(std::vector<std::uint32_t> const& elements) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      storage_layout::piece const p = base::layout_.piece_at(i * 4, 4);
      std::memcpy(base::media_[p.drive].data() + p.byte_on_drive, &elements[i], 4);
    }
  }
  storage_ref<client> past_the_cache() const {
    return {io_queues_ref<client>(base::queues_->state()), base::layout_, 0, base::layout_.size_bytes, false};
  }
  buffer_ref pieces() const { return base::buffer(0, warp_count * 32); }

  memory::resource& memory() const { return memory::host(); }
  std::uint32_t warps() const { return warp_count; }
  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    auto& self = const_cast<world&>(*this);
    std::function<bool(void const*)> in_frame = [this](void const* address) { return base::is_in_frame(address); };
    test::cache_drive::in_frame() = &in_frame;
    std::vector<simt::agent> agents;
    for (std::uint32_t d = 0; d < base::shape_.drives; ++d) {
      for (std::uint32_t unit = 0; unit < base::shape_.units; ++unit) {
        agents.push_back({"drive " + std::to_string(d) + " unit " + std::to_string(unit),
                          [&self, d, unit] { self.serve(d, unit); }, true, 1 + d});
      }
    }
    auto const outcome = simt::run(
        {.memory = model_, .max_steps = 20'000'000, .record = false}, schedule_, shape, [&] { kernel(); },
        std::move(agents));
    test::cache_drive::in_frame() = nullptr;
    EXPECT_TRUE(outcome.ok) << outcome.what;
  }
  void synchronize() const {}

 private:
  simt::memory_model model_;
  simt::scheduler& schedule_;
};

/// Of an undirected graph, with a vertex of many neighbours, vertices alone and a part that is apart.
testing::graph_lists some_lists(std::uint64_t seed, std::uint64_t entries_max) {
  std::mt19937_64 random(seed);
  testing::graph_case made{"some", 120, {}};
  auto const below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (std::uint32_t i = 0; i < 90; ++i) made.arcs.emplace_back(40, below(100));
  for (std::uint32_t i = 0; i < entries_max / 2 - 100; ++i) made.arcs.emplace_back(below(80), below(80));
  made.arcs.emplace_back(110, 111);
  return {made.vertices, testing::both_ways(made.arcs), page_elements};
}

std::vector<std::uint32_t> distances_of(testing::graph_lists const& g, std::uint32_t source) {
  std::vector<std::uint32_t> distances(g.vertices(), bfs_unreached);
  distances[source] = 0;
  std::deque<std::uint32_t> queue{source};
  for (; !queue.empty(); queue.pop_front()) {
    for (std::uint64_t i = g.row_begin[queue.front()]; i < g.row_begin[queue.front() + 1]; ++i) {
      std::uint32_t const n = g.neighbours.elements[i];
      if (distances[n] != bfs_unreached) continue;
      distances[n] = distances[queue.front()] + 1;
      queue.push_back(n);
    }
  }
  return distances;
}

/// Searches three times, so that a search finds what one that failed has left.
template <class Executor, class View>
void search_all(Executor const& run, testing::graph_lists const& g, View const& view, std::uint64_t seed, bool may_fail,
                totals& sum) {
  simt::random_source random(emulator::mix(seed ^ 0x510e527fade682d1u));
  bfs_paging paging;
  paging.page_elements = page_elements;
  paging.at_a_time = 1 + random.below(6);
  paging.warps_max = warp_count;
  paging.ordered_min = random.below(2) == 0 ? 1 : ~0u;
  bfs<Executor, View, 0, true> search(run, g.shape(), view, paging);
  bfs_how how;
  how.direction = static_cast<bfs_direction>(random.below(3));
  how.share_pages = 3;
  how.window = 1 + random.below(3);
  for (std::uint32_t const source : {40u, 3u, 111u}) {
    auto const levels = search(source, how);
    ASSERT_EQ(search.bad_neighbour(), 0u);
    if (search.failures().failures != 0) {
      ASSERT_TRUE(may_fail);
      constexpr std::uint16_t injected = nvme::status_field(nvme::media_status::unrecovered_read_error);
      ASSERT_EQ(search.failures().status_bits, status::from_nvme(injected).bits());
      ++sum.failed;
      continue;
    }
    auto const wanted = distances_of(g, source);
    auto const distances = search.distances_to_host(), predecessors = search.predecessors_to_host();
    ASSERT_EQ(distances, wanted);
    for (std::uint32_t level = 0; level < levels.size(); ++level) {
      ASSERT_EQ(levels[level], static_cast<std::uint64_t>(std::count(wanted.begin(), wanted.end(), level)));
    }
    for (std::uint32_t v = 0; v < g.vertices(); ++v) {
      std::uint32_t const before = predecessors[v];
      if (v == source || distances[v] == bfs_unreached) {
        ASSERT_EQ(before, bfs_unreached) << v;
        continue;
      }
      ASSERT_LT(before, g.vertices()) << v;
      ASSERT_EQ(distances[before] + 1, distances[v]);
      auto const list = g.neighbours.elements.begin();
      auto const end = list + static_cast<std::ptrdiff_t>(g.row_begin[before + 1]);
      ASSERT_NE(std::find(list + static_cast<std::ptrdiff_t>(g.row_begin[before]), end, v), end);
    }
    ++sum.right;
  }
}

/// What many schedules must have come across. One alone need not.
void expect_both(totals const& sum) {
  EXPECT_GT(sum.right + sum.failed, 0u);
  if (sum.right + sum.failed < 100) return;
  EXPECT_GT(sum.right, 0u);
  EXPECT_GT(sum.failed, 0u);
}

template <class Policy, class Use>
void on_drives(Use&& use) {
  totals sum;
  emulator::testing::explore([&](std::uint64_t seed, simt::memory_model model, simt::scheduler& schedule) {
    world<Policy> drives(seed, model, schedule);
    testing::graph_lists const g = some_lists(seed, drives.elements_max());
    drives.put(g.neighbours.elements);
    use(drives, g, seed, sum);
  });
  expect_both(sum);
}

TEST(graph_schedule, a_search_through_the_cache_is_right_or_says_what_failed) {
  on_drives<replacement::clock>([](auto& drives, auto const& g, std::uint64_t seed, totals& sum) {
    auto const view = drives.storage().template array<std::uint32_t const>(0, g.neighbours.elements.size());
    search_all(drives, g, view, seed, drives.may_fail(), sum);
  });
}

TEST(graph_schedule, a_search_past_the_cache_is_right_or_says_what_failed) {
  on_drives<replacement::clock>([](auto& drives, auto const& g, std::uint64_t seed, totals& sum) {
    using view_type = apps::direct_view<std::uint32_t, storage_ref<client>, buffer_ref>;
    view_type const view(drives.past_the_cache(), drives.pieces(), g.neighbours.elements.size(), 64, page_elements * 4,
                         1'000'000'000'000);
    search_all(drives, g, view, seed, drives.may_fail(), sum);
  });
}

/// Nothing fails in memory.
template <class Use>
void in_memory(Use&& use) {
  emulator::testing::explore([&](std::uint64_t seed, simt::memory_model model, simt::scheduler& schedule) {
    testing::scheduled_executor const run(model, schedule);
    use(run, some_lists(seed, 1500), seed);
  });
}

TEST(graph_schedule, a_search_of_memory_is_right) {
  in_memory([](auto const& run, auto const& g, std::uint64_t seed) {
    apps::memory_view<std::uint32_t> const view(g.neighbours.elements.data(), g.neighbours.elements.size());
    totals sum;
    search_all(run, g, view, seed, false, sum);
  });
}

TEST(graph_schedule, a_search_of_external_memory_is_right) {
  in_memory([](auto const& run, auto const& g, std::uint64_t seed) {
    memory::external_memory_options options;
    options.latency_us = 2;
    simt::random_source random(emulator::mix(seed));
    options.devices = 1 + random.below(3);
    options.outstanding = random.below(2) * 5;
    memory::external_memory memory(options, memory::host());
    using ref = memory::external_memory_ref<simt::fiber>;
    apps::external_view<std::uint32_t, ref> const view(g.neighbours.elements.data(), g.neighbours.elements.size(),
                                                       memory.ref<simt::fiber>(), 0,
                                                       memory.options().requests_of_page(page_elements * 4));
    totals sum;
    search_all(run, g, view, seed, false, sum);
  });
}

}  // namespace
}  // namespace forebay::graph
