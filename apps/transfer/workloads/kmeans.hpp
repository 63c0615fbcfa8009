// SPDX-License-Identifier: Apache-2.0
//! \file
//! Clusters of points, found in five rounds: each point goes to the nearest centroid, then each centroid to the mean of
//! its points.
#pragma once

#include <mutex>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

struct kmeans_layout {
  static constexpr std::uint32_t clusters = 16;
  static constexpr std::uint32_t features = 64;
  /// Floats of a row in shared memory. Lanes read four features of different rows at a time, from different banks. A
  /// row of sums has the number of points in the place of the padding.
  static constexpr std::uint32_t pitch = features + 4;
};

struct kmeans_nearest {
  float distance;  ///< squared
  std::uint32_t cluster;
};

/// Finds the nearest centroid of each point, and sums the points of each cluster. A block takes a chunk of points at a
/// time, and a tile of points after the other. So the sums depend on the chunks only.
template <class M, class Policy>
struct kmeans_assign_kernel {
  using layout = kmeans_layout;
  /// Larger blocks would leave it too few registers.
  static constexpr unsigned max_threads_per_block = 512;

  float const* points;
  float const* centroids;
  std::int32_t* labels;
  float* chunk_sums;  ///< a row for each chunk, for each cluster
  std::uint32_t chunk_points;
  std::uint32_t chunks;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE static constexpr std::uint32_t stager_bytes(std::uint32_t tile, std::uint32_t stages) {
    return (simt::stager<M, Policy, float>::shared_bytes(tile * layout::pitch, stages) + 15) / 16 * 16;
  }
  /// Behind the tiles: the centroids, the sums of the chunk so far, and the labels of a tile.
  FOREBAY_DEVICE static constexpr std::uint32_t shared_bytes(std::uint32_t tile, std::uint32_t stages) {
    return stager_bytes(tile, stages) + (2 * layout::clusters * layout::pitch + tile) * 4;
  }

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    simt::stager<M, Policy, float> staged(block, shared, tile * layout::pitch, stages);
    float* const centres = reinterpret_cast<float*>(shared + stager_bytes(tile, stages));
    float* const sums = centres + layout::clusters * layout::pitch;
    std::int32_t* const tile_labels = reinterpret_cast<std::int32_t*>(sums + layout::clusters * layout::pitch);

    staged.copy(staged.acquire(), centroids, layout::clusters * layout::features);
    staged.commit();
    float const* const brought = staged.wait();
    for (std::uint32_t i = block.thread_rank(); i < layout::clusters * layout::features; i += block.size()) {
      centres[i / layout::features * layout::pitch + i % layout::features] = brought[i];
    }
    staged.release();

    std::uint32_t const tiles = chunk_points / tile;  // of a chunk
    std::uint32_t const mine = (chunks - 1 - block.rank) / block_count<M>() + 1;
    auto const chunk_of = [&](std::uint64_t item) {
      return block.rank + static_cast<std::uint32_t>(item) / tiles * block_count<M>();
    };
    auto const first_of = [&](std::uint64_t item) {
      return std::size_t{chunk_of(item)} * chunk_points + static_cast<std::uint32_t>(item) % tiles * tile;
    };
    for_each_tile(
        staged, stages, 0, 1, mine * tiles,
        [&](std::uint64_t item) {
          staged.copy_rows(staged.acquire(), layout::pitch, points + first_of(item) * layout::features,
                           layout::features, tile, layout::features);
          staged.commit();
        },
        [&](std::uint64_t item, float const* rows) {
          for (std::uint32_t i = block.thread_rank(); i < tile; i += block.size()) label(rows, centres, i, tile_labels);
          block.sync();
          std::int32_t* const to = labels + first_of(item);
          for (std::uint32_t i = block.thread_rank(); i < tile; i += block.size()) to[i] = tile_labels[i];
          std::uint32_t const part = static_cast<std::uint32_t>(item) % tiles;
          add(rows, tile_labels, sums, chunk_of(item), part == 0, part + 1 == tiles);
        });
  }

 private:
  /// Four lanes share four points, and have four centroids each: so a lane uses a number that it loads four times.
  FOREBAY_DEVICE void label(float const* rows, float const* centres, std::uint32_t unit,
                            std::int32_t* tile_labels) const {
    auto const lanes = M::this_warp();
    std::uint32_t const step = tile / 4;
    auto const* const point = reinterpret_cast<quad const*>(rows + unit / 4 * layout::pitch);
    auto const* const centre = reinterpret_cast<quad const*>(centres + unit % 4 * layout::pitch);
    float distances[4][4] = {};  // of a point, to a centroid
    for (std::uint32_t q = 0; q < layout::features / 4; ++q) {
      quad of_point[4];
      FOREBAY_UNROLL
      for (std::uint32_t p = 0; p < 4; ++p) of_point[p] = point[p * step * (layout::pitch / 4) + q];
      FOREBAY_UNROLL
      for (std::uint32_t c = 0; c < 4; ++c) {
        quad const m = centre[c * layout::pitch + q];
        FOREBAY_UNROLL
        for (std::uint32_t p = 0; p < 4; ++p) {
          FOREBAY_UNROLL
          for (std::uint32_t i = 0; i < 4; ++i) {
            float const difference = of_point[p].of[i] - m.of[i];
            distances[p][c] += difference * difference;
          }
        }
      }
    }
    FOREBAY_UNROLL
    for (std::uint32_t p = 0; p < 4; ++p) {
      kmeans_nearest nearest{distances[p][0], unit % 4};
      FOREBAY_UNROLL
      for (std::uint32_t c = 1; c < 4; ++c) {
        if (distances[p][c] < nearest.distance) nearest = {distances[p][c], unit % 4 + 4 * c};
      }
      FOREBAY_UNROLL
      for (std::uint32_t d = 1; d < 4; d *= 2) {
        kmeans_nearest const other = lanes.shfl(nearest, lanes.thread_rank() ^ d);
        bool const is_first = other.distance == nearest.distance && other.cluster < nearest.cluster;
        if (other.distance < nearest.distance || is_first) nearest = other;
      }
      if (unit % 4 == p) tile_labels[unit / 4 + p * step] = static_cast<std::int32_t>(nearest.cluster);
    }
  }

  /// Adds the points of a tile to the sums of their clusters, in order. A warp takes every so many clusters, and a lane
  /// two of the features.
  FOREBAY_DEVICE void add(float const* rows, std::int32_t const* tile_labels, float* sums, std::uint32_t chunk,
                          bool is_first, bool is_last) const {
    auto const block = M::this_block();
    auto const lanes = M::this_warp();
    std::uint32_t const lane = lanes.thread_rank();
    for (std::uint32_t c = block.thread_rank() / 32; c < layout::clusters; c += block.size() / 32) {
      float* const so_far = sums + c * layout::pitch;
      float low = is_first ? 0 : so_far[lane], high = is_first ? 0 : so_far[32 + lane];
      std::uint32_t count = 0;
      for (std::uint32_t first = 0; first < tile; first += 32) {
        std::uint32_t members = lanes.ballot(tile_labels[first + lane] == static_cast<std::int32_t>(c));
        count += simt::count_bits(members);
        for (; members != 0; members &= members - 1) {
          float const* const row = rows + (first + simt::lowest_bit(members)) * layout::pitch;
          low += row[lane];
          high += row[32 + lane];
        }
      }
      float const counted = static_cast<float>(count) + (is_first || lane >= 4 ? 0 : so_far[layout::features + lane]);
      float* const to = is_last ? chunk_sums + (std::size_t{c} * chunks + chunk) * layout::pitch : so_far;
      to[lane] = low;
      to[32 + lane] = high;
      if (lane < 4) to[layout::features + lane] = counted;
    }
  }
};

/// Sums the chunks of a cluster in order: a block for a cluster, and a lane for a feature.
template <class M, class Policy>
struct kmeans_mean_kernel {
  using layout = kmeans_layout;

  float const* chunk_sums;
  float const* centroids;
  float* next_centroids;
  std::uint32_t chunks;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const rows = tile < chunks ? tile : chunks, feature = block.thread_rank();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), tile * layout::pitch, stages);
    for (std::uint32_t c = block.rank; c < layout::clusters; c += block_count<M>()) {
      double sum = 0, count = 0;
      for_each_tile(
          staged, stages, 0, 1, chunks / rows,
          [&](std::uint64_t item) {
            staged.copy(staged.acquire(), chunk_sums + (std::size_t{c} * chunks + item * rows) * layout::pitch,
                        rows * layout::pitch);
            staged.commit();
          },
          [&](std::uint64_t, float const* partial) {
            if (feature >= layout::features) return;
            for (std::uint32_t i = 0; i < rows; ++i) {
              sum += partial[i * layout::pitch + feature];
              count += partial[i * layout::pitch + layout::features];
            }
          });
      if (feature >= layout::features) continue;
      std::uint32_t const at = c * layout::features + feature;
      // A cluster without points stays where it is.
      next_centroids[at] = count == 0 ? centroids[at] : static_cast<float>(sum / count);
    }
  }
};

class kmeans {
 public:
  static constexpr workload_facts facts{"kmeans", workload_group::application, "points",
                                        "five rounds of k-means, 64 features and 16 clusters"};

  kmeans(problem_size size, launch_shape given) : shape_(completed(given, {528, 256, 128, 2})) {
    constexpr unsigned log2_counts[] = {12, 17, 20, 21, 23, 24};
    count_ = std::uint64_t{1} << log2_counts[static_cast<int>(size)];
    chunk_points_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(512, count_ / 1024));
    require_tile(shape_.tile, 32, chunk_points_, chunk_points_);
    using any_kernel = kmeans_assign_kernel<simt::fiber, simt::stage_policy::bulk>;
    constexpr std::uint32_t threads_min = layout::features, threads_most = any_kernel::max_threads_per_block;
    if (shape_.threads % 32 != 0 || shape_.threads < threads_min || shape_.threads > threads_most) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps, 64 to 512");
    }
    require_shared_bytes(any_kernel::shared_bytes(shape_.tile, shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  /// The labels and the centroids of all rounds: so each round can be verified from the one before it.
  std::vector<buffer> buffers() const {
    return {{"points", count_ * layout::features * sizeof(float), buffer_use::in},
            {"labels", rounds * count_ * sizeof(std::int32_t), buffer_use::out},
            {"centroids", (rounds + 1) * centroid_floats * sizeof(float), buffer_use::in_out},
            {"chunk_sums", layout::clusters * layout::pitch * sizeof(float) * chunks(), buffer_use::scratch}};
  }
  workload_costs costs() const {
    double const n = static_cast<double>(count_), k = layout::clusters, f = layout::features;
    double const blocks = std::min(shape_.blocks, chunks());
    return {.operations = rounds * (3 * n * k * f + n * f),
            .staged_bytes = rounds * (n * f + blocks * k * f + chunks() * k * layout::pitch) * sizeof(float),
            // For four numbers at a time: four points and four centroids of each lane. Then the labels and the sums.
            .shared_accesses = rounds * n * (8 * f / 4 + 2 + k + f)};
  }

  void init(std::uint64_t seed, views host) const {
    float* const points = host.at<float>(0);
    // Points scatter around 16 places. Features are multiples of 2^-9 in [-1, 1).
    std::vector<std::int32_t> places(centroid_floats);
    for (std::uint32_t i = 0; i < centroid_floats; ++i) places[i] = nine_bits(bits_at(seed, 0, i));
    in_parallel(count_, 1 << 10, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t p = begin; p < end; ++p) {
        std::int32_t const* const place = &places[bits_at(seed, 1, p) % layout::clusters * layout::features];
        for (std::uint32_t f = 0; f < layout::features; f += 4) {
          std::uint64_t const bits = bits_at(seed, 2, p * (layout::features / 4) + f / 4);
          for (std::uint32_t i = 0; i < 4; ++i) {
            points[p * layout::features + f + i] =
                static_cast<float>(place[f + i] + nine_bits(bits >> 16 * i)) * 0x1p-9f;
          }
        }
      }
    });
    for (std::uint32_t i = 0; i < centroid_floats; ++i) host.at<float>(2)[i] = points[first_centroid(i)];
  }

  /// If the first centroids are right, and each round follows from the centroids before it, all is right. Of more than
  /// 2^20 points each round looks at that many labels, others than the round before. The means take in all points.
  std::string mismatch(std::uint64_t /*seed*/, views host) const {
    comparison results("centroids");
    for (std::uint32_t i = 0; i < centroid_floats; ++i) {
      results.near(i, host.at<float>(2)[i], host.at<float>(0)[first_centroid(i)], 0);
    }
    std::string text = results.result();
    for (std::uint32_t round = 0; round < rounds && text.empty(); ++round) text = round_mismatch(round, host);
    return text;
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    using assign_kernel = kmeans_assign_kernel<M, Policy>;
    std::uint32_t const stager_bytes = assign_kernel::stager_bytes(shape_.tile, shape_.stages);
    for (std::uint32_t round = 0; round < rounds; ++round) {
      float* const centroids = device.at<float>(2) + round * centroid_floats;
      run({std::min(shape_.blocks, chunks()), shape_.threads, assign_kernel::shared_bytes(shape_.tile, shape_.stages)},
          assign_kernel{device.at<float>(0), centroids, device.at<std::int32_t>(1) + round * count_,
                        device.at<float>(3), chunk_points_, chunks(), shape_.tile, shape_.stages});
      run({std::min(shape_.blocks, layout::clusters), shape_.threads, stager_bytes},
          kmeans_mean_kernel<M, Policy>{device.at<float>(3), centroids, centroids + centroid_floats, chunks(),
                                        shape_.tile, shape_.stages});
    }
  }

 private:
  using layout = kmeans_layout;
  static constexpr std::uint32_t rounds = 5;
  static constexpr std::uint32_t centroid_floats = layout::clusters * layout::features;

  std::uint32_t chunks() const { return static_cast<std::uint32_t>(count_ / chunk_points_); }
  static std::int32_t nine_bits(std::uint64_t bits) { return static_cast<std::int32_t>(bits & 511) - 256; }
  /// Where in `points` is number `i` of the first centroids, which are every 16th part's first point.
  std::uint64_t first_centroid(std::uint32_t i) const {
    return i / layout::features * (count_ / layout::clusters) * layout::features + i % layout::features;
  }

  std::string round_mismatch(std::uint32_t round, views host) const {
    std::int32_t const* const found = host.at<std::int32_t>(1) + round * count_;
    float const* const before = host.at<float>(2) + round * centroid_floats;
    float const* const after = before + centroid_floats;
    std::vector<double> const centres(before, before + centroid_floats);
    std::uint64_t const step = std::max<std::uint64_t>(1, count_ >> 20);
    comparison label_results("labels"), mean_results("centroids");
    std::mutex mutex;
    std::vector<double> sums(centroid_floats), counts(layout::clusters);  // guarded by `mutex`
    in_parallel(count_, 1 << 10, [&](std::uint64_t begin, std::uint64_t end) {
      std::vector<double> part(centroid_floats), part_counts(layout::clusters);
      for (std::uint64_t p = begin; p < end; ++p) {
        float const* const point = host.at<float>(0) + p * layout::features;
        bool const is_cluster = found[p] >= 0 && found[p] < static_cast<std::int32_t>(layout::clusters);
        if (!is_cluster || p % step == round % step || p == 0 || p + 1 == count_) {
          label_results.equal(round * count_ + p, found[p], right_label(point, centres, found[p]));
        }
        if (!is_cluster) continue;
        double* const sum = &part[static_cast<std::uint32_t>(found[p]) * layout::features];
        for (std::uint32_t f = 0; f < layout::features; ++f) sum[f] += point[f];
        part_counts[static_cast<std::uint32_t>(found[p])] += 1;
      }
      std::lock_guard const lock(mutex);
      for (std::uint32_t i = 0; i < centroid_floats; ++i) sums[i] += part[i];
      for (std::uint32_t c = 0; c < layout::clusters; ++c) counts[c] += part_counts[c];
    });
    for (std::uint32_t i = 0; i < centroid_floats; ++i) {
      // All sums are exact: of multiples of 2^-9 up to 1, those of a chunk of 2^14 points fit in a float. So the mean
      // is one division and one conversion, as here.
      double const count = counts[i / layout::features];
      float const expected = count == 0 ? before[i] : static_cast<float>(sums[i] / count);
      mean_results.near((round + 1) * centroid_floats + i, after[i], expected, 0);
    }
    std::string const text = label_results.result();
    return text.empty() ? mean_results.result() : text;
  }

  /// `found`, if no centroid is nearer to the point as far as the kernel can tell; else the nearest one.
  static std::int32_t right_label(float const* point, std::vector<double> const& centres, std::int32_t found) {
    double distances[layout::clusters] = {};  // squared
    std::int32_t nearest = 0;
    for (std::uint32_t c = 0; c < layout::clusters; ++c) {
      for (std::uint32_t f = 0; f < layout::features; ++f) {
        double const difference = point[f] - centres[c * layout::features + f];
        distances[c] += difference * difference;
      }
      if (distances[c] < distances[nearest]) nearest = static_cast<std::int32_t>(c);
    }
    // A squared difference has three roundings (that of the difference counts twice), and goes through 64 additions of
    // terms that are not negative. So the kernel's distances are right to 67 parts in 2^24, and two of them may be
    // wrong either way.
    bool const is_right = found >= 0 && found < static_cast<std::int32_t>(layout::clusters) &&
                          distances[found] <= distances[nearest] * (1 + 2 * 68 * 0x1p-24);
    return is_right ? found : nearest;
  }

  launch_shape shape_;
  std::uint64_t count_;
  std::uint32_t chunk_points_;
};

}  // namespace forebay::transfer
