// SPDX-License-Identifier: Apache-2.0
//! \file
//! Shortest paths from one vertex by delta-stepping (Meyer and Sanders, "Delta-stepping: a parallelizable shortest path
//! algorithm", Journal of Algorithms, 2003), with one list of vertices that are near and one of those that are far,
//! over neighbours and weights behind a view; everything else in plain memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/list_errors.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// The distance of a vertex that no path reaches.
inline constexpr std::uint64_t sssp_unreached = ~std::uint64_t{0};
/// The predecessor of the source, and of a vertex that no path reaches.
inline constexpr std::uint32_t no_predecessor = ~std::uint32_t{0};
/// Weights are less than this.
inline constexpr std::uint32_t weights_end = 1u << 31;

/// An arc as it stands in a list, and in a `.wsg` file of the GAP benchmark suite.
struct alignas(8) weighted_neighbour {
  std::uint32_t vertex;
  std::uint32_t weight;
};

/// Written by a kernel, read by the host before the next.
struct sssp_result {
  std::uint64_t near_runs = 0;     ///< of the vertices to visit next
  std::uint64_t near_entries = 0;  ///< neighbours of these vertices
  std::uint64_t closeness = 0;     ///< complement of what the nearest far vertex is beyond the base; 0: there is none
  list_errors errors;
  range_latch weights;
};

/// Words that the kernels share. A kernel clears the result of the kernel after it.
struct sssp_words {
  sssp_result results[2];
  std::uint64_t far_size[2] = {};  ///< of the two lists of far vertices
};

/// What the kernels of a search share.
///
/// The vertices of a bucket, whose distances are in [base, base + delta), are visited until none of them gets nearer.
/// Vertices beyond the bucket wait in the list of the far ones. Once no vertex of the bucket is left, the base moves on
/// to the bucket of the nearest far vertex.
///
/// A vertex's distance and the vertex before it change together: the lower half of the distance and the predecessor are
/// one word. That is enough. The base only grows. A weight is less than 2^31, and delta is at most that. So all
/// vertices that are reached but not settled have distances in [base, base + 2^32), and the lower half tells them
/// apart. The distances of settled vertices, those nearer than the base, stand in full in an array of their own.
///
/// A vertex takes a predecessor only if that makes it nearer. It then has its final word later than its predecessor had
/// its own. So the predecessors form a tree, even where arcs have no weight.
template <class M>
struct sssp_state {
  static constexpr std::uint64_t nothing = ~std::uint64_t{0};  ///< the word of a vertex that is not reached

  graph_shape shape;
  std::uint32_t page_shift;
  std::uint32_t delta;
  std::uint64_t base;
  std::uint64_t* words;      ///< of each vertex: lower half of the distance << 32 | predecessor
  std::uint64_t* distances;  ///< of each vertex that was visited; final if it is less than the base
  std::uint32_t* listed;     ///< of each vertex: the last phase that listed it to be visited
  std::uint32_t* is_far;     ///< of each vertex a bit: whether it was ever in the list of far ones
  std::uint32_t* far;        ///< vertices, each at most once
  run_of_neighbours* next;   ///< what is to be visited next
  sssp_words* shared;
  std::uint32_t turn;      ///< which result is this kernel's
  std::uint32_t far_turn;  ///< which list of far vertices grows
  std::uint32_t phase;     ///< of this kernel, at least 1; those that list vertices to be visited have different ones

  FOREBAY_DEVICE sssp_result& result() const { return shared->results[turn]; }
  FOREBAY_DEVICE void begin_kernel() const {
    if (M::thread_rank() == 0) shared->results[turn ^ 1] = {};
  }
  FOREBAY_DEVICE std::uint64_t word(std::uint32_t vertex) const {
    // relaxed: the word alone says all. An old word only makes the caller try in vain, or visit a vertex that is listed
    // again anyway.
    return simt::atomic<M>(words[vertex]).load(simt::order::relaxed);
  }
  /// How much a word's distance is beyond the base, for words of vertices that are reached but not settled.
  FOREBAY_DEVICE std::uint32_t beyond_base(std::uint64_t word) const {
    return static_cast<std::uint32_t>(word >> 32) - static_cast<std::uint32_t>(base);
  }

  /// Makes `vertex` be `beyond` beyond the base, after `predecessor`, if that is nearer than it is. `word`: what it
  /// has.
  FOREBAY_DEVICE bool bring_nearer(std::uint32_t vertex, std::uint64_t word, std::uint32_t beyond,
                                   std::uint32_t predecessor) const {
    if (word != nothing) {
      if (beyond_base(word) <= beyond) return false;
      // It may be settled, and then its word says nothing. relaxed: an earlier launch settled it.
      if (simt::atomic<M>(distances[vertex]).load(simt::order::relaxed) < base) return false;
    }
    std::uint64_t const nearer =
        std::uint64_t{static_cast<std::uint32_t>(base) + beyond} << 32 | std::uint64_t{predecessor};
    do {
      // relaxed: the word says all, as above. Its modification order is that of the distances, which fall.
      if (simt::atomic<M>(words[vertex]).compare_exchange(word, nearer, simt::order::relaxed)) return true;
    } while (word == nothing || beyond_base(word) > beyond);
    return false;
  }

  /// Lists a vertex to be visited next for each lane with `some`. Returns how many neighbours the lane's vertex has. A
  /// collective of a full warp, as the one below.
  FOREBAY_DEVICE std::uint64_t push_near(bool some, std::uint32_t vertex) const {
    // relaxed: the lane that sees another phase lists the vertex; another launch visits it.
    bool const first = some && simt::atomic<M>(listed[vertex]).exchange(phase, simt::order::relaxed) != phase;
    return run_list{next, &result().near_runs}.template push<M>(first, vertex, shape.row_begin, page_shift);
  }
  FOREBAY_DEVICE void push_far(bool some, std::uint32_t vertex) const {
    std::uint32_t const bit = 1u << vertex % 32;
    // relaxed: the lane that sets the bit lists the vertex; only later launches read the list. Distances fall, so a
    // vertex that has left the list never comes back.
    bool const first = some && (simt::atomic<M>(is_far[vertex / 32]).fetch_or(bit, simt::order::relaxed) & bit) == 0;
    append_far(first, vertex);
  }
  FOREBAY_DEVICE void append_far(bool some, std::uint32_t vertex) const {
    auto const team = simt::team<M>::here();
    std::uint32_t const those = team.ballot(some);
    if (those == 0) return;
    std::uint64_t base_number = 0;
    if (team.leader()) {
      // relaxed: as above.
      base_number =
          simt::atomic<M>(shared->far_size[far_turn]).fetch_add(simt::count_bits(those), simt::order::relaxed);
    }
    base_number = team.broadcast(base_number);
    if (some) far[base_number + simt::count_bits(those & ((1u << team.rank()) - 1))] = vertex;
  }
  /// Adds up the neighbours that the lanes of a warp listed. A collective of a full warp.
  FOREBAY_DEVICE void add(std::uint64_t entries) const {
    auto const team = simt::team<M>::here();
    entries = team.sum(entries);
    // relaxed: the host reads it after the grid.
    if (team.leader() && entries != 0) {
      simt::atomic<M>(result().near_entries).fetch_add(entries, simt::order::relaxed);
    }
  }
};

/// Makes every vertex unreached but the source.
template <class M>
struct sssp_begin {
  sssp_state<M> state;
  std::uint32_t source;

  FOREBAY_DEVICE void operator()() const {
    state.begin_kernel();
    for (std::uint64_t v = M::thread_rank(); v < state.shape.vertices; v += M::thread_count()) {
      state.words[v] = v == source ? std::uint64_t{no_predecessor} : state.nothing;
      state.distances[v] = sssp_unreached;
      if (v != source) state.listed[v] = 0;
      if (v % 32 == 0) state.is_far[v / 32] = 0;
    }
    if (M::thread_rank() >= 32) return;
    bool const is_first = M::thread_rank() == 0;
    if (is_first) state.listed[source] = 0;
    state.add(state.push_near(is_first, source));
  }
};

/// Visits the neighbours of the vertices that are listed. Warps of 32 lanes.
template <class M, class Arcs>
struct sssp_visit {
  sssp_state<M> state;
  Arcs arcs;
  run_of_neighbours const* runs;
  run_division division;

  FOREBAY_DEVICE void operator()() const {
    state.begin_kernel();
    auto const warp = M::this_warp();
    std::uint64_t entries = 0;
    for (std::uint64_t turn = M::thread_rank() / 32; turn < division.turns; turn += M::thread_count() / 32) {
      std::uint64_t const number = division.number(warp.thread_rank(), turn);
      bool const has_run = number < division.runs;
      run_of_neighbours const run = has_run ? runs[number] : run_of_neighbours(0, 0);
      entry_range const mine = has_run ? run.in(state.shape.row_begin, state.page_shift) : entry_range{};
      // Not kept from turn to turn: the state of a cursor would take registers of the wait for the next page.
      auto page = arcs.thread_page();
      weighted_neighbour const* begin = nullptr;
      if (mine.count() != 0 && state.result().errors.failure.template passes<M>(page.seek(mine.begin, mine.end))) {
        begin = &page[mine.begin];
      }
      if (!warp.all(mine.count() == 0 || begin != nullptr)) return;
      warp.sync();  // what each lane has read, all lanes now have
      std::uint32_t const beyond = has_run ? settle(run.vertex()) : 0;
      visit_together<M>(begin, mine.count(), division.at_a_time != 1,
                        [&](auto const& batch) { entries += visit(warp, batch, beyond, run.vertex()); });
      warp.sync();  // before a lane lets go of a page that others read
    }
    state.add(entries);
  }

 private:
  /// Writes down the distance of a vertex in the bucket, and returns how much it is beyond the base. If the vertex gets
  /// nearer meanwhile, it is listed again. So the last launch that visits it writes its final distance.
  FOREBAY_DEVICE std::uint32_t settle(std::uint32_t vertex) const {
    std::uint32_t const beyond = state.beyond_base(state.word(vertex));
    // relaxed: nothing that this launch reads there depends on which distance of the bucket it is.
    simt::atomic<M>(state.distances[vertex]).store(state.base + beyond, simt::order::relaxed);
    return beyond;
  }

  /// Returns how many neighbours the vertices have that the lane listed.
  template <class Warp>
  FOREBAY_DEVICE std::uint64_t visit(Warp const& warp, neighbour_batch<weighted_neighbour> const& batch,
                                     std::uint32_t beyond, std::uint32_t vertex) const {
    std::uint32_t there[batch.size];
    std::uint32_t before[batch.size];
    std::uint64_t word[batch.size];
    bool valid[batch.size];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch.size; ++k) {
      there[k] = warp.shfl(beyond, batch.whose[k]) + batch.neighbour[k].weight;
      before[k] = warp.shfl(vertex, batch.whose[k]);
      valid[k] = batch.here[k] &&
                 state.result().errors.vertices.template passes<M>(batch.neighbour[k].vertex, state.shape.vertices) &&
                 state.result().weights.template passes<M>(batch.neighbour[k].weight, weights_end);
    }
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch.size; ++k) word[k] = valid[k] ? state.word(batch.neighbour[k].vertex) : 0;
    std::uint64_t entries = 0;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch.size; ++k) {
      std::uint32_t const to = batch.neighbour[k].vertex;
      bool const nearer = valid[k] && state.bring_nearer(to, word[k], there[k], before[k]);
      bool const is_near = nearer && there[k] < state.delta;
      if (warp.any(is_near)) entries += state.push_near(is_near, to);
      if (warp.any(nearer && !is_near)) state.push_far(nearer && !is_near, to);
    }
    return entries;
  }
};

/// Finds the nearest of the far vertices that the bucket has not settled.
template <class M>
struct sssp_nearest {
  sssp_state<M> state;
  std::uint64_t count;

  FOREBAY_DEVICE void operator()() const {
    state.begin_kernel();
    // The list that the next kernel makes.
    if (M::thread_rank() == 0) state.shared->far_size[state.far_turn ^ 1] = 0;
    std::uint64_t closeness = 0;
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) {
      std::uint32_t const beyond = state.beyond_base(state.words[state.far[i]]);
      // The complement is not 0: no vertex is 2^32 - 1 beyond the base.
      if (beyond >= state.delta && ~beyond > closeness) closeness = ~beyond;
    }
    auto const team = simt::team<M>::here();
    closeness = team.max(closeness);
    // relaxed: the host reads it after the grid.
    if (team.leader() && closeness != 0) {
      simt::atomic<M>(state.result().closeness).fetch_max(closeness, simt::order::relaxed);
    }
  }
};

/// Moves the base on: lists the far vertices that are in its bucket, and keeps those beyond. Warps of 32 lanes.
template <class M>
struct sssp_next_bucket {
  sssp_state<M> state;  ///< that of the new bucket
  std::uint64_t old_base;
  std::uint32_t const* far;  ///< the list before
  std::uint64_t count;

  FOREBAY_DEVICE void operator()() const {
    state.begin_kernel();
    auto const warp = M::this_warp();
    std::uint64_t entries = 0;
    std::uint32_t const lane = warp.thread_rank();
    for (std::uint64_t first = M::thread_rank() - lane; first < count; first += M::thread_count()) {
      bool const mine = first + lane < count;
      std::uint32_t const vertex = mine ? far[first + lane] : 0;
      std::uint32_t const beyond =
          mine ? static_cast<std::uint32_t>(state.words[vertex] >> 32) - static_cast<std::uint32_t>(old_base) : 0;
      bool const is_settled = beyond < state.delta;  // by the bucket before
      bool const is_near = mine && !is_settled && old_base + beyond - state.base < state.delta;
      bool const stays = mine && !is_settled && !is_near;
      if (warp.any(is_near)) entries += state.push_near(is_near, vertex);
      state.append_far(stays, vertex);
    }
    state.add(entries);
  }
};

/// Takes the predecessors out of the words.
template <class M>
struct sssp_end {
  std::uint32_t vertices;
  std::uint64_t const* words;
  std::uint32_t* predecessors;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      predecessors[v] = static_cast<std::uint32_t>(words[v]);
    }
  }
};

/// What a search did.
struct sssp_outcome {
  bool valid = false;         ///< no error; otherwise the distances and predecessors are not valid
  std::uint64_t buckets = 0;  ///< that had vertices
  std::uint64_t phases = 0;   ///< launches that visited vertices
  std::uint64_t entries = 0;  ///< neighbours that were read; those of a vertex again each time that it was visited
};

/// Searches any number of times, along arcs from a vertex to its neighbours. Uses 28 bytes of memory for each vertex,
/// and 16 for each run of neighbours.
template <class Executor, class Arcs>
class sssp {
  using M = typename Executor::machine;

 public:
  /// `page_elements`, a power of two: how many elements one page of the view holds; the view begins at the edge of a
  /// page. `at_a_time`: how many pages a warp holds, 1 to 32; more than 1 only if there is room for those of all warps
  /// that run together. `warps_max`: no more warps than these use the view.
  sssp(Executor const& run, graph_shape const& shape, Arcs arcs, std::uint32_t page_elements = 512,
       std::uint32_t at_a_time = 32, std::uint32_t warps_max = ~0u)
      : run_(run),
        shape_(shape),
        arcs_(arcs),
        page_shift_(simt::lowest_bit(page_elements)),
        at_a_time_(at_a_time),
        warps_max_(warps_max),
        words_(run.memory(), shape.vertices),
        distances_(run.memory(), shape.vertices),
        listed_(run.memory(), shape.vertices),
        is_far_(run.memory(), shape.vertices / 32 + 1),
        far_(run.memory(), shape.vertices),
        other_far_(run.memory(), shape.vertices),
        runs_(run.memory(), run_of_neighbours::most(shape, page_elements)),
        next_(run.memory(), run_of_neighbours::most(shape, page_elements)),
        shared_(run.memory(), 1) {}

  /// `delta`: the width of a bucket, 1 to 2^31. Throws `refused_input`.
  sssp_outcome operator()(std::uint32_t source, std::uint32_t delta) {
    if (source >= shape_.vertices) {
      throw refused_input("source", std::to_string(source),
                          "is a vertex: less than " + std::to_string(shape_.vertices));
    }
    if (delta == 0 || delta > weights_end) throw refused_input("delta", std::to_string(delta), "is 1 to 2147483648");
    base_ = 0;
    delta_ = delta;
    turn_ = far_turn_ = 0;
    errors_ = {};
    weights_ = {};
    shared_.assign(std::vector<sssp_words>(1));
    sssp_outcome outcome;
    outcome.buckets = 1;
    phase_ = 1;
    start(run_.warps(), sssp_begin<M>{state(), source});
    sssp_words words = finish();
    for (;;) {
      ++phase_;
      sssp_result const& found = words.results[turn_ ^ 1];
      if (found.near_runs != 0) {
        ++outcome.phases;
        outcome.entries += found.near_entries;
        visit(found.near_runs);
        words = finish();
        if (errors_.any() || weights_.count != 0) return outcome;
        continue;
      }
      std::uint64_t const count = words.far_size[far_turn_];
      if (count == 0) break;
      start(run_.warps(), sssp_nearest<M>{state(), count});
      words = finish();
      std::uint64_t const closeness = words.results[turn_ ^ 1].closeness;
      if (closeness == 0) break;
      std::uint64_t const old_base = base_;
      std::uint64_t const nearest = base_ + ~static_cast<std::uint32_t>(closeness);
      base_ = nearest - nearest % delta_;
      std::swap(far_, other_far_);
      far_turn_ ^= 1;
      start(run_.warps(), sssp_next_bucket<M>{state(), old_base, other_far_.data(), count});
      words = finish();
      ++outcome.buckets;
    }
    start(run_.warps(), sssp_end<M>{shape_.vertices, words_.data(), listed_.data()});
    run_.synchronize();
    outcome.valid = true;
    return outcome;
  }

  std::uint64_t const* distances() const { return distances_.data(); }
  std::vector<std::uint64_t> distances_to_host() const { return distances_.to_host(); }
  /// Of each vertex the one before it on a shortest path. The list of phases takes them when a search has ended.
  std::uint32_t const* predecessors() const { return listed_.data(); }
  std::vector<std::uint32_t> predecessors_to_host() const { return listed_.to_host(); }
  /// Of the last search.
  list_errors const& errors() const { return errors_; }
  /// Weights that are not less than `weights_end`, of the last search.
  range_latch const& weights() const { return weights_; }

 private:
  void visit(std::uint64_t runs) {
    std::swap(runs_, next_);
    run_division const division = run_division::of(runs, std::min(run_.warps(), warps_max_), at_a_time_);
    start(division.turns, sssp_visit<M, Arcs>{state(), arcs_, runs_.data(), division});
  }
  template <class Kernel>
  void start(std::uint64_t warps, Kernel const& kernel) const {
    run_(grid_of_warps(run_, warps, warps_max_), kernel);
  }
  /// What the last kernel found, once it has run: in `results[turn_ ^ 1]`.
  sssp_words finish() {
    run_.synchronize();
    sssp_words const words = shared_.to_host()[0];
    sssp_result const& found = words.results[turn_];
    turn_ ^= 1;
    errors_.add(found.errors);
    if (weights_.count == 0) weights_ = found.weights;
    return words;
  }
  sssp_state<M> state() const {
    return {shape_,         page_shift_, delta_,       base_,          words_.data(), distances_.data(), listed_.data(),
            is_far_.data(), far_.data(), next_.data(), shared_.data(), turn_,         far_turn_,         phase_};
  }

  Executor const& run_;
  graph_shape shape_;
  Arcs arcs_;
  std::uint32_t page_shift_;
  std::uint32_t at_a_time_;
  std::uint32_t warps_max_;
  std::uint32_t delta_ = 1;
  std::uint64_t base_ = 0;
  std::uint32_t turn_ = 0, far_turn_ = 0;
  std::uint32_t phase_ = 0;
  apps::device_array<std::uint64_t> words_, distances_;
  apps::device_array<std::uint32_t> listed_, is_far_, far_, other_far_;
  apps::device_array<run_of_neighbours> runs_, next_;
  apps::device_array<sssp_words> shared_;
  list_errors errors_;
  range_latch weights_;
};

}  // namespace forebay::graph
