// SPDX-License-Identifier: Apache-2.0
//! \file
//! The parts of a recommender (DLRM, Naumov et al. 2019) other than matrix products, and matrix products for machines
//! without cuBLAS.
//!
//! All matrices are row-major. A sample's vectors are `[tables + 1][floats]`: the bottom network's output, then the
//! embedding of each table.
#pragma once

#include <cstdint>

#include "apps/common/failure_latch.hpp"
#include "apps/common/random.hpp"
#include "forebay/machine.hpp"

namespace forebay::recommender {

/// Four floats: the unit in which embeddings are read.
using dlrm_quad = simt::vec16;
inline constexpr std::uint32_t dlrm_quad_floats = 4;

/// Float `index` of the one table that holds all, in [-1/8, 1/8).
FOREBAY_DEVICE float dlrm_table_value(std::uint64_t index) {
  return (static_cast<float>(apps::mix64(index ^ 0x5bf03635u) >> 40) * 0x1p-24f - 0.5f) * 0.25f;
}

/// Writes floats [first, first + count) of the table.
template <class M>
struct dlrm_fill_table {
  std::uint64_t first;
  std::uint64_t count;
  float* values;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) values[i] = dlrm_table_value(first + i);
  }
};

/// Weights or biases of a layer: uniform in [-bound, bound).
template <class M>
struct dlrm_fill_layer {
  std::uint64_t seed;
  std::uint64_t count;
  float bound;
  float* values;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) {
      values[i] = (static_cast<float>(apps::mix64(seed ^ apps::mix64(i)) >> 40) * 0x1p-23f - 1.0f) * bound;
    }
  }
};

/// Gathers the samples' embeddings. A warp takes several rows at a time: each lane asks for the page of one row, so
/// that all missing pages are asked for together, and then all lanes copy all of the rows.
template <class M, class Table>
struct dlrm_gather {
  Table table;
  std::uint32_t const* rows;  ///< [sample][table], of the one table that holds all
  std::uint64_t lookups;      ///< samples * tables
  std::uint32_t tables;
  std::uint32_t quads;      ///< of an embedding
  std::uint32_t at_a_time;  ///< rows that a warp takes, 1 to 32; it holds the pages of all of them
  dlrm_quad* vectors;
  apps::failure_latch* failure;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint64_t const step = std::uint64_t{M::thread_count() / 32} * at_a_time;
    for (std::uint64_t begin = std::uint64_t{M::thread_rank() / 32} * at_a_time; begin < lookups; begin += step) {
      std::uint64_t const l = begin + lane;
      bool const mine = lane < at_a_time && l < lookups;
      std::uint64_t const first = mine ? std::uint64_t{rows[l]} * quads : 0, end = mine ? first + quads : 0;
      // In the output, a vector of the bottom network stands before each sample's embeddings.
      dlrm_quad* const to = vectors + (l + l / tables + 1) * quads;
      // Most rows lie in one page.
      for (std::uint64_t at = first; warp.any(at < end);) {
        auto page = table.thread_page();
        dlrm_quad const* from = nullptr;
        std::uint32_t count = 0;
        if (at < end && failure->passes<M>(page.seek(at))) {
          from = &page[at];
          count = static_cast<std::uint32_t>((page.end() < end ? page.end() : end) - at);
        }
        if (!warp.all(at >= end || from != nullptr)) return;
        copy(warp, from, to + (at - first), count);
        at += count;
        warp.sync();  // before a lane lets go of a page that others read
      }
    }
  }

 private:
  /// Copies `count` quads of each lane, with four lanes' rows under way together.
  template <class Warp>
  FOREBAY_DEVICE static void copy(Warp const& warp, dlrm_quad const* from, dlrm_quad* to, std::uint32_t count) {
    constexpr std::uint32_t batch = 4;
    std::uint32_t const lane = warp.thread_rank();
    for (std::uint32_t left = warp.ballot(count != 0); left != 0;) {
      dlrm_quad const* sources[batch];
      dlrm_quad* targets[batch];
      std::uint32_t counts[batch];
      std::uint32_t longest = 0;
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        std::uint32_t const whose = left != 0 ? simt::lowest_bit(left) : 0;
        sources[k] = warp.shfl(from, whose);
        targets[k] = warp.shfl(to, whose);
        counts[k] = warp.shfl(count, whose);
        if (left == 0) counts[k] = 0;
        left &= left - 1;
        longest = counts[k] > longest ? counts[k] : longest;
      }
      for (std::uint32_t i = lane; i < longest; i += 32) {
        dlrm_quad quad[batch];
        FOREBAY_UNROLL
        for (std::uint32_t k = 0; k < batch; ++k) {
          if (i < counts[k]) quad[k] = M::ld(sources[k] + i);
        }
        FOREBAY_UNROLL
        for (std::uint32_t k = 0; k < batch; ++k) {
          if (i < counts[k]) M::st(targets[k] + i, quad[k]);
        }
      }
    }
  }
};

/// Writes the whole table through a writable view, one page at a time for each warp.
template <class M, class Table>
struct dlrm_write_table {
  Table table;  ///< of floats
  std::uint64_t page_floats;
  apps::failure_latch* failure;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const lane = M::this_warp().thread_rank();
    auto page = table.warp_page();
    std::uint64_t const size = table.size(), apart = M::thread_count() / 32 * page_floats;
    for (std::uint64_t at = M::thread_rank() / 32 * page_floats; at < size; at += apart) {
      if (!failure->passes<M>(page.seek(at))) return;
      for (std::uint64_t i = at + lane; i < page.end(); i += 32) page[i] = dlrm_table_value(i);
    }
  }
};

/// Counts the floats of a gather that differ from the table.
template <class M>
struct dlrm_check_vectors {
  std::uint32_t const* rows;
  std::uint64_t lookups;
  std::uint32_t tables;
  std::uint32_t floats;
  float const* vectors;
  std::uint64_t* wrong;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < lookups * floats; i += M::thread_count()) {
      std::uint64_t const l = i / floats, k = i - l * floats;
      if (vectors[(l + l / tables + 1) * floats + k] == dlrm_table_value(std::uint64_t{rows[l]} * floats + k)) continue;
      // relaxed: the host reads it after the grid.
      simt::atomic<M>(*wrong).fetch_add(1, simt::order::relaxed);
    }
  }
};

/// The element of each page of a batch's rows, a thread for each row.
template <class M, class Use>
FOREBAY_DEVICE void dlrm_each_page(std::uint32_t const* rows, std::uint64_t lookups, std::uint32_t quads,
                                   std::uint64_t page_quads, Use&& use) {
  for (std::uint64_t l = M::thread_rank(); l < lookups; l += M::thread_count()) {
    std::uint64_t const first = std::uint64_t{rows[l]} * quads, end = first + quads;
    for (std::uint64_t at = first; at < end; at = (at / page_quads + 1) * page_quads) use(at);
  }
}
/// Starts to bring in the page of element `at`. If the queues are full it tries again for a while. Nothing else depends
/// on it.
template <class M, class Table>
FOREBAY_DEVICE void dlrm_prefetch_page(Table const& table, std::uint64_t at, std::uint64_t patience_ns,
                                       std::uint64_t deadline_ns) {
  if (table.prefetch(at) || patience_ns == 0) return;
  (void)M::wait_until([&] { return table.prefetch(at); }, deadline_ns);
}

/// Starts bringing in the pages of a batch.
template <class M, class Table>
struct dlrm_prefetch {
  Table table;
  std::uint32_t const* rows;
  std::uint64_t lookups;
  std::uint32_t quads;
  std::uint64_t page_quads;
  std::uint64_t patience_ns;  ///< of each thread, for all of its rows

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const deadline_ns = M::clock_ns() + patience_ns;
    dlrm_each_page<M>(rows, lookups, quads, page_quads,
                      [&](std::uint64_t at) { dlrm_prefetch_page<M>(table, at, patience_ns, deadline_ns); });
  }
};

/// Elements of the table, one of each page that is wanted and not there.
struct dlrm_missing {
  std::uint64_t* elements;
  std::uint32_t* count;
};

/// Lists the pages that a batch needs and that are not in the cache.
template <class M, class Table>
struct dlrm_list_missing {
  Table table;
  std::uint32_t const* rows;
  std::uint64_t lookups;
  std::uint32_t quads;
  std::uint64_t page_quads;
  dlrm_missing missing;
  std::uint32_t* next_count;  ///< of the list after this one, which nobody reads any more

  FOREBAY_DEVICE void operator()() const {
    if (M::thread_rank() == 0) *next_count = 0;
    dlrm_each_page<M>(rows, lookups, quads, page_quads, [&](std::uint64_t at) {
      if (table.touch(at)) return;
      // relaxed: only the next launch reads the list.
      missing.elements[simt::atomic<M>(*missing.count).fetch_add(1, simt::order::relaxed)] = at;
    });
  }
};

/// Starts to bring in the listed pages. Neighbours in the list go to different warps: lanes of one warp that each claim
/// a frame would do so one after the other.
template <class M, class Table>
struct dlrm_prefetch_missing {
  Table table;
  dlrm_missing missing;
  std::uint64_t patience_ns;  ///< of each thread, for all that it brings in

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const deadline_ns = M::clock_ns() + patience_ns;
    std::uint32_t const warps = M::thread_count() / 32;
    std::uint32_t const first = M::thread_rank() % 32 * warps + M::thread_rank() / 32;
    for (std::uint64_t k = first; k < *missing.count; k += M::thread_count()) {
      dlrm_prefetch_page<M>(table, missing.elements[k], patience_ns, deadline_ns);
    }
  }
};

/// Delivers prefetched pages, so that the gather need not.
template <class M, class Table>
struct dlrm_await_prefetches {
  Table table;
  std::uint64_t patience_ns;

  FOREBAY_DEVICE void operator()() const { (void)table.await_prefetches(M::clock_ns() + patience_ns); }
};

enum class dlrm_activation : std::uint8_t { relu, sigmoid };

/// y = f(y + bias), `outputs` of each sample's `stride`.
template <class M>
struct dlrm_activate {
  std::uint64_t samples;
  std::uint32_t outputs;
  std::uint32_t stride;
  dlrm_activation kind;
  float const* bias;
  float* y;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < samples * outputs; i += M::thread_count()) {
      std::uint64_t const sample = i / outputs;
      auto const o = static_cast<std::uint32_t>(i - sample * outputs);
      float& value = y[sample * stride + o];
      float const sum = value + bias[o];
      value = kind == dlrm_activation::relu ? (sum > 0 ? sum : 0) : 1 / (1 + exp_of(-sum));
    }
  }

 private:
  /// e^x to a few units in the last place, the same on every machine: 2^(x / ln 2), and e^r = (e^(r/16))^16.
  FOREBAY_DEVICE static float exp_of(float x) {
    x = x < -80 ? -80 : x > 80 ? 80 : x;
    float const halvings = x * 1.44269504f;
    auto const whole = static_cast<int>(halvings < 0 ? halvings - 0.5f : halvings + 0.5f);
    float const r = (halvings - static_cast<float>(whole)) * 0.69314718f;
    float const small = r / 16;
    float power = 1 + small * (1 + small * (0.5f + small * (1.0f / 6 + small * (1.0f / 24))));
    for (int i = 0; i < 4; ++i) power *= power;
    for (int i = 0; i < whole; ++i) power *= 2;
    for (int i = 0; i > whole; --i) power *= 0.5f;
    return power;
  }
};

/// The top network's input: the bottom network's output, then the product of each pair of different vectors.
template <class M>
struct dlrm_interact {
  std::uint64_t samples;
  std::uint32_t vectors;  ///< of a sample
  std::uint32_t floats;   ///< of a vector
  float const* vector;
  float const* products;  ///< [sample][vectors][vectors]
  float* top;             ///< [sample][floats + pairs]

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const width = floats + vectors * (vectors - 1) / 2;
    // A thread of the block owns one column of `top`, so that it searches for the column's pair only once.
    for (std::uint32_t column = M::this_block().thread_rank(); column < width; column += M::this_block().size()) {
      std::uint32_t row = 1, pair = column - floats;
      for (; column >= floats && pair >= row; ++row) pair -= row;
      std::uint64_t const blocks = M::thread_count() / M::this_block().size();
      for (std::uint64_t s = M::this_block().rank; s < samples; s += blocks) {
        top[s * width + column] =
            column < floats ? vector[s * vectors * floats + column] : products[(s * vectors + row) * vectors + pair];
      }
    }
  }
};

/// y[samples][outputs] = x[samples][inputs] * w[inputs][outputs], rows of y `stride` apart; a thread an output.
template <class M>
struct dlrm_multiply {
  std::uint64_t samples;
  std::uint32_t inputs;
  std::uint32_t outputs;
  std::uint32_t stride;
  float const* x;
  float const* w;
  float* y;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < samples * outputs; i += M::thread_count()) {
      std::uint64_t const sample = i / outputs, o = i - sample * outputs;
      float sum = 0;
      for (std::uint32_t k = 0; k < inputs; ++k) sum += x[sample * inputs + k] * w[k * std::uint64_t{outputs} + o];
      y[sample * stride + o] = sum;
    }
  }
};

/// The products of all vectors of a sample with each other; a thread a pair.
template <class M>
struct dlrm_gram {
  std::uint64_t samples;
  std::uint32_t vectors;
  std::uint32_t floats;
  float const* vector;
  float* products;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const pairs = std::uint64_t{vectors} * vectors;
    for (std::uint64_t i = M::thread_rank(); i < samples * pairs; i += M::thread_count()) {
      std::uint64_t const sample = i / pairs;
      float const* const a = vector + (sample * vectors + i % pairs / vectors) * floats;
      float const* const b = vector + (sample * vectors + i % vectors) * floats;
      float sum = 0;
      for (std::uint32_t k = 0; k < floats; ++k) sum += a[k] * b[k];
      products[i] = sum;
    }
  }
};

}  // namespace forebay::recommender
