// SPDX-License-Identifier: Apache-2.0
//! \file
//! Tiles of global memory, staged in the shared memory of a block by all its lanes, so that the next tiles are on their
//! way while the block works on one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/simt/bulk_barrier.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// The instructions that bring the bytes.
namespace stage_policy {
/// Ordinary loads and stores, an element at a time. The block waits for each tile where it asks for it.
struct plain {
  static constexpr std::uint32_t unit_bytes = 0;
};
/// Asynchronous copies of 4 bytes, which go through the L1 cache.
struct async4 {
  static constexpr std::uint32_t unit_bytes = 4;
};
/// Asynchronous copies of 16 bytes, which pass by the L1 cache.
struct async16 {
  static constexpr std::uint32_t unit_bytes = 16;
};
/// Bulk copies, each of a whole run of bytes, by the copy unit of a multiprocessor (compute capability 9.0).
struct bulk {
  static constexpr std::uint32_t unit_bytes = 16;
};
}  // namespace stage_policy

/// The rules of a stager; tests derive from this to replace one by a wrong one.
struct stager_rules {
  /// Whether `wait` waits until the tile has arrived.
  static constexpr bool waits = true;
  /// Whether the barriers' parity changes each time that the buffers have been used once.
  static constexpr bool parity_changes = true;
  /// Whether `release` waits until all lanes have released the tile.
  static constexpr bool release_waits = true;
  /// How many of its buffers it leaves unused, while it has as many tiles under way as there are buffers.
  static constexpr std::uint32_t buffers_missing = 0;
};

/// Stages tiles of up to `tile` elements of type `T` through `stages` buffers. Every lane of a block has one, and all
/// of them call the same functions in the same order:
///
///     T* const to = tiles.acquire();          // a buffer; at most `stages` tiles may be acquired and not released
///     tiles.copy(to, from, count);            // once or several times: what the tile consists of
///     tiles.commit();
///     ...                                     // more tiles, and work on earlier ones
///     T const* const tile = tiles.wait();     // the oldest tile that was not released: it is there, for every lane
///     tiles.release();                        // the tile may be overwritten
///
/// Between `wait` and `release` lanes may also write to the tile. Addresses and lengths are multiples of
/// `Policy::unit_bytes`; the CPU executor checks that. The tiles of one block come from one stager at a time.
template <class M, class Policy, class T, class Rules = stager_rules>
class stager {
 public:
  static constexpr bool is_plain = Policy::unit_bytes == 0;
  static constexpr bool is_bulk = std::is_same_v<Policy, stage_policy::bulk>;
  static constexpr std::uint32_t stages_max = 8;

  /// How much shared memory the stager needs.
  FOREBAY_DEVICE static constexpr std::uint32_t shared_bytes(std::uint32_t tile, std::uint32_t stages) {
    return stages * (stride(tile) * static_cast<std::uint32_t>(sizeof(T)) + (is_bulk ? barrier_bytes : 0));
  }

  /// `shared`: `shared_bytes(tile, stages)` bytes of shared memory, at a multiple of 16 (128 is faster). `stages`: 1 to
  /// `stages_max`.
  FOREBAY_DEVICE stager(typename M::block block, std::byte* shared, std::uint32_t tile, std::uint32_t stages)
      : block_(block),
        buffers_(reinterpret_cast<T*>(shared)),
        barriers_(shared + std::size_t{stages} * stride(tile) * sizeof(T)),
        stride_(stride(tile)),
        stages_(stages - Rules::buffers_missing) {
    if constexpr (is_bulk) {
      for (std::uint32_t i = block_.thread_rank(); i < stages; i += block_.size()) barrier(i).init(1);
      block_.sync();
    }
  }

  FOREBAY_DEVICE T* acquire() const { return buffers_ + std::size_t{filled_} * stride_; }

  /// Brings `count` elements of global memory to `to`, within the tile that was acquired last.
  FOREBAY_DEVICE void copy(T* to, T const* from, std::uint32_t count) { copy_rows(to, 0, from, 0, 1, count); }

  /// Brings `rows` rows of `columns` elements. A row begins `to_pitch` elements after the one before it in the tile,
  /// and `from_pitch` elements after it in global memory.
  FOREBAY_DEVICE void copy_rows(T* to, std::uint32_t to_pitch, T const* from, std::size_t from_pitch,
                                std::uint32_t rows, std::uint32_t columns) {
    if constexpr (is_bulk) {
      if (block_.thread_rank() >= 32) return;
      auto const lanes = M::this_warp();
      auto const row_bytes = static_cast<std::uint32_t>(columns * sizeof(T));
      if (block_.thread_rank() == 0) barrier(filled_).expect(rows * row_bytes);
      // No copy arrives before the barrier expects it.
      lanes.sync();
      std::uint32_t const step = block_.size() < 32 ? block_.size() : 32;
      for (std::uint32_t row = lanes.thread_rank(); row < rows; row += step) {
        barrier(filled_).copy_bulk(to + std::size_t{row} * to_pitch, from + row * from_pitch, row_bytes);
      }
    } else {
      constexpr auto size_of_t = static_cast<std::uint32_t>(sizeof(T));
      std::uint32_t const units = columns * size_of_t / unit_bytes, lanes = block_.size();
      if (units == 0) return;
      // Exact for less than 2^20 lanes: half a unit more keeps the quotient further from whole numbers than it rounds.
      // It takes a third of the instructions of a division of integers.
      float const rows_of_unit = 1.0f / static_cast<float>(units);
      auto const row_of = [&](std::uint32_t unit) {
        return static_cast<std::uint32_t>((static_cast<float>(unit) + 0.5f) * rows_of_unit);
      };
      // Lanes go on as if the rows lay one after the other, so that short rows keep all of them busy.
      auto const place_of = [&](std::uint32_t unit) {
        std::uint32_t const row = rows == 1 ? 0 : row_of(unit), column = unit - row * units;
        return place{column, row * to_pitch * size_of_t + column * unit_bytes,
                     row * from_pitch * size_of_t + std::size_t{column} * unit_bytes};
      };
      std::uint32_t unit = block_.thread_rank();
      place at = place_of(unit);
      place const step = place_of(lanes);
      // From behind a row to the next one. If it goes back, this wraps around, and so does the sum.
      std::uint32_t const to_next = to_pitch * size_of_t - units * unit_bytes;
      std::size_t const from_next = from_pitch * size_of_t - std::size_t{units} * unit_bytes;
      auto const go_on = [&] {
        unit += lanes;
        at.column += step.column;
        at.to += step.to;
        at.from += step.from;
        if (at.column >= units) {
          at.column -= units;
          at.to += to_next;
          at.from += from_next;
        }
      };
      auto* const to_bytes = reinterpret_cast<std::byte*>(to);
      auto const* const from_bytes = reinterpret_cast<std::byte const*>(from);
      if constexpr (is_plain) {
        auto const target = [&] { return reinterpret_cast<T*>(to_bytes + at.to); };
        auto const loaded = [&] { return M::ld(reinterpret_cast<T const*>(from_bytes + at.from)); };
        // A load after a store to shared memory would wait for it, since the compiler does not know that they are
        // apart. So the loads of some steps go first.
        while (unit + (loads_at_once - 1) * lanes < rows * units) {
          T values[loads_at_once];
          T* targets[loads_at_once];
          FOREBAY_UNROLL for (std::uint32_t k = 0; k < loads_at_once; ++k) {
            targets[k] = target();
            values[k] = loaded();
            go_on();
          }
          FOREBAY_UNROLL for (std::uint32_t k = 0; k < loads_at_once; ++k) M::st(targets[k], values[k]);
        }
        for (; unit < rows * units; go_on()) M::st(target(), loaded());
      } else {
        for (; unit < rows * units; go_on()) M::template copy_async<unit_bytes>(to_bytes + at.to, from_bytes + at.from);
      }
    }
  }

  /// All copies into the tile that was acquired last have been started.
  FOREBAY_DEVICE void commit() {
    if constexpr (is_bulk) {
      if (block_.thread_rank() == 0) barrier(filled_).arrive();
    } else if constexpr (!is_plain) {
      M::commit_copies();
    }
    filled_ = next(filled_);
    ++under_way_;
  }

  [[nodiscard]] FOREBAY_DEVICE T* wait() {
    if constexpr (Rules::waits) {
      if constexpr (is_bulk) {
        barrier(taken_).wait(parity_);
      } else {
        if constexpr (!is_plain) wait_for_all_but(under_way_ - 1);
        // Each lane has waited for its own copies.
        block_.sync();
      }
    }
    return buffers_ + std::size_t{taken_} * stride_;
  }

  FOREBAY_DEVICE void release() {
    // The next copy into the buffer comes through another proxy than the lanes' accesses.
    if constexpr (is_bulk) M::fence_before_bulk_copies();
    if constexpr (Rules::release_waits) block_.sync();
    taken_ = next(taken_);
    if (Rules::parity_changes && taken_ == 0) parity_ ^= 1;
    --under_way_;
  }

 private:
  static constexpr std::uint32_t barrier_bytes = sizeof(bulk_barrier<M>);
  static constexpr std::uint32_t unit_bytes = is_plain ? sizeof(T) : Policy::unit_bytes;
  static constexpr std::uint32_t loads_at_once = 4;

  /// Of a unit of a copy, in the tile and in global memory.
  struct place {
    std::uint32_t column;  ///< in units
    std::uint32_t to;      ///< in bytes, as the next one
    std::size_t from;
  };

  /// Elements from one buffer to the next: whole lines of 128 bytes.
  FOREBAY_DEVICE static constexpr std::uint32_t stride(std::uint32_t tile) {
    constexpr std::uint32_t line = 128 / sizeof(T);
    return (tile + line - 1) / line * line;
  }
  FOREBAY_DEVICE std::uint32_t next(std::uint32_t buffer) const { return buffer + 1 == stages_ ? 0 : buffer + 1; }
  FOREBAY_DEVICE bulk_barrier<M>& barrier(std::uint32_t buffer) const {
    return reinterpret_cast<bulk_barrier<M>*>(barriers_)[buffer];
  }

  /// The instruction has the number in its code.
  FOREBAY_DEVICE static void wait_for_all_but(std::uint32_t newest) {
    switch (newest) {
      case 0:
        return M::template wait_copies<0>();
      case 1:
        return M::template wait_copies<1>();
      case 2:
        return M::template wait_copies<2>();
      default:
        // Waits longer than it must with more than four stages.
        return M::template wait_copies<3>();
    }
  }

  typename M::block block_;
  T* buffers_;
  std::byte* barriers_;
  std::uint32_t stride_;
  std::uint32_t stages_;
  std::uint32_t filled_ = 0;     ///< the buffer that the next tile goes to
  std::uint32_t taken_ = 0;      ///< the buffer of the oldest tile
  std::uint32_t under_way_ = 0;  ///< tiles that were committed and not released
  std::uint32_t parity_ = 0;     ///< of the phase that the tile in `taken_` arrives in
};

}  // namespace forebay::simt
