// SPDX-License-Identifier: Apache-2.0
//! \file
//! A step of the search for the structure of a Bayesian network: for several orders of its nodes, the best parents of
//! each node among those that come before it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// What the kernels and the host agree on.
struct bayesian_layout {
  static constexpr std::uint32_t orders = 4;
  /// The length of rows that begin at multiples of 16 bytes.
  FOREBAY_DEVICE static constexpr std::uint32_t padded(std::uint32_t words) { return (words + 3) / 4 * 4; }
  FOREBAY_DEVICE static constexpr std::uint32_t node_of(std::uint32_t candidate, std::uint32_t of) {
    return candidate < of ? candidate : candidate + 1;
  }
};

/// A set of parents that was chosen for a node. If none was, any set is better.
struct bayesian_choice {
  float score = std::numeric_limits<float>::lowest();
  std::uint32_t set = ~0u;

  FOREBAY_DEVICE void improve(bayesian_choice const& other) {
    if (other.score > score || (other.score == score && other.set < set)) *this = other;
  }
};

/// Finds the best set of each part of the sets of each node, for all orders. What a block stages for a part are the
/// positions, then its tiles.
template <class M, class Policy>
struct bayesian_search_kernel {
  static constexpr unsigned max_threads_per_block = threads_max;
  static constexpr std::uint32_t orders = bayesian_layout::orders;

  std::uint32_t const* scores;
  std::uint32_t const* members;
  std::uint32_t const* positions;
  bayesian_choice* best_of_parts;
  std::uint32_t nodes;
  std::uint32_t sets;
  std::uint32_t parts;
  std::uint32_t tiles;  ///< of a part
  std::uint32_t tile;   ///< sets
  std::uint32_t words;  ///< of a staged tile
  std::uint32_t stages;

  struct place {
    std::uint32_t index;  ///< of the part, over all nodes
    std::uint32_t node, part;
    std::uint32_t step;  ///< 0: the positions
    std::uint32_t set;   ///< the tile's first one; may be past the end
  };

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    simt::stager<M, Policy, std::uint32_t> staged(block, shared, words, stages);
    auto* const before = reinterpret_cast<std::uint32_t*>(shared + staged.shared_bytes(words, stages));
    auto* const best_of_warps = reinterpret_cast<bayesian_choice*>(before + bayesian_layout::padded(nodes));
    std::uint32_t const all = nodes * parts;
    std::uint32_t const mine = all > block.rank ? (all - 1 - block.rank) / block_count<M>() + 1 : 0;
    place ahead = first_of(block.rank), now = ahead;
    bayesian_choice best[orders];
    for_each_tile(
        staged, stages, 0, 1, std::uint64_t{mine} * (1 + tiles),
        [&](std::uint64_t) {
          std::uint32_t* const to = staged.acquire();
          if (ahead.step == 0) {
            staged.copy(to, positions, orders * bayesian_layout::padded(nodes));
          } else if (ahead.set < sets) {
            std::uint32_t const count = bayesian_layout::padded(sets_at(ahead));
            staged.copy(to, scores + std::size_t{ahead.node} * bayesian_layout::padded(sets) + ahead.set, count);
            staged.copy(to + tile, members + ahead.set, count);
          }
          staged.commit();
          advance(ahead);
        },
        [&](std::uint64_t, std::uint32_t const* from) {
          if (now.step == 0) {
            find_those_before(now.node, from, before);
            FOREBAY_UNROLL
            for (std::uint32_t o = 0; o < orders; ++o) best[o] = {};
          } else if (now.set < sets) {
            look_at_tile(now, from, before, best);
          }
          if (now.step == tiles) store(now, best, best_of_warps);
          advance(now);
        });
  }
  FOREBAY_DEVICE place first_of(std::uint32_t index) const {
    return {index, index % nodes, index / nodes, 0, index / nodes * tiles * tile};
  }
  FOREBAY_DEVICE void advance(place& now) const {
    if (now.step != 0) now.set += tile;
    if (++now.step > tiles) now = first_of(now.index + block_count<M>());
  }
  FOREBAY_DEVICE std::uint32_t sets_at(place const& here) const {
    return sets - here.set < tile ? sets - here.set : tile;
  }
  /// Bit `o` of a candidate's word says whether it comes before `node` in order `o`. The last word, which stands for
  /// members that are missing, is all ones.
  FOREBAY_DEVICE void find_those_before(std::uint32_t node, std::uint32_t const* from, std::uint32_t* before) const {
    auto const block = M::this_block();
    for (std::uint32_t c = block.thread_rank(); c < nodes; c += block.size()) {
      std::uint32_t bits = c + 1 == nodes ? ~0u : 0;
      for (std::uint32_t o = 0; c + 1 < nodes && o < orders; ++o) {
        std::uint32_t const* const position = from + o * bayesian_layout::padded(nodes);
        bits |= (position[bayesian_layout::node_of(c, node)] < position[node] ? 1u : 0u) << o;
      }
      before[c] = bits;
    }
  }
  FOREBAY_DEVICE void look_at_tile(place const& here, std::uint32_t const* from, std::uint32_t const* before,
                                   bayesian_choice (&best)[orders]) const {
    auto const block = M::this_block();
    std::uint32_t const count = sets_at(here);
    for (std::uint32_t i = block.thread_rank(); i < count; i += block.size()) {
      std::uint32_t const bytes = from[tile + i];
      // Neighbours differ in the first member, so the other words come to all lanes at once.
      std::uint32_t const allowed =
          before[bytes & 255] & before[bytes >> 8 & 255] & before[bytes >> 16 & 255] & before[bytes >> 24];
      float score;
      memcpy(&score, from + i, sizeof score);
      FOREBAY_UNROLL
      for (std::uint32_t o = 0; o < orders; ++o) {
        // Numbers ascend, so the first of equal scores stays.
        if ((allowed & 1u << o) != 0 && score > best[o].score) best[o] = {score, here.set + i};
      }
    }
  }
  /// Stores the best of all threads.
  FOREBAY_DEVICE void store(place const& here, bayesian_choice const (&best)[orders],
                            bayesian_choice* best_of_warps) const {
    auto const block = M::this_block();
    auto const lanes = M::this_warp();
    FOREBAY_UNROLL
    for (std::uint32_t o = 0; o < orders; ++o) {
      bayesian_choice of_warp = best[o];
      for (std::uint32_t d = 16; d != 0; d /= 2) {
        of_warp.improve(lanes.shfl(of_warp, lanes.thread_rank() ^ d));
      }
      if (lanes.thread_rank() == 0) best_of_warps[block.thread_rank() / 32 * orders + o] = of_warp;
    }
    block.sync();
    if (block.thread_rank() >= orders) return;
    bayesian_choice of_block = best_of_warps[block.thread_rank()];
    for (std::uint32_t warp = 1; warp < block.size() / 32; ++warp) {
      of_block.improve(best_of_warps[warp * orders + block.thread_rank()]);
    }
    best_of_parts[(std::size_t{here.node} * parts + here.part) * orders + block.thread_rank()] = of_block;
  }
};

/// Finds the best of the parts of each node.
template <class M, class Policy>
struct bayesian_pick_kernel {
  bayesian_choice const* best_of_parts;
  float* best_score;
  std::uint32_t* best_set;
  std::uint32_t nodes;
  std::uint32_t parts;

  static constexpr std::uint32_t orders = bayesian_layout::orders;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, bayesian_choice> staged(block, &block.template shared<std::byte>(), parts * orders, 2);
    for_each_tile(
        staged, 2, block.rank, block_count<M>(), nodes,
        [&](std::uint64_t node) {
          staged.copy(staged.acquire(), best_of_parts + node * parts * orders, parts * orders);
          staged.commit();
        },
        [&](std::uint64_t node, bayesian_choice const* from) {
          std::uint32_t const order = block.thread_rank();
          if (order >= orders) return;
          bayesian_choice best = from[order];
          for (std::uint32_t part = 1; part < parts; ++part) best.improve(from[part * orders + order]);
          best_score[order * nodes + node] = best.score;
          best_set[order * nodes + node] = best.set;
        });
  }
};

/// A node's candidates are the other nodes, by number. A set of parents has up to four of them. Sets have numbers too:
/// smaller sets first, and sets of one size by their greatest member, then by the next one. For each node there is a
/// table with the score of each set, here random numbers. The score of an order of the nodes is the sum of the scores
/// of the best sets. Of equal scores the lowest number wins, so results are exact. Small has 50 nodes and mega 125, as
/// the study has, which gives 0.23 and 9.7 million sets for each node: about its figures of 250,000 and 10 million.
class bayesian {
 public:
  static constexpr workload_facts facts{"bayesian", workload_group::application, "sets of parents",
                                        "the best parents of each node of a Bayesian network, for four orders"};

  bayesian(problem_size size, launch_shape given)
      : shape_(completed(given, {size == problem_size::tiny ? 1024u : 4096u, 256, 2048, 3})) {
    constexpr std::uint32_t nodes[] = {24, 50, 72, 88, 110, 125};
    nodes_ = nodes[static_cast<int>(size)];
    for (std::uint32_t members = 0; members <= members_most; ++members) sets_ += choose(nodes_ - 1, members);
    require_tile(shape_.tile, 4, shape_.tile, 16384);
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps");
    }
    // A block takes at least four tiles, so that it does more than to reduce its results.
    std::uint32_t const tiles = (sets_ + shape_.tile - 1) / shape_.tile;
    parts_ = std::clamp(shape_.blocks / nodes_, 1u, std::min((tiles + 3) / 4, 64u));
    tiles_ = (tiles + parts_ - 1) / parts_;
    require_shared_bytes(staged_bytes<std::uint32_t>(tile_words(), shape_.stages) + own_bytes());
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const results = std::uint64_t{orders} * nodes_;
    return {{"scores", nodes_ * std::uint64_t{padded(sets_)} * sizeof(float), buffer_use::in},
            {"members", std::uint64_t{padded(sets_)} * sizeof(std::uint32_t), buffer_use::in},
            {"positions", std::uint64_t{orders} * padded(nodes_) * sizeof(std::uint32_t), buffer_use::in},
            {"best_of_parts", results * parts_ * sizeof(choice), buffer_use::scratch},
            {"best_score", results * sizeof(float), buffer_use::out},
            {"best_set", results * sizeof(std::uint32_t), buffer_use::out}};
  }
  workload_costs costs() const {
    double const sets = sets_, looked_at = sets * nodes_;
    double const results = 1.0 * orders * nodes_ * parts_, positions = results * padded(nodes_);
    // Three conjunctions for a set; for each order a test and a comparison.
    return {.operations = looked_at * (3 + 2 * orders),
            .staged_bytes = 8 * looked_at + 4 * positions + 8 * results,
            .shared_accesses = 6 * looked_at + 2 * positions + results};
  }

  void init(std::uint64_t seed, views host) const {
    auto* const scores = host.at<std::uint32_t>(0);
    in_parallel(nodes_ * std::uint64_t{padded(sets_)}, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        scores[i] = std::bit_cast<std::uint32_t>(float_at(seed, 0, i) - 1.0f);  // the logarithm of a probability
      }
    });
    auto* const members = host.at<std::uint32_t>(1);
    std::fill_n(members, padded(sets_), ~0u);
    std::vector<std::uint32_t> candidates;
    for (std::uint32_t c = 0; c + 1 < nodes_; ++c) candidates.push_back(c);
    for_each_set(candidates, [&](std::uint32_t set, std::uint32_t bytes) { members[set] = bytes; });
    auto* positions = host.at<std::uint32_t>(2);
    for (std::uint32_t order = 0; order < orders; ++order, positions += padded(nodes_)) {
      for (std::uint32_t i = 0; i < padded(nodes_); ++i) positions[i] = i;
      for (std::uint32_t i = nodes_ - 1; i > 0; --i) {
        std::swap(positions[i], positions[bits_at(seed, 1, order * 1024 + i) % (i + 1)]);
      }
    }
  }

  /// Exact, for all orders and nodes; for samples of them if there are many sets.
  std::string mismatch(std::uint64_t seed, views host) const {
    comparison scores("best_score"), sets("best_set");
    std::uint64_t const checks = std::max<std::uint64_t>(16, (1u << 28) / sets_);
    auto const places = sampled_places(orders * nodes_, checks, seed);
    in_parallel(places.size(), 1, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        auto const order = static_cast<std::uint32_t>(places[k] / nodes_);
        choice const expected = best_parents(host, order, static_cast<std::uint32_t>(places[k] % nodes_));
        scores.equal(places[k], host.at<float>(4)[places[k]], expected.score);
        sets.equal(places[k], host.at<std::uint32_t>(5)[places[k]], expected.set);
      }
    });
    return scores.result().empty() ? sets.result() : scores.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({std::min(shape_.blocks, nodes_ * parts_), shape_.threads,
         simt::stager<M, Policy, std::uint32_t>::shared_bytes(tile_words(), shape_.stages) + own_bytes()},
        bayesian_search_kernel<M, Policy>{device.at<std::uint32_t>(0), device.at<std::uint32_t>(1),
                                          device.at<std::uint32_t>(2), device.at<choice>(3), nodes_, sets_, parts_,
                                          tiles_, shape_.tile, tile_words(), shape_.stages});
    run({std::min(shape_.blocks, nodes_), 32, simt::stager<M, Policy, choice>::shared_bytes(parts_ * orders, 2)},
        bayesian_pick_kernel<M, Policy>{device.at<choice>(3), device.at<float>(4), device.at<std::uint32_t>(5), nodes_,
                                        parts_});
  }

 private:
  static constexpr std::uint32_t members_most = 4;
  using choice = bayesian_choice;
  static constexpr std::uint32_t orders = bayesian_layout::orders;
  static std::uint32_t padded(std::uint32_t words) { return bayesian_layout::padded(words); }

  /// A tile of scores and of the sets' members, or the positions.
  std::uint32_t tile_words() const { return std::max(2 * shape_.tile, orders * padded(nodes_)); }
  /// Shared memory behind that of the stager.
  std::uint32_t own_bytes() const {
    return padded(nodes_) * 4 + shape_.threads / 32 * orders * static_cast<std::uint32_t>(sizeof(choice));
  }

  /// How many sets of `count` of `candidates` there are.
  static std::uint32_t choose(std::uint32_t candidates, std::uint32_t count) {
    if (count == 0) return 1;
    std::uint64_t sets = candidates;
    for (std::uint32_t i = 1; i < count; ++i) sets = sets * (candidates - i) / (i + 1);
    return static_cast<std::uint32_t>(sets);
  }
  /// Calls `visit` with the number of each set of `candidates`, which ascend, and with its members: a byte each. A byte
  /// for a member that is missing is `nodes_ - 1`.
  template <class Visit>
  void for_each_set(std::vector<std::uint32_t> const& candidates, Visit&& visit) const {
    std::uint32_t first = 0;
    for (std::uint32_t members = 0; members <= members_most; ++members) {
      add_members(candidates, candidates.size(), members, first, (nodes_ - 1) * 0x01010101u, visit);
      first += choose(nodes_ - 1, members);
    }
  }
  /// Sets with `missing` more of the first `count` candidates.
  template <class Visit>
  void add_members(std::vector<std::uint32_t> const& candidates, std::size_t count, std::uint32_t missing,
                   std::uint32_t set, std::uint32_t bytes, Visit&& visit) const {
    if (missing == 0) {
      visit(set, bytes);
      return;
    }
    std::uint32_t const shift = 8 * (missing - 1);
    for (std::size_t i = missing - 1; i < count; ++i) {
      std::uint32_t const with = (bytes & ~(0xffu << shift)) | candidates[i] << shift;
      add_members(candidates, i, missing - 1, set + choose(candidates[i], missing), with, visit);
    }
  }
  choice best_parents(views host, std::uint32_t order, std::uint32_t node) const {
    auto const* const scores = host.at<std::uint32_t>(0) + std::size_t{node} * padded(sets_);
    auto const* const positions = host.at<std::uint32_t>(2) + order * padded(nodes_);
    std::vector<std::uint32_t> candidates;
    for (std::uint32_t c = 0; c + 1 < nodes_; ++c) {
      if (positions[bayesian_layout::node_of(c, node)] < positions[node]) candidates.push_back(c);
    }
    choice best;
    for_each_set(candidates,
                 [&](std::uint32_t set, std::uint32_t) { best.improve({std::bit_cast<float>(scores[set]), set}); });
    return best;
  }

  launch_shape shape_;
  std::uint32_t nodes_;
  std::uint32_t sets_ = 0;
  std::uint32_t parts_;  ///< of the sets of a node, for a block each
  std::uint32_t tiles_;  ///< of a part
};

}  // namespace forebay::transfer
