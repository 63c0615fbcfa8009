// SPDX-License-Identifier: Apache-2.0
//! \file
//! Direction-optimising breadth-first search of an undirected graph (Beamer, Asanovic and Patterson,
//! "Direction-Optimizing Breadth-First Search", SC 2012), level by level, over neighbours behind a view; everything
//! else in plain memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/failure_latch.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "library/csr_rows.hpp"

namespace forebay::bench {

inline constexpr std::uint32_t bfs_unreached = ~0u;

/// Neighbours [first, first + count), in one word: first < 2^48, count < 2^16.
class bfs_run_of_neighbours {
 public:
  bfs_run_of_neighbours() = default;
  FOREBAY_DEVICE bfs_run_of_neighbours(std::uint64_t first, std::uint32_t count) : bits_(first << 16 | count) {}
  FOREBAY_DEVICE std::uint64_t first() const { return bits_ >> 16; }
  FOREBAY_DEVICE std::uint32_t count() const { return static_cast<std::uint32_t>(bits_ & 0xffff); }

 private:
  std::uint64_t bits_;
};

/// Written by a level, read by the host before the next.
struct bfs_level_result {
  std::uint64_t runs = 0;      ///< of the next frontier, where it was listed
  std::uint64_t vertices = 0;  ///< of the next frontier, those without other neighbours included
  std::uint64_t entries = 0;   ///< neighbours of the next frontier
  apps::failure_latch failure;
};

/// What a lane found.
struct bfs_tally {
  std::uint64_t entries = 0;
  std::uint32_t vertices = 0;
};

/// What the kernels of a search share.
template <class M>
struct bfs_state {
  std::uint64_t const* row_begin;
  std::uint32_t* distances;
  std::uint32_t page_elements;  ///< a power of two
  bfs_run_of_neighbours* next;
  bfs_level_result* result;
  bfs_level_result* result_after;  ///< of the kernel after this one, which must find zeros there

  FOREBAY_DEVICE void begin_level() const {
    if (M::thread_rank() == 0) *result_after = {};
  }

  FOREBAY_DEVICE std::uint32_t distance(std::uint32_t vertex) const {
    // relaxed: others reach vertices meanwhile. The thread that moves a distance from `bfs_unreached` owns the vertex.
    return simt::atomic<M>(distances[vertex]).load(simt::order::relaxed);
  }
  /// Whether it is the caller that reaches the vertex first.
  FOREBAY_DEVICE bool reach(std::uint32_t vertex, std::uint32_t level) const {
    std::uint32_t expected = bfs_unreached;
    return simt::atomic<M>(distances[vertex]).compare_exchange(expected, level, simt::order::relaxed);  // as above
  }

  /// Lists the neighbours of a vertex for each lane with `found`. A collective of a full warp.
  FOREBAY_DEVICE void push(bool found, std::uint32_t vertex, bfs_tally& tally) const {
    std::uint64_t const begin = found ? row_begin[vertex] : 0;
    std::uint64_t const end = found ? row_begin[vertex + 1] : 0;
    tally.entries += end - begin;
    tally.vertices += found ? 1 : 0;
    std::uint64_t const mask = page_elements - 1;
    std::uint64_t const runs = begin == end ? 0 : (end + mask) / page_elements - begin / page_elements;
    auto const team = simt::team<M>::here();
    std::uint64_t const up_to_here = team.inclusive_sum(runs);
    std::uint64_t const total = team.broadcast(up_to_here, 31);
    std::uint64_t base = 0;
    if (team.leader()) {
      // relaxed: only the next launch reads the frontier.
      base = simt::atomic<M>(result->runs).fetch_add(total, simt::order::relaxed);
    }
    base = team.broadcast(base) + up_to_here - runs;
    for (std::uint64_t at = begin; at < end;) {
      std::uint64_t const page_end = (at | mask) + 1;
      std::uint64_t const stop = page_end < end ? page_end : end;
      next[base++] = bfs_run_of_neighbours(at, static_cast<std::uint32_t>(stop - at));
      at = stop;
    }
  }

  /// Adds up what the lanes of a warp found. A collective of a full warp.
  FOREBAY_DEVICE void add(bfs_tally const& tally) const {
    auto const team = simt::team<M>::here();
    std::uint32_t const vertices = team.sum32(tally.vertices);
    if (vertices == 0) return;
    std::uint64_t const entries = team.sum(tally.entries);
    if (!team.leader()) return;
    // relaxed, both: the host reads them after the grid.
    simt::atomic<M>(result->vertices).fetch_add(vertices, simt::order::relaxed);
    simt::atomic<M>(result->entries).fetch_add(entries, simt::order::relaxed);
  }
};

/// Makes every vertex unreached but the source.
template <class M>
struct bfs_begin {
  bfs_state<M> state;
  std::uint32_t vertices;
  std::uint32_t source;

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    for (std::uint32_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      state.distances[v] = v == source ? 0 : bfs_unreached;
    }
    if (M::thread_rank() >= 32) return;
    bfs_tally tally;
    state.push(M::thread_rank() == 0, source, tally);
    state.add(tally);
  }
};

/// Lists the vertices of a level that was found from below, roughly in their order.
template <class M>
struct bfs_list_level {
  bfs_state<M> state;
  std::uint32_t vertices;
  std::uint32_t level;

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    bfs_tally tally;
    for (std::uint64_t first = M::thread_rank() - lane; first < vertices; first += M::thread_count()) {
      std::uint64_t const v = first + lane;
      bool const here = v < vertices && state.distances[v] == level;
      if (warp.any(here)) state.push(here, static_cast<std::uint32_t>(v), tally);
    }
    state.add(tally);
  }
};

/// Visits the neighbours of a frontier. Warps of 32 lanes.
///
/// The frontier is a list of runs of neighbours. No run is longer than a page or crosses the edge of one. A warp takes
/// several runs at a time: each lane asks for the page of one, so that the pages come together. Then all lanes share
/// the neighbours of all of them, so that vertices of few neighbours leave no lane idle. Vertices are listed as they
/// are found, at random; the pages of the next level are needed in that order.
template <class M, class Neighbours>
struct bfs_visit {
  bfs_state<M> state;
  Neighbours neighbours;
  std::uint32_t level;  ///< of the vertices that are found
  std::uint64_t runs;
  bfs_run_of_neighbours const* frontier;
  std::uint32_t at_a_time;  ///< runs that a warp takes, 1 to 32; it holds the pages of all of them

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    auto const warp = M::this_warp();
    std::uint32_t const warps = M::thread_count() / 32;
    bfs_tally tally;
    auto const turns = static_cast<std::uint32_t>((runs + at_a_time - 1) / at_a_time);
    for (std::uint32_t turn = M::thread_rank() / 32; turn < turns; turn += warps) {
      bfs_run_of_neighbours const run = take(turn, turns);
      // Not kept from turn to turn: the state of a cursor would take registers of the wait for the next page.
      auto page = neighbours.thread_page();
      std::uint32_t const* begin = nullptr;
      if (run.count() != 0 && state.result->failure.template passes<M>(page.seek(run.first())))
        begin = &page[run.first()];
      if (!warp.all(run.count() == 0 || begin != nullptr)) return;
      auto const team = simt::team<M>::here();
      std::uint64_t const up_to_mine = team.inclusive_sum(run.count());
      visit(warp, begin, static_cast<std::uint32_t>(up_to_mine - run.count()),
            static_cast<std::uint32_t>(team.broadcast(up_to_mine, 31)), tally);
      warp.sync();  // before a lane lets go of a page that others read
    }
    state.add(tally);
  }

 private:
  /// Visits the `total` neighbours that the lanes have together. Each lane's neighbours start at `begin` and are those
  /// from number `first` on.
  template <class Warp>
  FOREBAY_DEVICE void visit(Warp const& warp, std::uint32_t const* begin, std::uint32_t first, std::uint32_t total,
                            bfs_tally& tally) const {
    constexpr std::uint32_t batch = 4;
    for (std::uint32_t at = 0; at < total; at += batch * 32) {
      std::uint32_t neighbour[batch];
      bool unreached[batch];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        std::uint32_t const i = at + k * 32 + warp.thread_rank();
        std::uint32_t const whose = owner(warp, first, i);
        std::uint32_t const* const from = warp.shfl(begin, whose);
        std::uint32_t const before = warp.shfl(first, whose);
        neighbour[k] = i < total ? from[i - before] : 0;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        unreached[k] = state.distance(neighbour[k]) == bfs_unreached && at + k * 32 + warp.thread_rank() < total;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        if (!warp.any(unreached[k])) continue;
        bool const found = unreached[k] && state.reach(neighbour[k], level);
        if (warp.any(found)) state.push(found, neighbour[k], tally);
      }
    }
  }

  /// The calling lane's run of a warp's turn; an empty one if it has none. Each lane goes through a part of its own of
  /// the frontier, so the lanes of a warp miss different pages, which they ask for together.
  FOREBAY_DEVICE bfs_run_of_neighbours take(std::uint64_t turn, std::uint32_t turns) const {
    std::uint32_t const lane = M::this_warp().thread_rank();
    std::uint64_t const mine = std::uint64_t{lane} * turns + turn;
    return lane < at_a_time && turn < turns && mine < runs ? frontier[mine] : bfs_run_of_neighbours(0, 0);
  }

  /// The lane that has neighbour number `i`: the last one whose first is not beyond it.
  template <class Warp>
  FOREBAY_DEVICE std::uint32_t owner(Warp const& warp, std::uint32_t first, std::uint32_t i) const {
    std::uint32_t lane = 0;
    if (at_a_time == 1) return lane;
    for (std::uint32_t step = 16; step != 0; step /= 2) {
      if (warp.shfl(first, lane + step) <= i) lane += step;
    }
    return lane;
  }
};

/// Finds the vertices of a level from below: every unreached vertex looks for a neighbour of the level before, and
/// stops at the first. Warps of 32 lanes.
///
/// Each warp has an equal share of consecutive pages, whatever vertices they belong to. It asks for several at a time,
/// and only for those in which a vertex looks. Pages are needed in their order, many are in flight, and each is worked
/// on as it comes.
template <class M, class Neighbours, unsigned ThreadsMax = 0>
struct bfs_look_up {
  /// 0: as many registers as the compiler likes.
  static constexpr unsigned max_threads_per_block = ThreadsMax;
  static constexpr std::uint32_t batch = 4;

  bfs_state<M> state;
  Neighbours neighbours;
  std::uint32_t level;  ///< of the vertices that are found
  std::uint32_t vertices;
  std::uint64_t entries;
  std::uint32_t share_pages;  ///< of each warp, 1 to 32
  std::uint32_t window;       ///< of them that it asks for at a time; 1: whether it needs them or not, one by one

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    auto const warp = M::this_warp();
    std::uint64_t const share_entries = std::uint64_t{share_pages} * state.page_elements;
    std::uint64_t const first = M::thread_rank() / 32 * share_entries;
    if (first >= entries) return;
    share const mine{first, static_cast<std::uint32_t>(min(share_entries, entries - first)),
                     row_that_ends_after<M>(state.row_begin, vertices, first, warp)};
    std::uint32_t const wanted = window > 1 ? pages_wanted(warp, mine) : ~0u;
    if (wanted == 0) return;

    std::uint32_t const page_shift = simt::lowest_bit(state.page_elements);
    bfs_tally tally;
    auto page = neighbours.warp_pages(window);
    for (std::uint32_t v = mine.first_vertex + warp.thread_rank();; v += 32) {
      bool const is_reached = v >= vertices || state.distance(v) != bfs_unreached;
      stretch list = list_of(v, mine);
      bool const is_last = warp.shfl(list.to, 31) == mine.count;
      if (is_reached) list.from = list.to;
      for (;;) {
        std::uint32_t const looking = warp.ballot(list.from != list.to);
        if (looking == 0) break;
        // Lists lie in the order of lanes.
        std::uint32_t const at = warp.shfl(list.from, simt::lowest_bit(looking));
        std::uint32_t const stop = min(end_of_run(wanted, at >> page_shift) << page_shift, mine.count);
        if (!state.result->failure.template passes<M>(page.seek(first + at, first + stop))) return;
        auto const page_end = static_cast<std::uint32_t>(min(page.end() - first, std::uint64_t{mine.count}));
        stretch const part{list.from, list.from < page_end ? min(list.to, page_end) : list.from};
        if (has_parent(warp, part, &page[first + at], at)) {
          list.from = list.to;
          reach(v, mine, tally);
        } else {
          list.from = part.to;
        }
      }
      if (is_last) break;
    }
    state.add(tally);
  }

 private:
  /// Entries [first, first + count), the first of which is of `first_vertex`.
  struct share {
    std::uint64_t first;
    std::uint32_t count;
    std::uint32_t first_vertex;
  };
  /// Of a share.
  struct stretch {
    std::uint32_t from, to;
  };
  template <class T>
  FOREBAY_DEVICE static T min(T a, T b) {
    return a < b ? a : b;
  }

  /// The part of a vertex's neighbours in a share. It is empty, and at the share's end, if there is no such vertex. Not
  /// for vertices before the first.
  FOREBAY_DEVICE stretch list_of(std::uint32_t v, share const& mine) const {
    if (v >= vertices) return {mine.count, mine.count};
    std::uint64_t const begin = state.row_begin[v], end = state.row_begin[v + 1], last = mine.first + mine.count;
    return {static_cast<std::uint32_t>((begin < mine.first ? mine.first : min(begin, last)) - mine.first),
            static_cast<std::uint32_t>(min(end, last) - mine.first)};
  }

  FOREBAY_DEVICE void reach(std::uint32_t v, share const& mine, bfs_tally& tally) const {
    std::uint64_t const begin = state.row_begin[v], end = state.row_begin[v + 1];
    if (begin >= mine.first && end <= mine.first + mine.count) {
      // relaxed, as all distances. No other lane has the vertex, so there is no answer to wait for.
      simt::atomic<M>(state.distances[v]).store(level, simt::order::relaxed);
    } else if (!state.reach(v, level)) {
      return;
    }
    tally.entries += end - begin;
    ++tally.vertices;
  }

  /// The pages of a share in which unreached vertices look, a bit each.
  template <class Warp>
  FOREBAY_DEVICE std::uint32_t pages_wanted(Warp const& warp, share const& mine) const {
    std::uint32_t const page_shift = simt::lowest_bit(state.page_elements);
    std::uint32_t wanted = 0, end = 0;
    for (std::uint32_t v = mine.first_vertex + warp.thread_rank(); end != mine.count; v += batch * 32) {
      stretch list[batch];
      std::uint32_t distance[batch];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        list[k] = list_of(v + k * 32, mine);
        distance[k] = v + k * 32 < vertices ? state.distance(v + k * 32) : 0;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        if (list[k].from == list[k].to || distance[k] != bfs_unreached) continue;
        wanted |= ~0u << (list[k].from >> page_shift) & ~0u >> (31 - ((list[k].to - 1) >> page_shift));
      }
      end = warp.shfl(list[batch - 1].to, 31);
    }
    for (std::uint32_t d = 16; d != 0; d /= 2) wanted |= warp.shfl(wanted, warp.thread_rank() ^ d);
    return wanted;
  }
  /// The first page from `page` on that is not wanted.
  FOREBAY_DEVICE static std::uint32_t end_of_run(std::uint32_t wanted, std::uint32_t page) {
    std::uint32_t const others = ~(wanted >> page);
    return others == 0 ? 32 : page + simt::lowest_bit(others);
  }

  /// Whether one of a lane's neighbours is of the level before. `neighbour` points at the one with number `at`. The
  /// fewer lanes still look, the more lanes help each of them.
  template <class Warp>
  FOREBAY_DEVICE bool has_parent(Warp const& warp, stretch part, std::uint32_t const* neighbour,
                                 std::uint32_t at) const {
    std::uint32_t const lane = warp.thread_rank();
    for (bool found = false;;) {
      bool const mine = !found && part.from < part.to;
      std::uint32_t const looking = warp.ballot(mine);
      if (looking == 0) return found;
      std::uint32_t const lists = simt::count_bits(looking);
      std::uint32_t const shift = 5 - simt::bit_width(lists - 1);  // 2^shift lanes a list
      std::uint32_t const whose = one_of(looking, lane >> shift);
      std::uint32_t const from = warp.shfl(part.from, whose) + (lane & ((1u << shift) - 1));
      std::uint32_t const to = warp.shfl(part.to, whose);
      bool const here =
          lane >> shift < lists && from < to && some_are_parents(neighbour, from - at, shift, to - 1 - at);
      std::uint32_t const hits = warp.ballot(here);
      if (!mine) continue;
      std::uint32_t const first = simt::count_bits(looking & ((1u << lane) - 1)) << shift;
      found = (hits >> first & ~0u >> (32 - (1u << shift))) != 0;
      part.from = min(part.from + (batch << shift), part.to);
    }
  }
  /// The position of one number `n` of `bits`, counted from 0; anything up to 31 where there is none.
  FOREBAY_DEVICE static std::uint32_t one_of(std::uint32_t bits, std::uint32_t n) {
    std::uint32_t position = 0;
    FOREBAY_UNROLL
    for (std::uint32_t step = 16; step != 0; step /= 2) {
      std::uint32_t const below = simt::count_bits(bits >> position & ((1u << step) - 1));
      if (n < below) continue;
      n -= below;
      position += step;
    }
    return position;
  }
  /// Looks at a batch of neighbours, 2^shift apart, together; at the last of them again for those beyond it.
  FOREBAY_DEVICE bool some_are_parents(std::uint32_t const* neighbour, std::uint32_t from, std::uint32_t shift,
                                       std::uint32_t last) const {
    std::uint32_t distance[batch];
    std::uint32_t parent[batch];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) parent[k] = neighbour[min(from + (k << shift), last)];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) distance[k] = state.distance(parent[k]);
    bool some = false;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) some = some || distance[k] == level - 1;
    return some;
  }
};

/// Of an undirected graph: each edge is in the lists of both of its vertices.
struct bfs_shape {
  std::uint32_t vertices = 0;
  std::uint64_t entries = 0;
  std::uint64_t const* row_begin = nullptr;
};

enum class bfs_direction : std::uint8_t { whichever_is_less, from_above, from_below };

/// How the vertices of a level are found.
struct bfs_how {
  bfs_direction direction = bfs_direction::whichever_is_less;
  /// From below: how many consecutive pages each warp has, 1 to 32, and how many of them it asks for at a time, only
  /// those that it needs. With 1 it asks for each page whether it needs it or not, which costs nothing in memory.
  std::uint32_t share_pages = 8;
  std::uint32_t window = 1;
};

/// Searches any number of times. `ThreadsMax`: the number of threads for which a multiprocessor should have registers
/// where levels are found from below; 0: the compiler decides.
template <class Executor, class Neighbours, unsigned ThreadsMax = 0>
class bfs {
  using M = typename Executor::machine;

 public:
  /// `page_elements`, a power of two of at most 32768: how many neighbours one page of the view holds; the view begins
  /// at the edge of a page. `at_a_time`: how many pages a warp holds from above, 1 to 32; more than 1 only if there is
  /// room for those of all warps that run together.
  bfs(Executor const& run, bfs_shape const& shape, Neighbours neighbours, std::uint32_t page_elements = 1024,
      std::uint32_t at_a_time = 32)
      : run_(run),
        shape_(shape),
        neighbours_(neighbours),
        page_elements_(page_elements),
        at_a_time_(at_a_time),
        distances_(run.memory(), shape.vertices),
        frontier_(run.memory(), runs_max(shape, page_elements)),
        next_(run.memory(), runs_max(shape, page_elements)),
        results_(run.memory(), 2) {}

  /// The numbers of vertices of each level, or of the levels up to one in which something failed.
  std::vector<std::uint64_t> operator()(std::uint32_t source, bfs_how const& how = {}) {
    std::vector<std::uint64_t> levels;
    results_.assign(std::vector<bfs_level_result>(2));
    start(run_.warps(), bfs_begin<M>{state(), shape_.vertices, source});
    std::uint64_t unexplored = shape_.entries, vertices_before = 0;
    bool from_below = false;
    for (std::uint32_t level = 1;; ++level) {
      bfs_level_result found = finish();
      if (found.vertices == 0) return levels;
      levels.push_back(found.vertices);
      if (found.failure.failures != 0) return levels;
      unexplored -= found.entries;
      // Either the source is alone, or no other vertex has neighbours.
      if (found.entries == 0 || unexplored == 0) return levels;
      bool const is_listed = !from_below;
      from_below = is_less_from_below(how.direction, from_below, found, vertices_before, unexplored);
      vertices_before = found.vertices;
      if (from_below) {
        look_up(level, how);
        continue;
      }
      if (!is_listed) {
        start(run_.warps(), bfs_list_level<M>{state(), shape_.vertices, level - 1});
        found = finish();
      }
      visit(level, found.runs);
    }
  }

  std::uint32_t const* distances() const { return distances_.data(); }
  std::vector<std::uint32_t> distances_to_host() const { return distances_.to_host(); }
  /// The failures in searches so far.
  apps::failure_latch const& failures() const { return failures_; }

 private:
  /// `alpha` weighs the neighbours of the frontier against those of all unreached vertices, `beta` the frontier against
  /// all vertices (Beamer and others, section 5; the factors are theirs).
  static constexpr std::uint64_t alpha = 14, beta = 24;
  bool is_less_from_below(bfs_direction direction, bool from_below, bfs_level_result const& frontier,
                          std::uint64_t vertices_before, std::uint64_t unexplored) const {
    if (direction != bfs_direction::whichever_is_less) return direction == bfs_direction::from_below;
    bool const grows = frontier.vertices > vertices_before;
    if (from_below) return grows || frontier.vertices >= shape_.vertices / beta;
    return grows && frontier.entries > unexplored / alpha;
  }

  void visit(std::uint32_t level, std::uint64_t runs) {
    std::swap(frontier_, next_);
    // A frontier of few runs is divided among many warps.
    std::uint64_t const most = run_.warps();
    auto const at_a_time = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(runs / most, 1, at_a_time_));
    start(std::min(most, (runs + at_a_time - 1) / at_a_time),
          bfs_visit<M, Neighbours>{state(), neighbours_, level, runs, frontier_.data(), at_a_time});
  }
  void look_up(std::uint32_t level, bfs_how const& how) {
    std::uint64_t const share_entries = std::uint64_t{how.share_pages} * page_elements_;
    start((shape_.entries + share_entries - 1) / share_entries,
          bfs_look_up<M, Neighbours, ThreadsMax>{state(), neighbours_, level, shape_.vertices, shape_.entries,
                                                 how.share_pages, how.window});
  }
  template <class Kernel>
  void start(std::uint64_t warps, Kernel const& kernel) const {
    run_({.blocks = static_cast<std::uint32_t>((warps + 3) / 4), .threads_per_block = 128}, kernel);
  }
  /// The results of the last kernel, when it has run.
  bfs_level_result finish() {
    run_.synchronize();
    bfs_level_result const found = results_.to_host()[turn_];
    turn_ ^= 1;
    failures_.failures += found.failure.failures;
    if (found.failure.failures != 0) failures_.status_bits = found.failure.status_bits;
    return found;
  }

  /// A vertex has one run more than there are page edges within its neighbours.
  static std::uint64_t runs_max(bfs_shape const& shape, std::uint32_t page_elements) {
    return shape.vertices + shape.entries / page_elements + 1;
  }
  bfs_state<M> state() const {
    return {shape_.row_begin, distances_.data(),       page_elements_,
            next_.data(),     results_.data() + turn_, results_.data() + (turn_ ^ 1)};
  }

  Executor const& run_;
  bfs_shape shape_;
  Neighbours neighbours_;
  std::uint32_t page_elements_;
  std::uint32_t at_a_time_;
  apps::device_array<std::uint32_t> distances_;
  apps::device_array<bfs_run_of_neighbours> frontier_, next_;
  apps::device_array<bfs_level_result> results_;  ///< the result of the kernel that runs, and that of the next, in turn
  std::uint32_t turn_ = 0;
  apps::failure_latch failures_;
};

/// Counts vertices whose distance cannot be right. In an undirected graph the distances of neighbours differ by at most
/// 1, a reached vertex has a neighbour that is nearer, and an unreached one has no reached neighbour (Graph500,
/// "Validation").
template <class M>
struct bfs_check {
  bfs_shape shape;
  std::uint32_t const* neighbours;
  std::uint32_t source;
  std::uint32_t const* distances;
  std::uint64_t* wrong_vertices;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    for (std::uint32_t v = M::thread_rank() / 32; v < shape.vertices; v += M::thread_count() / 32) {
      std::uint32_t const distance = distances[v];
      bool right = (distance == 0) == (v == source), nearer = false;
      for (std::uint64_t i = shape.row_begin[v] + warp.thread_rank(); i < shape.row_begin[v + 1]; i += 32) {
        std::uint32_t const other = distances[neighbours[i]];
        if (distance == bfs_unreached || other == bfs_unreached) {
          right = right && distance == other;
        } else {
          right = right && other + 1 >= distance && other <= distance + 1;
          nearer = nearer || other + 1 == distance;
        }
      }
      bool const all_right = warp.all(right);
      bool const reached = warp.any(nearer) || v == source || distance == bfs_unreached;
      // relaxed: the host reads it after the grid.
      if (warp.thread_rank() == 0 && !(all_right && reached)) {
        simt::atomic<M>(*wrong_vertices).fetch_add(1, simt::order::relaxed);
      }
    }
  }
};

}  // namespace forebay::bench
