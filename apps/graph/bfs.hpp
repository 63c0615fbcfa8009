// SPDX-License-Identifier: Apache-2.0
//! \file
//! Direction-optimising breadth-first search (Beamer, Asanovic and Patterson, "Direction-Optimizing Breadth-First
//! Search", SC 2012), level by level, over neighbours behind a view; everything else in plain memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/failure_latch.hpp"
#include "apps/graph/csr_rows.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

inline constexpr std::uint32_t bfs_unreached = ~0u;
/// What stands behind the distances of all vertices: that of an id which names none. No vertex is so far away.
inline constexpr std::uint32_t bfs_no_vertex = bfs_unreached - 1;

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
  std::uint64_t bad_neighbour = 0;  ///< the greatest id that names no vertex; 0: all do
};

/// What a lane found.
struct bfs_tally {
  std::uint64_t entries = 0;
  std::uint32_t vertices = 0;
};

/// What the kernels of a search share. `Tree`: a search also finds a predecessor of each vertex that it reaches.
template <class M, bool Tree>
struct bfs_state {
  std::uint64_t const* row_begin;
  std::uint32_t* distances;     ///< and `bfs_no_vertex` after them
  std::uint32_t* predecessors;  ///< of a `Tree`
  std::uint32_t vertices;
  std::uint32_t page_elements;  ///< a power of two
  bfs_run_of_neighbours* next;
  std::uint32_t* next_owners;  ///< of a `Tree`: the vertices that the runs belong to
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

  /// The distance of the vertex that an id names. What lies on a drive may be any id: the caller looks at the greatest
  /// of them in the end, which costs it less than to look at each.
  template <class Id>
  FOREBAY_DEVICE std::uint32_t distance_of_any(Id id) const {
    Id const last = vertices;
    return distance(static_cast<std::uint32_t>(id < last ? id : last));
  }
  /// Tells the host of an id that names no vertex.
  FOREBAY_DEVICE void look_at_greatest(std::uint64_t id) const {
    // relaxed: the host reads it after the grid.
    if (id >= vertices) simt::atomic<M>(result->bad_neighbour).fetch_max(id, simt::order::relaxed);
  }
  FOREBAY_DEVICE void set_predecessor(std::uint32_t vertex, std::uint32_t predecessor) const {
    // relaxed: any of those that are written is right, and the host reads it after the grid.
    if constexpr (Tree) simt::atomic<M>(predecessors[vertex]).store(predecessor, simt::order::relaxed);
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
      if constexpr (Tree) next_owners[base] = vertex;
      next[base++] = bfs_run_of_neighbours(at, static_cast<std::uint32_t>(stop - at));
      at = stop;
    }
  }

  /// Adds up what the lanes of a warp found. A collective of a full warp.
  FOREBAY_DEVICE void add(bfs_tally const& tally) const {
    auto const team = simt::team<M>::here();
    std::uint32_t const found = team.sum32(tally.vertices);
    if (found == 0) return;
    std::uint64_t const entries = team.sum(tally.entries);
    if (!team.leader()) return;
    // relaxed, both: the host reads them after the grid.
    simt::atomic<M>(result->vertices).fetch_add(found, simt::order::relaxed);
    simt::atomic<M>(result->entries).fetch_add(entries, simt::order::relaxed);
  }
};

/// Makes every vertex unreached but the source.
template <class M, bool Tree>
struct bfs_begin {
  bfs_state<M, Tree> state;
  std::uint32_t source;

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    if (M::thread_rank() == 0) state.distances[state.vertices] = bfs_no_vertex;
    for (std::uint64_t v = M::thread_rank(); v < state.vertices; v += M::thread_count()) {
      state.distances[v] = v == source ? 0 : bfs_unreached;
      if constexpr (Tree) state.predecessors[v] = bfs_unreached;
    }
    if (M::thread_rank() >= 32) return;
    bfs_tally tally;
    state.push(M::thread_rank() == 0, source, tally);
    state.add(tally);
  }
};

/// Lists the vertices of a level roughly in their order.
template <class M, bool Tree>
struct bfs_list_level {
  bfs_state<M, Tree> state;
  std::uint32_t level;

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    bfs_tally tally;
    for (std::uint64_t first = M::thread_rank() - lane; first < state.vertices; first += M::thread_count()) {
      std::uint64_t const v = first + lane;
      bool const here = v < state.vertices && state.distances[v] == level;
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
/// are found, at random, and pages are needed in that order. A frontier of many vertices is listed again, in their
/// order: then neighbouring lists, which share pages, are needed soon after one another.
template <class M, class Neighbours, bool Tree = false>
struct bfs_visit {
  using id_type = typename Neighbours::value_type;

  bfs_state<M, Tree> state;
  Neighbours neighbours;
  std::uint32_t level;  ///< of the vertices that are found
  std::uint64_t runs;
  bfs_run_of_neighbours const* frontier;
  std::uint32_t const* owners;  ///< of a `Tree`
  std::uint32_t at_a_time;      ///< runs that a warp takes, 1 to 32; it holds the pages of all of them

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    auto const warp = M::this_warp();
    std::uint32_t const warps = M::thread_count() / 32;
    bfs_tally tally;
    id_type greatest = 0;
    auto const turns = static_cast<std::uint32_t>((runs + at_a_time - 1) / at_a_time);
    for (std::uint32_t turn = M::thread_rank() / 32; turn < turns; turn += warps) {
      std::uint64_t const mine = number_in(turn, turns);
      bfs_run_of_neighbours const run = mine < runs ? frontier[mine] : bfs_run_of_neighbours(0, 0);
      std::uint32_t source = 0;
      if constexpr (Tree) source = mine < runs ? owners[mine] : 0;
      // Not kept from turn to turn: the state of a cursor would take registers of the wait for the next page.
      auto page = neighbours.thread_page();
      id_type const* begin = nullptr;
      if (run.count() != 0 &&
          state.result->failure.template passes<M>(page.seek(run.first(), run.first() + run.count())))
        begin = &page[run.first()];
      if (!warp.all(run.count() == 0 || begin != nullptr)) return;
      warp.sync();  // what each lane has read, all lanes now have
      auto const team = simt::team<M>::here();
      std::uint64_t const up_to_mine = team.inclusive_sum(run.count());
      visit(warp, begin, source, static_cast<std::uint32_t>(up_to_mine - run.count()),
            static_cast<std::uint32_t>(team.broadcast(up_to_mine, 31)), tally, greatest);
      warp.sync();  // before a lane lets go of a page that others read
    }
    state.look_at_greatest(greatest);
    state.add(tally);
  }

 private:
  /// Visits the `total` neighbours that the lanes have together. Each lane's neighbours are those of `source`; they
  /// start at `begin`, and are those from number `first` on.
  template <class Warp>
  FOREBAY_DEVICE void visit(Warp const& warp, id_type const* begin, std::uint32_t source, std::uint32_t first,
                            std::uint32_t total, bfs_tally& tally, id_type& greatest) const {
    constexpr std::uint32_t batch = 4;
    for (std::uint32_t at = 0; at < total; at += batch * 32) {
      id_type neighbour[batch];
      std::uint32_t owner_of[batch];
      bool unreached[batch];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        std::uint32_t const i = at + k * 32 + warp.thread_rank();
        std::uint32_t const whose = owner(warp, first, i);
        id_type const* const from = warp.shfl(begin, whose);
        std::uint32_t const before = warp.shfl(first, whose);
        if constexpr (Tree) owner_of[k] = warp.shfl(source, whose);
        neighbour[k] = i < total ? from[i - before] : 0;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        unreached[k] = at + k * 32 + warp.thread_rank() < total && state.distance_of_any(neighbour[k]) == bfs_unreached;
        if (neighbour[k] > greatest) greatest = neighbour[k];
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        if (!warp.any(unreached[k])) continue;
        auto const vertex = static_cast<std::uint32_t>(neighbour[k]);
        bool const found = unreached[k] && state.reach(vertex, level);
        if constexpr (Tree) {
          if (found) state.set_predecessor(vertex, owner_of[k]);
        }
        if (warp.any(found)) state.push(found, vertex, tally);
      }
    }
  }

  /// The number of the calling lane's run in a warp's turn; `runs` or more if it has none. Each lane goes through a
  /// part of its own of the frontier, so the lanes of a warp miss different pages, which they ask for together.
  FOREBAY_DEVICE std::uint64_t number_in(std::uint64_t turn, std::uint32_t turns) const {
    std::uint32_t const lane = M::this_warp().thread_rank();
    return lane < at_a_time ? std::uint64_t{lane} * turns + turn : runs;
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
template <class M, class Neighbours, unsigned ThreadsMax = 0, bool Tree = false>
struct bfs_look_up {
  /// 0: as many registers as the compiler likes.
  static constexpr unsigned max_threads_per_block = ThreadsMax;
  static constexpr std::uint32_t batch = 4;
  using id_type = typename Neighbours::value_type;

  bfs_state<M, Tree> state;
  Neighbours neighbours;
  std::uint32_t level;  ///< of the vertices that are found
  std::uint64_t entries;
  std::uint32_t share_pages;  ///< of each share, 1 to 32; a warp may have several shares
  std::uint32_t window;       ///< of them that it asks for at a time; 1: whether it needs them or not, one by one

  FOREBAY_DEVICE void operator()() const {
    state.begin_level();
    auto const warp = M::this_warp();
    std::uint64_t const share_entries = std::uint64_t{share_pages} * state.page_elements;
    std::uint64_t const step = M::thread_count() / 32 * share_entries;
    bfs_tally tally;
    id_type greatest = 0;
    for (std::uint64_t first = M::thread_rank() / 32 * share_entries; first < entries; first += step) {
      share const mine{first, static_cast<std::uint32_t>(min(share_entries, entries - first)),
                       row_that_ends_after<M>(state.row_begin, state.vertices, first, warp)};
      if (!look(warp, mine, tally, greatest)) return;
    }
    state.look_at_greatest(greatest);
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

  /// Looks up from the vertices of a share. False if a page cannot be had.
  template <class Warp>
  FOREBAY_DEVICE bool look(Warp const& warp, share const& mine, bfs_tally& tally, id_type& greatest) const {
    std::uint32_t const wanted = window > 1 ? pages_wanted(warp, mine) : ~0u;
    if (wanted == 0) return true;
    std::uint64_t const first = mine.first;
    std::uint32_t const page_shift = simt::lowest_bit(state.page_elements);
    auto page = neighbours.warp_pages(window);
    for (std::uint32_t v = mine.first_vertex + warp.thread_rank();; v += 32) {
      bool const is_reached = v >= state.vertices || state.distance(v) != bfs_unreached;
      stretch list = list_of(v, mine);
      bool const is_last = warp.shfl(list.to, 31) == mine.count;
      if (is_reached) list.from = list.to;
      for (;;) {
        std::uint32_t const looking = warp.ballot(list.from != list.to);
        if (looking == 0) break;
        // Lists lie in the order of lanes.
        std::uint32_t const at = warp.shfl(list.from, simt::lowest_bit(looking));
        std::uint32_t const stop = min(end_of_run(wanted, at >> page_shift) << page_shift, mine.count);
        if (!state.result->failure.template passes<M>(page.seek(first + at, first + stop))) return false;
        auto const page_end = static_cast<std::uint32_t>(min(page.end() - first, std::uint64_t{mine.count}));
        stretch const part{list.from, list.from < page_end ? min(list.to, page_end) : list.from};
        if (has_parent(warp, v, part, &page[first + at], at, greatest)) {
          list.from = list.to;
          reach(v, mine, tally);
        } else {
          list.from = part.to;
        }
      }
      if (is_last) return true;
    }
  }

  /// The part of a vertex's neighbours in a share. It is empty, and at the share's end, if there is no such vertex. Not
  /// for vertices before the first.
  FOREBAY_DEVICE stretch list_of(std::uint32_t v, share const& mine) const {
    if (v >= state.vertices) return {mine.count, mine.count};
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
        distance[k] = v + k * 32 < state.vertices ? state.distance(v + k * 32) : 0;
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

  /// Whether one of the neighbours of a lane's vertex `v` is of the level before. `neighbour` points at the one with
  /// number `at`. The fewer lanes still look, the more lanes help each of them.
  template <class Warp>
  FOREBAY_DEVICE bool has_parent(Warp const& warp, std::uint32_t v, stretch part, id_type const* neighbour,
                                 std::uint32_t at, id_type& greatest) const {
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
      bool const here = lane >> shift < lists && from < to &&
                        some_are_parents(v - lane + whose, neighbour, from - at, shift, to - 1 - at, greatest);
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
  /// Looks at a batch of neighbours of vertex `v`, 2^shift apart, together; at the last of them again for those beyond
  /// it.
  FOREBAY_DEVICE bool some_are_parents(std::uint32_t v, id_type const* neighbour, std::uint32_t from,
                                       std::uint32_t shift, std::uint32_t last, id_type& greatest) const {
    std::uint32_t distance[batch];
    id_type parent[batch];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) parent[k] = neighbour[min(from + (k << shift), last)];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) {
      distance[k] = state.distance_of_any(parent[k]);
      if (parent[k] > greatest) greatest = parent[k];
    }
    bool some = false;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) {
      bool const here = distance[k] == level - 1;
      if constexpr (Tree) {
        if (here) state.set_predecessor(v, static_cast<std::uint32_t>(parent[k]));
      }
      some = some || here;
    }
    return some;
  }
};

enum class bfs_direction : std::uint8_t { whichever_is_less, from_above, from_below };

/// How the vertices of a level are found. In a directed graph, only from above: a list has no vertices from which an
/// arc comes.
struct bfs_how {
  bfs_direction direction = bfs_direction::whichever_is_less;
  /// From below: how many consecutive pages each warp has, 1 to 32, and how many of them it asks for at a time, only
  /// those that it needs. With 1 it asks for each page whether it needs it or not, which costs nothing in memory.
  std::uint32_t share_pages = 8;
  std::uint32_t window = 1;
};

/// What is known of a level.
struct bfs_level {
  std::uint64_t vertices;
  std::uint64_t entries;  ///< neighbours of all of them
  bool from_below;        ///< how they were found
};

/// How the pages of a view of neighbours are used.
struct bfs_paging {
  /// How many neighbours one page holds, a power of two of at most 32768. The view begins at the edge of a page.
  std::uint32_t page_elements = 1024;
  /// How many pages a warp holds from above, 1 to 32; more than 1 only if there is room for those of all warps that run
  /// together.
  std::uint32_t at_a_time = 32;
  std::uint32_t warps_max = ~0u;  ///< no launch that reads has more warps
  /// From above, a frontier of so many vertices is listed in their order if it has one of 64 vertices of the graph.
  /// Where neighbouring pages cost as much as others, that takes time for nothing.
  std::uint32_t ordered_min = 4096;
};

/// Searches any number of times. `ThreadsMax`: the number of threads for which a multiprocessor should have registers
/// where levels are found from below; 0: the compiler decides. `Tree`: it also finds predecessors.
template <class Executor, class Neighbours, unsigned ThreadsMax = 0, bool Tree = false>
class bfs {
  using M = typename Executor::machine;

 public:
  bfs(Executor const& run, graph_shape const& shape, Neighbours neighbours, bfs_paging const& paging = {})
      : run_(run),
        shape_(shape),
        neighbours_(neighbours),
        paging_(paging),
        distances_(run.memory(), std::size_t{shape.vertices} + 1),
        predecessors_(run.memory(), Tree ? shape.vertices : 0),
        frontier_(run.memory(), runs_max(shape, paging)),
        next_(run.memory(), runs_max(shape, paging)),
        owners_(run.memory(), Tree ? frontier_.size() : 0),
        next_owners_(run.memory(), Tree ? frontier_.size() : 0),
        results_(run.memory(), 2) {}

  /// The numbers of vertices of each level, or of the levels up to one in which something failed.
  std::vector<std::uint64_t> operator()(std::uint32_t source, bfs_how const& how = {}) {
    return (*this)(source, how, [](bfs_level const&) {});
  }
  /// The same. Calls `tell(level)` when each level is known.
  template <class Tell>
  std::vector<std::uint64_t> operator()(std::uint32_t source, bfs_how const& how, Tell&& tell) {
    std::vector<std::uint64_t> levels;
    results_.assign(std::vector<bfs_level_result>(2));
    failures_ = {};
    bad_neighbour_ = 0;
    start(run_.warps(), bfs_begin<M, Tree>{state(), source});
    std::uint64_t unexplored = shape_.entries, vertices_before = 0;
    bool from_below = false;
    for (std::uint32_t level = 1;; ++level) {
      bfs_level_result found = finish();
      if (found.vertices == 0) return levels;
      levels.push_back(found.vertices);
      tell(bfs_level{found.vertices, found.entries, from_below});
      if (failed()) return levels;
      unexplored -= found.entries;
      if (found.entries == 0) return levels;
      // In an undirected graph, no other vertex has neighbours. In a directed one, arcs may lead to vertices without
      // any.
      if (unexplored == 0 && how.direction != bfs_direction::from_above) return levels;
      bool const is_listed =
          !from_below && (found.vertices < paging_.ordered_min || found.vertices < shape_.vertices / 64);
      from_below = is_less_from_below(how.direction, from_below, found, vertices_before, unexplored);
      vertices_before = found.vertices;
      if (from_below) {
        look_up(level, how);
        continue;
      }
      if (!is_listed) {
        start(run_.warps(), bfs_list_level<M, Tree>{state(), level - 1});
        found = finish();
      }
      visit(level, found.runs);
    }
  }

  std::uint32_t const* distances() const { return distances_.data(); }
  std::vector<std::uint32_t> distances_to_host() const { return distances_.to_host(shape_.vertices); }
  /// Of a `Tree`: a vertex of the level before from which an arc leads to each vertex that was reached; `bfs_unreached`
  /// for the source and for vertices that were not.
  std::uint32_t const* predecessors() const { return predecessors_.data(); }
  std::vector<std::uint32_t> predecessors_to_host() const { return predecessors_.to_host(); }
  /// The failures of the last search. After one, what it found is not all that there is.
  apps::failure_latch const& failures() const { return failures_; }
  /// An id of the last search that named no vertex; 0: all did.
  std::uint64_t bad_neighbour() const { return bad_neighbour_; }
  bool failed() const { return failures_.failures != 0 || bad_neighbour_ != 0; }

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
    std::swap(owners_, next_owners_);
    // A frontier of few runs is divided among many warps.
    std::uint64_t const most = std::min(run_.warps(), paging_.warps_max);
    auto const at_a_time = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(runs / most, 1, paging_.at_a_time));
    start(
        std::min(most, (runs + at_a_time - 1) / at_a_time),
        bfs_visit<M, Neighbours, Tree>{state(), neighbours_, level, runs, frontier_.data(), owners_.data(), at_a_time});
  }
  void look_up(std::uint32_t level, bfs_how const& how) {
    std::uint64_t const share_entries = std::uint64_t{how.share_pages} * paging_.page_elements;
    start((shape_.entries + share_entries - 1) / share_entries,
          bfs_look_up<M, Neighbours, ThreadsMax, Tree>{state(), neighbours_, level, shape_.entries, how.share_pages,
                                                       how.window});
  }
  template <class Kernel>
  void start(std::uint64_t warps, Kernel const& kernel) const {
    std::uint32_t const warps_per_block = std::min(4u, paging_.warps_max);
    warps = std::min<std::uint64_t>(warps, paging_.warps_max / warps_per_block * warps_per_block);
    run_({.blocks = static_cast<std::uint32_t>((warps + warps_per_block - 1) / warps_per_block),
          .threads_per_block = warps_per_block * 32},
         kernel);
  }
  /// The results of the last kernel, when it has run.
  bfs_level_result finish() {
    run_.synchronize();
    bfs_level_result const found = results_.to_host()[turn_];
    turn_ ^= 1;
    if (found.failure.failures != 0) failures_ = found.failure;
    if (found.bad_neighbour != 0) bad_neighbour_ = found.bad_neighbour;
    return found;
  }

  /// A vertex has one run more than there are page edges within its neighbours.
  static std::uint64_t runs_max(graph_shape const& shape, bfs_paging const& paging) {
    return shape.vertices + shape.entries / paging.page_elements + 1;
  }
  bfs_state<M, Tree> state() const {
    return {.row_begin = shape_.row_begin,
            .distances = distances_.data(),
            .predecessors = predecessors_.data(),
            .vertices = shape_.vertices,
            .page_elements = paging_.page_elements,
            .next = next_.data(),
            .next_owners = next_owners_.data(),
            .result = results_.data() + turn_,
            .result_after = results_.data() + (turn_ ^ 1)};
  }

  Executor const& run_;
  graph_shape shape_;
  Neighbours neighbours_;
  bfs_paging paging_;
  apps::device_array<std::uint32_t> distances_, predecessors_;
  apps::device_array<bfs_run_of_neighbours> frontier_, next_;
  apps::device_array<std::uint32_t> owners_, next_owners_;  ///< of a `Tree`
  apps::device_array<bfs_level_result> results_;  ///< the result of the kernel that runs, and that of the next, in turn
  std::uint32_t turn_ = 0;
  apps::failure_latch failures_;
  std::uint64_t bad_neighbour_ = 0;
};

}  // namespace forebay::graph
