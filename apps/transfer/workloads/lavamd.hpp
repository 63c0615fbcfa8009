// SPDX-License-Identifier: Apache-2.0
//! \file
//! Forces between particles in a cube of boxes, whose range is one box.
#pragma once

#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// A box of a cube, and those of its 26 neighbours that exist.
struct lavamd_boxes {
  struct range {
    std::uint32_t first, count;
  };
  std::uint32_t side;
  range x, y, z;

  FOREBAY_DEVICE lavamd_boxes(std::uint32_t box, std::uint32_t of_side)
      : side(of_side), x(around(box % side)), y(around(box / side % side)), z(around(box / side / side)) {}

  FOREBAY_DEVICE std::uint32_t count() const { return x.count * y.count * z.count; }
  FOREBAY_DEVICE std::uint32_t box(std::uint32_t i) const {
    std::uint32_t const row = i / x.count;
    return ((z.first + row / y.count) * side + y.first + row % y.count) * side + x.first + i % x.count;
  }

 private:
  FOREBAY_DEVICE range around(std::uint32_t place) const {
    std::uint32_t const first = place == 0 ? 0 : place - 1, last = place + 1 == side ? place : place + 1;
    return {first, last - first + 1};
  }
};

/// Of each particle a box has half the squared distance from the origin, x, y, z and the charge: five rows, which are
/// `particles` long. A particle at the distance d exerts the potential q exp(-a2 d^2 / 2).
struct lavamd_formula {
  static constexpr std::uint32_t rows = 5;
  static constexpr double alpha = 0.5, a2 = 2 * alpha * alpha;
};

/// A block takes a home box at a time. Four lanes share a particle of it: each adds up what every fourth particle of a
/// tile exerts. So a hundred particles fill their warps to 96 %.
template <class M, class Policy>
struct lavamd_kernel {
  static constexpr std::uint32_t shares = 4;
  static constexpr unsigned max_threads_per_block = threads_max;

  double const* boxes;
  double* forces;  ///< potential and force of each particle: 4 numbers
  std::uint32_t side;
  std::uint32_t particles;  ///< of a box
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    auto const lanes = M::this_warp();
    std::uint32_t const at_a_time = block.size() / shares, share = block.thread_rank() % shares;
    std::uint32_t const pieces = particles / tile;
    simt::stager<M, Policy, double> staged(block, &block.template shared<std::byte>(), lavamd_formula::rows * tile,
                                           stages);
    for (std::uint32_t home = block.rank; home < side * side * side; home += block_count<M>()) {
      lavamd_boxes const around(home, side);
      for (std::uint32_t first = 0; first < particles; first += at_a_time) {
        std::uint32_t const mine = first + block.thread_rank() / shares;
        double half_square = 0, x = 0, y = 0, z = 0;
        double potential = 0, force_x = 0, force_y = 0, force_z = 0;
        // The home box comes twice: first for the places of the lanes' particles, and then as one of all boxes.
        for_each_tile(
            staged, stages, 0, 1, (1 + around.count()) * pieces,
            [&](std::uint64_t item) {
              std::uint32_t const i = static_cast<std::uint32_t>(item) / pieces;
              std::uint32_t const piece = static_cast<std::uint32_t>(item) % pieces;
              std::size_t const box = i == 0 ? home : around.box(i - 1);
              staged.copy_rows(staged.acquire(), tile, boxes + box * lavamd_formula::rows * particles + piece * tile,
                               particles, lavamd_formula::rows, tile);
              staged.commit();
            },
            [&](std::uint64_t item, double const* others) {
              if (item < pieces) {
                std::uint32_t const at = mine - static_cast<std::uint32_t>(item) * tile;
                if (at >= tile) return;
                half_square = others[at];
                x = others[tile + at];
                y = others[2 * tile + at];
                z = others[3 * tile + at];
                return;
              }
              if (mine >= particles) return;
              for (std::uint32_t j = share; j < tile; j += shares) {
                double const other_x = others[tile + j], other_y = others[2 * tile + j], other_z = others[3 * tile + j];
                double const half_distance_squared =
                    half_square + others[j] - (x * other_x + y * other_y + z * other_z);
                double const exerted = others[4 * tile + j] * std::exp(-lavamd_formula::a2 * half_distance_squared);
                potential += exerted;
                force_x += exerted * (x - other_x);
                force_y += exerted * (y - other_y);
                force_z += exerted * (z - other_z);
              }
            });
        for (std::uint32_t d = 1; d < shares; d *= 2) {
          std::uint32_t const other = lanes.thread_rank() ^ d;
          potential += lanes.shfl(potential, other);
          force_x += lanes.shfl(force_x, other);
          force_y += lanes.shfl(force_y, other);
          force_z += lanes.shfl(force_z, other);
        }
        if (mine >= particles) continue;
        double const force = share == 1 ? force_x : share == 2 ? force_y : force_z;
        forces[(std::size_t{home} * particles + mine) * shares + share] =
            share == 0 ? potential : 2 * lavamd_formula::a2 * force;
      }
    }
  }
};

class lavamd {
 public:
  static constexpr workload_facts facts{"lavamd", workload_group::application, "particles of a box",
                                        "potential and force of particles, from those of the 27 boxes around them"};

  lavamd(problem_size size, launch_shape given) {
    constexpr std::uint32_t sides[] = {5, 16, 32, 48, 64, 128};
    side_ = sides[static_cast<int>(size)];
    // With a hundred, 4^3 boxes would be as many operations as a tiny problem may have, and hold too little.
    particles_ = size == problem_size::tiny ? 64 : 100;
    launch_shape usual{std::min(box_count(), 16384u), 256, particles_, 2};
    // The tests run it on the CPU executor, which is slow with many threads at a time.
    if (size == problem_size::tiny) usual = {16, 128, particles_, 2};
    shape_ = completed(given, usual);
    require_tile(shape_.tile, 2, particles_, particles_);
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps");
    }
    require_shared_bytes(staged_bytes<double>(rows * shape_.tile, shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const count = particle_count();
    return {{"boxes", count * rows * sizeof(double), buffer_use::in},
            {"forces", count * 4 * sizeof(double), buffer_use::out}};
  }
  workload_costs costs() const {
    double const s = side_, p = particles_, neighbours = std::pow(3 * s - 2, 3), homes = s * s * s;
    double const pairs = neighbours * p * p;
    double const times = std::ceil(p / (shape_.threads / 4));  // that each home box is the home
    // The exponential function counts as one operation. The GPU computes it by about twenty.
    return {.operations = 20 * pairs,
            .staged_bytes = (neighbours + homes) * times * p * rows * sizeof(double),
            .shared_accesses = rows * pairs + 16 * homes * p};
  }

  void init(std::uint64_t seed, views host) const {
    double* const boxes = host.at<double>(0);
    in_parallel(box_count(), 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t box = begin; box < end; ++box) {
        std::uint64_t const corner[] = {box % side_, box / side_ % side_, box / side_ / side_};
        double* const to = boxes + box * rows * particles_;
        for (std::uint32_t i = 0; i < particles_; ++i) {
          std::uint64_t const bits = bits_at(seed, 0, box * particles_ + i);
          double half_square = 0;
          for (int axis = 0; axis < 3; ++axis) {
            double const place = static_cast<double>(corner[axis] << 16 | (bits >> 16 * axis & 0xffff)) * 0x1p-16;
            to[(1 + axis) * particles_ + i] = place;
            half_square += place * place / 2;
          }
          to[i] = half_square;
          to[4 * particles_ + i] = static_cast<double>(bits >> 48 | 0x10000) * 0x1p-17;  // [0.5, 1)
        }
      }
    });
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    comparison results("forces");
    double const* const boxes = host.at<double>(0);
    double const* const found = host.at<double>(1);
    auto const places = sampled_places(particle_count(), 4096, seed);
    in_parallel(places.size(), 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        auto const home = static_cast<std::uint32_t>(places[k] / particles_);
        auto const self = static_cast<std::uint32_t>(places[k] % particles_);
        lavamd_boxes const around(home, side_);
        double sums[4] = {}, sizes[4] = {};  // sizes: of the terms
        for (std::uint32_t i = 0; i < around.count(); ++i) {
          for (std::uint32_t j = 0; j < particles_; ++j) add_term(boxes, home, self, around.box(i), j, sums, sizes);
        }
        // Places are multiples of 2^-16 below 2^7, so the exponents are exact. The exponential functions are right to
        // one ulp, which is two roundings. A term has two more, and so has the factor at the end. Each addition rounds
        // all terms so far: n times here, n / 4 + 2 times there. A term is 1e-6 of the sum, or more.
        double const bound = (2.0 * around.count() * particles_ + 16) * 0x1p-53;
        for (int c = 0; c < 4; ++c)
          results.near(places[k] * 4 + c, found[places[k] * 4 + c], sums[c], bound * sizes[c]);
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads,
         simt::stager<M, Policy, double>::shared_bytes(rows * shape_.tile, shape_.stages)},
        lavamd_kernel<M, Policy>{device.at<double>(0), device.at<double>(1), side_, particles_, shape_.tile,
                                 shape_.stages});
  }

 private:
  static constexpr std::uint32_t rows = lavamd_formula::rows;

  std::uint32_t box_count() const { return side_ * side_ * side_; }
  std::uint64_t particle_count() const { return std::uint64_t{box_count()} * particles_; }

  /// Adds what a particle of another box exerts to `sums`, and its absolute values to `sizes`.
  void add_term(double const* boxes, std::size_t home, std::uint32_t self, std::size_t other_box, std::uint32_t other,
                double (&sums)[4], double (&sizes)[4]) const {
    double const* const here = boxes + home * rows * particles_ + self;
    double const* const there = boxes + other_box * rows * particles_ + other;
    double terms[4] = {1}, distance_squared = 0;
    for (int axis = 1; axis <= 3; ++axis) {
      double const d = here[axis * particles_] - there[axis * particles_];
      distance_squared += d * d;
      terms[axis] = 2 * lavamd_formula::a2 * d;
    }
    double const exerted = there[4 * particles_] * std::exp(-lavamd_formula::a2 * distance_squared / 2);
    for (int c = 0; c < 4; ++c) {
      sums[c] += terms[c] * exerted;
      sizes[c] += std::abs(terms[c]) * exerted;
    }
  }

  launch_shape shape_;
  std::uint32_t side_;
  std::uint32_t particles_;
};

}  // namespace forebay::transfer
