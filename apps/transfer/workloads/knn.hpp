// SPDX-License-Identifier: Apache-2.0
//! \file
//! The nearest neighbours of each of many points among many others.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// The squares of the distances of all queries from all references. A block takes an area after the other, and of an
/// area's points `tile` coordinates after the other.
template <class M, class Policy>
struct knn_measure_kernel {
  static constexpr unsigned max_threads_per_block = 512;
  static constexpr std::uint32_t reach = 8;  ///< a thread has as many queries by as many references of an area
  static constexpr std::uint32_t area_references = 128;

  float const* queries;
  float const* references;
  float* squares;
  std::uint32_t points;
  std::uint32_t coordinates;
  std::uint32_t tile;
  std::uint32_t stages;

  struct place {
    std::uint32_t area;
    std::uint32_t query, reference;  ///< the area's first ones
    std::uint32_t coordinate;
  };

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    // A warp has 32 queries and 64 references of an area, and a lane the queries y, y + 4, ... and the references x,
    // x + 8, ... So the quads that a warp loads at a time are those of eight points in a row, or the same.
    std::uint32_t const lane = block.thread_rank() % 32, warp = block.thread_rank() / 32;
    std::uint32_t const x = warp % 2 * 64 + lane % 8, y = warp / 2 * 32 + lane / 8;
    std::uint32_t const rows = area_queries(block.size()), step = pitch(tile);
    std::uint32_t const areas = points / rows * (points / area_references);
    std::uint32_t const mine = areas > block.rank ? (areas - 1 - block.rank) / block_count<M>() + 1 : 0;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), tile_floats(block.size(), tile),
                                          stages);
    float sums[reach][reach] = {};
    place ahead = first_of(block.rank), now = ahead;
    for_each_tile(
        staged, stages, 0, 1, std::uint64_t{mine} * (coordinates / tile),
        [&](std::uint64_t) {
          float* const to = staged.acquire();
          staged.copy_rows(to, step, queries + std::size_t{ahead.query} * coordinates + ahead.coordinate, coordinates,
                           rows, tile);
          staged.copy_rows(to + rows * step, step,
                           references + std::size_t{ahead.reference} * coordinates + ahead.coordinate, coordinates,
                           area_references, tile);
          staged.commit();
          advance(ahead);
        },
        [&](std::uint64_t, float const* from) {
          for (std::uint32_t k = 0; k < tile; k += 4) {
            add(sums, from + y * step + k, from + (rows + x) * step + k, step);
          }
          if (now.coordinate + tile == coordinates) store(sums, now.query + y, now.reference + x);
          advance(now);
        });
  }
  FOREBAY_DEVICE static constexpr std::uint32_t area_queries(std::uint32_t threads) { return threads / 2; }
  /// From a point's coordinates to the next one's in a tile: an odd number of quads, so that those of eight points in a
  /// row are in different banks.
  FOREBAY_DEVICE static constexpr std::uint32_t pitch(std::uint32_t tile) { return tile | 4; }
  FOREBAY_DEVICE static constexpr std::uint32_t tile_floats(std::uint32_t threads, std::uint32_t tile) {
    return (area_queries(threads) + area_references) * pitch(tile);
  }
  FOREBAY_DEVICE place first_of(std::uint32_t area) const {
    std::uint32_t const across = points / area_references;
    return {area, area / across * area_queries(M::this_block().size()), area % across * area_references, 0};
  }
  FOREBAY_DEVICE void advance(place& now) const {
    now.coordinate += tile;
    if (now.coordinate == coordinates) now = first_of(now.area + block_count<M>());
  }
  /// Adds the squares for four coordinates.
  FOREBAY_DEVICE static void add(float (&sums)[reach][reach], float const* query, float const* reference,
                                 std::uint32_t step) {
    quad a[reach];
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < reach; ++i) a[i] = quad::at(query + i * 4 * step);
    FOREBAY_UNROLL
    for (std::uint32_t j = 0; j < reach; ++j) {
      quad const b = quad::at(reference + j * 8 * step);
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < reach; ++i) {
        FOREBAY_UNROLL
        for (std::uint32_t d = 0; d < 4; ++d) {
          float const difference = a[i].of[d] - b.of[d];
          sums[i][j] += difference * difference;
        }
      }
    }
  }
  /// Stores the sums, and begins new ones.
  FOREBAY_DEVICE void store(float (&sums)[reach][reach], std::size_t query, std::uint32_t reference) const {
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < reach; ++i) {
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < reach; ++j) {
        squares[(query + 4 * i) * points + reference + 8 * j] = sums[i][j];
        sums[i][j] = 0;
      }
    }
  }
};

/// The least squares of each query, and their roots. A warp has a query, and a lane for each neighbour.
template <class M, class Policy>
struct knn_select_kernel {
  float const* squares;
  float* distance;
  std::uint32_t* index;
  std::uint32_t points;
  std::uint32_t piece;  ///< of the squares of a query, for each warp
  std::uint32_t stages;

  struct place {
    std::uint32_t query, reference;
  };
  struct neighbour {
    float square;
    std::uint32_t index;
  };
  static constexpr std::uint32_t neighbours = 20;
  static constexpr float far = std::numeric_limits<float>::max();

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    auto const lanes = M::this_warp();
    std::uint32_t const lane = lanes.thread_rank(), warp = block.thread_rank() / 32, warps = block.size() / 32;
    std::uint32_t const groups = points / warps;
    std::uint32_t const mine = groups > block.rank ? (groups - 1 - block.rank) / block_count<M>() + 1 : 0;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), warps * piece, stages);
    place ahead{block.rank * warps, 0}, now = ahead;
    neighbour list{far, ~0u};  // a lane has one of the 32 nearest so far, in ascending order
    for_each_tile(
        staged, stages, 0, 1, std::uint64_t{mine} * (points / piece),
        [&](std::uint64_t) {
          float const* const from = squares + std::size_t{ahead.query} * points + ahead.reference;
          staged.copy_rows(staged.acquire(), piece, from, points, warps, piece);
          staged.commit();
          advance(ahead);
        },
        [&](std::uint64_t, float const* from) {
          if (now.reference == 0) list = {far, ~0u};
          insert(list, from + warp * piece, now.reference);
          if (now.reference + piece == points && lane < neighbours) {
            std::size_t const at = std::size_t{now.query + warp} * neighbours + lane;
            distance[at] = std::sqrt(list.square);
            index[at] = list.index;
          }
          advance(now);
        });
  }
  FOREBAY_DEVICE void advance(place& now) const {
    now.reference += piece;
    if (now.reference != points) return;
    now = {now.query + block_count<M>() * (M::this_block().size() / 32), 0};
  }
  /// Inserts what is nearer than the last neighbour. Squares come in the order of their references, the first of
  /// which is `first`. So one goes behind its equals.
  FOREBAY_DEVICE void insert(neighbour& list, float const* from, std::uint32_t first) const {
    auto const lanes = M::this_warp();
    std::uint32_t const lane = lanes.thread_rank();
    float last = lanes.shfl(list.square, neighbours - 1);
    for (std::uint32_t i = 0; i < piece; i += 32) {
      std::uint32_t nearer = lanes.ballot(from[i + lane] < last);
      if (nearer == 0) continue;
      for (; nearer != 0; nearer &= nearer - 1) {
        std::uint32_t const r = i + simt::lowest_bit(nearer);
        float const square = from[r];
        neighbour const before = lanes.shfl(list, lane == 0 ? 0 : lane - 1);
        if (square >= list.square) continue;
        list = lane == 0 || square >= before.square ? neighbour{square, first + r} : before;
      }
      last = lanes.shfl(list.square, neighbours - 1);
    }
  }
};

/// One kernel computes the squared distances of all queries from all references, another one finds the 20 least ones of
/// each query. Of equal distances the lower index comes first.
class knn {
 public:
  static constexpr workload_facts facts{"knn", workload_group::application, "coordinates of a point",
                                        "the 20 nearest of as many references as queries, for each query"};

  /// At tiny, few blocks: the CPU executor is slow if many threads that use collectives are under way.
  knn(problem_size size, launch_shape given)
      : shape_(completed(given, {size == problem_size::tiny ? 16u : 1024u, 256, 32, 3})) {
    constexpr std::uint32_t points[] = {256, 2048, 8192, 12288, 16384, 32768};
    points_ = points[static_cast<int>(size)];
    coordinates_ = size == problem_size::tiny || size == problem_size::mega ? 512 : 128;
    require_tile(shape_.tile, 4, coordinates_, 128);
    if (shape_.threads % 64 != 0 || shape_.threads > measure::max_threads_per_block || points_ % area_queries() != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be 64, 128, 256 or 512");
    }
    require_shared_bytes(staged_bytes<float>(std::max(measure_floats(), select_floats()), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const n = points_, bytes = n * coordinates_ * sizeof(float);
    return {{"queries", bytes, buffer_use::in},
            {"references", bytes, buffer_use::in},
            {"squares", n * n * sizeof(float), buffer_use::scratch},
            {"distance", n * neighbours * sizeof(float), buffer_use::out},
            {"index", n * neighbours * sizeof(std::uint32_t), buffer_use::out}};
  }
  workload_costs costs() const {
    double const n = points_, pairs = n * n, terms = pairs * coordinates_;
    return {.operations = repetitions * (3 * terms + pairs),
            .staged_bytes = repetitions * sizeof(float) * (terms / area_queries() + terms / area_references + pairs),
            // A thread loads 16 quads for 64 pairs and four coordinates.
            .shared_accesses = repetitions * (terms / 16 + pairs)};
  }
  void init(std::uint64_t seed, views host) const {
    for (unsigned i = 0; i < 2; ++i) fill_floats(host.at<float>(i), std::uint64_t{points_} * coordinates_, seed, i);
  }

  /// All queries at tiny, elsewhere samples.
  std::string mismatch(std::uint64_t seed, views host) const {
    comparison distances("distance"), indices("index");
    std::uint64_t const checks = std::max<std::uint64_t>(32, (1u << 29) / (std::uint64_t{points_} * coordinates_));
    auto const queries = sampled_places(points_, checks, seed);
    in_parallel(queries.size(), 1, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) compare(queries[k], host, distances, indices);
    });
    return indices.result().empty() ? distances.result() : indices.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    using stager = simt::stager<M, Policy, float>;
    std::uint32_t const threads = shape_.threads, stages = shape_.stages;
    std::uint32_t const areas = points_ / area_queries() * (points_ / area_references),
                        groups = points_ / (threads / 32);
    for (int i = 0; i < repetitions; ++i) {
      run({std::min(shape_.blocks, areas), threads, stager::shared_bytes(measure_floats(), stages)},
          knn_measure_kernel<M, Policy>{device.at<float>(0), device.at<float>(1), device.at<float>(2), points_,
                                        coordinates_, shape_.tile, stages});
      run({std::min(shape_.blocks, groups), threads, stager::shared_bytes(select_floats(), stages)},
          knn_select_kernel<M, Policy>{device.at<float>(2), device.at<float>(3), device.at<std::uint32_t>(4), points_,
                                       piece(), stages});
    }
  }

 private:
  using measure = knn_measure_kernel<simt::fiber, simt::stage_policy::plain>;
  using select = knn_select_kernel<simt::fiber, simt::stage_policy::plain>;
  static constexpr std::uint32_t neighbours = select::neighbours, area_references = measure::area_references;
  /// How often all of it is done. The published workload does it a hundred times, with the same result each time.
  static constexpr int repetitions = 1;

  std::uint32_t piece() const { return std::min(512u, points_); }
  std::uint32_t area_queries() const { return measure::area_queries(shape_.threads); }
  std::uint32_t measure_floats() const { return measure::tile_floats(shape_.threads, shape_.tile); }
  std::uint32_t select_floats() const { return shape_.threads / 32 * piece(); }

  /// Checks the neighbours that were found for a query against the exact ones.
  void compare(std::uint64_t query, views host, comparison& distances, comparison& indices) const {
    float const* const from = host.at<float>(0) + query * coordinates_;
    std::vector<double> exact(points_);
    std::vector<std::uint32_t> order(points_);
    for (std::uint32_t r = 0; r < points_; ++r) {
      float const* const to = host.at<float>(1) + std::uint64_t{r} * coordinates_;
      double sum = 0;
      for (std::uint32_t d = 0; d < coordinates_; ++d) sum += (double{from[d]} - to[d]) * (double{from[d]} - to[d]);
      exact[r] = std::sqrt(sum);
      order[r] = r;
    }
    std::partial_sort(order.begin(), order.begin() + neighbours, order.end(),
                      [&](std::uint32_t a, std::uint32_t b) { return exact[a] < exact[b]; });
    // A term's difference and square, the additions to it and the root each round by at most 2^-24 of what is there,
    // and the root halves the error of what came before. A term is about 1 / coordinates of the square.
    double const bound = (coordinates_ / 2.0 + 4) * 0x1p-24;
    std::vector<bool> chosen(points_);
    for (std::uint32_t k = 0; k < neighbours; ++k) {
      std::uint64_t const at = query * neighbours + k;
      float const* const distance = host.at<float>(3) + at;
      std::uint32_t const index = host.at<std::uint32_t>(4)[at];
      if (index >= points_ || chosen[index]) {
        auto const missing = std::find_if(order.begin(), order.end(), [&](std::uint32_t r) { return !chosen[r]; });
        return indices.equal(at, index, *missing);
      }
      chosen[index] = true;
      // If no distance is wrong by more than the bound, then neither is the least one, nor the next one, and so on. The
      // neighbour that is found there may again be as much off.
      if (!(std::abs(exact[index] - exact[order[k]]) <= 2 * bound * exact[order[k]])) {
        return indices.equal(at, index, order[k]);
      }
      distances.near(at, *distance, exact[index], bound * exact[index]);
      if (k != 0 && *distance < distance[-1]) distances.near(at, *distance, distance[-1], 0);
    }
  }

  launch_shape shape_;
  std::uint32_t points_;
  std::uint32_t coordinates_;
};

}  // namespace forebay::transfer
