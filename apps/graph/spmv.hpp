// SPDX-License-Identifier: Apache-2.0
//! \file
//! Sparse matrix times dense vector: a CSR matrix whose columns and values are arrays behind a view, everything else in
//! plain memory.
//!
//! Each warp has an equal share of consecutive entries, whatever rows they belong to. It asks for each page of them
//! once, and for several pages at a time. A page costs latency: that of the lookup, and that of the read where it
//! misses. Pinning a page also invalidates the other data in the multiprocessor's L1 cache. The warp multiplies a tile
//! of entries into shared memory, then adds up rows: a few lanes for each short row, all lanes together for a long one.
//! A row that goes on in the next warp's share leaves its sum so far in a carry, which a second kernel adds. There are
//! no atomics, so the result does not depend on the order in which warps run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "apps/common/device_array.hpp"
#include "apps/common/failure_latch.hpp"
#include "apps/graph/csr_rows.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// The part of a row that a warp leaves to others: the sum so far of the row in which its share ends.
struct spmv_carry {
  std::uint32_t row;
  float sum;
};

/// How a warp asks for the pages of its share.
struct spmv_paging {
  std::uint32_t window = 1;           ///< pages of columns, and of values, that it asks for at a time; 1 to 32
  std::uint32_t entries = 1024;       ///< of a page
  std::uint64_t prefetch_shares = 0;  ///< it prefetches what the share so many after its own will need; 0: it does not
  std::uint32_t warps_max = ~0u;      ///< of a `Bounded` product: no more warps use the views; at least 1
};

/// Warps of 32 lanes. `Tile`: how many entries a warp has in shared memory at a time, a multiple of 256. `RowLanes`:
/// how many lanes add up a short row, a power of two. `Bounded`: a warp may have several shares, which takes registers.
template <class M, class Columns, class Values, std::uint32_t Tile, std::uint32_t RowLanes, unsigned ThreadsMax = 0,
          bool Bounded = false>
struct spmv_multiply {
  static_assert(Tile % 256 == 0 && 32 % RowLanes == 0);
  /// 0: as many registers as the compiler likes.
  static constexpr unsigned max_threads_per_block = ThreadsMax;
  static constexpr std::uint32_t warps_per_block = 8;
  /// A row of more entries than this, within a tile, is added up by the whole warp.
  static constexpr std::uint32_t short_entries_max = 64;
  struct block_memory {
    float products[warps_per_block][Tile];
  };

  std::uint32_t rows;
  std::uint64_t entries;
  std::uint64_t entries_per_warp;  ///< of each share, a multiple of `Tile`
  std::uint32_t shares;            ///< at least 1: the first one has the rows of a matrix without entries
  std::uint64_t const* row_begin;
  Columns columns;
  Values values;
  float const* x;
  float* y;
  spmv_carry* carries;  ///< one for each share
  spmv_paging paging;
  apps::failure_latch* failure;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t share = M::thread_rank() / 32;
    if constexpr (Bounded) {
      for (; share < shares; share += M::thread_count() / 32) {
        if (!multiply_share(share)) return;
      }
    } else if (share < shares) {
      multiply_share(share);
    }
  }

 private:
  FOREBAY_DEVICE static std::uint64_t min(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

  /// False if a page cannot be had.
  FOREBAY_DEVICE bool multiply_share(std::uint64_t share) const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint64_t tile = share * entries_per_warp;
    std::uint64_t const share_end = min(tile + entries_per_warp, entries);
    float* const products =
        M::this_block().template shared<block_memory>().products[M::this_block().thread_rank() / 32];
    auto column_page = columns.warp_pages(paging.window);
    auto value_page = values.warp_pages(paging.window);
    prefetch(share, tile, share_end, lane);

    std::uint32_t row = share == 0 ? 0 : row_that_ends_after<M>(row_begin, rows, tile, warp);
    float carry = 0;
    do {
      std::uint64_t const tile_end = min(tile + Tile, share_end);
      for (std::uint64_t at = tile; at < tile_end;) {
        if (!failure->passes<M>(column_page.seek(at, share_end)) ||
            !failure->passes<M>(value_page.seek(at, share_end))) {
          return false;
        }
        std::uint64_t const stop = min(tile_end, min(column_page.end(), value_page.end()));
        multiply(column_page, value_page, at, stop, lane, products + (at - tile));
        at = stop;
      }
      warp.sync();
      carry = add_rows(warp, products, tile, tile_end, carry, row);
      warp.sync();  // before the next tile's products take their place
      tile = tile_end;
    } while (tile < share_end);
    if (lane == 0) carries[share] = {row, carry};
    return true;
  }

  FOREBAY_DEVICE void prefetch(std::uint64_t share, std::uint64_t begin, std::uint64_t end, std::uint32_t lane) const {
    std::uint64_t const ahead = paging.prefetch_shares;
    if (share < ahead) prefetch_pages(columns, begin, end, lane);
    // Otherwise the values would be asked for only once the columns have come.
    if (share < ahead || (ahead == 0 && paging.window > 1)) prefetch_pages(values, begin, end, lane);
    if (ahead == 0) return;
    begin += ahead * entries_per_warp;
    end = min(begin + entries_per_warp, entries);
    prefetch_pages(columns, begin, end, lane);
    prefetch_pages(values, begin, end, lane);
  }
  template <class View>
  FOREBAY_DEVICE void prefetch_pages(View const& view, std::uint64_t begin, std::uint64_t end,
                                     std::uint32_t lane) const {
    // As many lanes at a time as there are pages: their commands are submitted together.
    for (std::uint64_t at = begin + lane * std::uint64_t{paging.entries}; at < end; at += 32ull * paging.entries) {
      view.prefetch(at);
    }
  }

  /// Entries [at, stop), with eight loads of each lane in flight.
  template <class ColumnPage, class ValuePage>
  FOREBAY_DEVICE void multiply(ColumnPage const& column_page, ValuePage const& value_page, std::uint64_t at,
                               std::uint64_t stop, std::uint32_t lane, float* products) const {
    constexpr std::uint32_t batch = 8;
    auto const count = static_cast<std::uint32_t>(stop - at);
    for (std::uint32_t base = 0; base < count; base += batch * 32) {
      std::uint32_t const i = base + lane;
      std::uint32_t column[batch];
      float value[batch];
      float from_x[batch];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        bool const mine = i + k * 32 < count;
        column[k] = mine ? column_page[at + i + k * 32] : 0;
        value[k] = mine ? value_page[at + i + k * 32] : 0.0f;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) from_x[k] = x[column[k]];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        if (i + k * 32 < count) products[i + k * 32] = value[k] * from_x[k];
      }
    }
  }

  /// Adds up products [from, to) of each lane. `RowLanes` lanes together add up the products of one lane, so a warp
  /// adds up those of 32 / `RowLanes` lanes at a time.
  template <class Warp>
  FOREBAY_DEVICE static float add_short_rows(Warp const& warp, float const* products, std::uint32_t from,
                                             std::uint32_t to) {
    float sum = 0;
    if constexpr (RowLanes == 1) {
      for (std::uint32_t i = from; i < to; ++i) sum += products[i];
    } else {
      constexpr std::uint32_t at_a_time = 32 / RowLanes;
      std::uint32_t const lane = warp.thread_rank();
      std::uint32_t const some = warp.ballot(from != to);
      for (std::uint32_t first = 0; first < 32; first += at_a_time) {
        if ((some >> first & ((1u << at_a_time) - 1)) == 0) continue;
        std::uint32_t const whose = first + lane / RowLanes;
        std::uint32_t const end = warp.shfl(to, whose);
        float part = 0;
        for (std::uint32_t i = warp.shfl(from, whose) + lane % RowLanes; i < end; i += RowLanes) part += products[i];
        for (std::uint32_t d = RowLanes / 2; d != 0; d /= 2) part += warp.shfl(part, lane ^ d);
        part = warp.shfl(part, (lane - first) * RowLanes % 32);
        if (lane - first < at_a_time) sum = part;
      }
    }
    return sum;
  }

  /// Stores every row that ends in the tile; the first of them has `carry` from before. Returns the sum so far of the
  /// row that does not end, and sets `row` to its number.
  template <class Warp>
  FOREBAY_DEVICE float add_rows(Warp const& warp, float const* products, std::uint64_t tile, std::uint64_t tile_end,
                                float carry, std::uint32_t& row) const {
    std::uint32_t const lane = warp.thread_rank();
    for (;;) {
      bool const exists = row + lane < rows;
      std::uint64_t const begin = exists ? row_begin[row + lane] : tile_end;
      std::uint64_t const end = exists ? row_begin[row + lane + 1] : tile_end;
      auto const from = static_cast<std::uint32_t>((begin < tile ? tile : min(begin, tile_end)) - tile);
      auto const to = static_cast<std::uint32_t>(min(end, tile_end) - tile);
      bool const is_long = to - from > short_entries_max;
      float sum = add_short_rows(warp, products, from, is_long ? from : to);
      for (std::uint32_t longs = warp.ballot(is_long); longs != 0; longs &= longs - 1) {
        std::uint32_t const whose = simt::team<M>::lowest(longs);
        std::uint32_t const last = warp.shfl(to, whose);
        float part = 0;
        for (std::uint32_t i = warp.shfl(from, whose) + lane; i < last; i += 32) part += products[i];
        for (std::uint32_t d = 16; d != 0; d /= 2) part += warp.shfl(part, lane ^ d);
        if (lane == whose) sum = part;
      }
      if (lane == 0) sum += carry;
      bool const ends = exists && end <= tile_end;
      if (ends) y[row + lane] = sum;
      std::uint32_t const ended = simt::team<M>::ones(warp.ballot(ends));
      row += ended;
      if (ended < 32) return warp.shfl(sum, ended);
      carry = 0;
    }
  }
};

/// Adds the carries to the rows that they belong to; one thread for each row that has any.
template <class M>
struct spmv_add_carries {
  std::uint32_t rows;
  std::uint32_t shares;
  spmv_carry const* carries;
  float* y;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const first = M::thread_rank();
    if (first >= shares) return;
    std::uint32_t const row = carries[first].row;
    if (row >= rows || (first != 0 && carries[first - 1].row == row)) return;
    float sum = 0;
    for (std::uint32_t i = first; i < shares && carries[i].row == row; ++i) sum += carries[i].sum;
    y[row] += sum;
  }
};

/// A matrix of which the kernels know everything except columns and values.
struct spmv_shape {
  std::uint32_t rows = 0;
  std::uint64_t entries = 0;
  std::uint64_t const* row_begin = nullptr;
};

/// Multiplies any number of times. `entries_per_warp` should be a multiple of the entries that the pages of a window
/// hold. `ThreadsMax`: the number of threads for which a multiprocessor should have registers, 256 to 1024; 0: the
/// compiler decides. `Bounded`: there may be fewer warps than shares.
template <class Executor, class Columns, class Values, std::uint32_t Tile = 512, std::uint32_t RowLanes = 4,
          unsigned ThreadsMax = 0, bool Bounded = false>
class spmv {
  using M = typename Executor::machine;
  using kernel = spmv_multiply<M, Columns, Values, Tile, RowLanes, ThreadsMax, Bounded>;

 public:
  spmv(Executor const& run, spmv_shape const& shape, Columns columns, Values values,
       std::uint64_t entries_per_warp = 4096, spmv_paging const& paging = {})
      : run_(run),
        shape_(shape),
        columns_(columns),
        values_(values),
        entries_per_warp_((entries_per_warp + Tile - 1) / Tile * Tile),
        paging_(paging),
        shares_(std::max(1u, static_cast<std::uint32_t>((shape.entries + entries_per_warp_ - 1) / entries_per_warp_))),
        carries_(run.memory(), shares_),
        failure_(run.memory(), 1) {}

  /// Starts y = A x.
  void operator()(float const* x, float* y) const {
    std::uint32_t const most = Bounded ? paging_.warps_max : ~0u;
    std::uint32_t const each = std::min(kernel::warps_per_block, most);
    run_({.blocks = std::min((shares_ + each - 1) / each, most / each),
          .threads_per_block = each * 32,
          .shared_bytes = sizeof(typename kernel::block_memory)},
         kernel{shape_.rows, shape_.entries, entries_per_warp_, shares_, shape_.row_begin, columns_, values_, x, y,
                carries_.data(), paging_, failure_.data()});
    run_({.blocks = (shares_ + 127) / 128, .threads_per_block = 128},
         spmv_add_carries<M>{shape_.rows, shares_, carries_.data(), y});
  }

  /// The failures so far; only valid while nothing runs.
  apps::failure_latch failures() const { return failure_.to_host()[0]; }
  /// The same in the memory of the machine.
  apps::failure_latch const* failure() const { return failure_.data(); }

 private:
  Executor const& run_;
  spmv_shape shape_;
  Columns columns_;
  Values values_;
  std::uint64_t entries_per_warp_;
  spmv_paging paging_;
  std::uint32_t shares_;
  apps::device_array<spmv_carry> carries_;
  apps::device_array<apps::failure_latch> failure_;
};

/// Compares y with sums in double precision, one warp for each row. Counts the rows whose error is more than 10^-5 of
/// the sum of the absolute values.
template <class M>
struct spmv_check {
  spmv_shape shape;
  std::uint32_t const* columns;
  float const* values;
  float const* x;
  float const* y;
  std::uint64_t* wrong_rows;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    for (std::uint32_t row = M::thread_rank() / 32; row < shape.rows; row += M::thread_count() / 32) {
      double sum = 0, size = 0;
      for (std::uint64_t i = shape.row_begin[row] + lane; i < shape.row_begin[row + 1]; i += 32) {
        double const product = static_cast<double>(values[i]) * static_cast<double>(x[columns[i]]);
        sum += product;
        size += product < 0 ? -product : product;
      }
      for (std::uint32_t d = 16; d != 0; d /= 2) {
        sum += warp.shfl(sum, lane ^ d);
        size += warp.shfl(size, lane ^ d);
      }
      double const off = static_cast<double>(y[row]) - sum;
      // Not `off > ...`, which is false for a NaN. relaxed: the host reads it after the grid.
      if (lane == 0 && !((off < 0 ? -off : off) <= 1e-5 * size)) {
        simt::atomic<M>(*wrong_rows).fetch_add(1, simt::order::relaxed);
      }
    }
  }
};

}  // namespace forebay::graph
