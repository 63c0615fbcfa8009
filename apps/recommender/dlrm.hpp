// SPDX-License-Identifier: Apache-2.0
//! \file
//! Inference of a recommender whose embedding tables are an array behind a view.
//!
//! The tables are one array of rows of the same size, so a drive needs no other layout. A batch is gathered, then goes
//! through two networks. With prefetching, the rows of later batches are prefetched in a stream of their own while this
//! batch goes through the networks. No more rows are prefetched than the cache has room for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/recommender/kernels.hpp"
#include "forebay/error.hpp"

namespace forebay::recommender {

/// A network is `layers` layers of `width`, and one more: to an embedding's size (bottom) or to the click (top).
struct dlrm_config {
  std::uint32_t dense = 13;
  std::uint32_t tables = 26;
  std::uint32_t floats = 128;  ///< of an embedding, a multiple of 4: 512 bytes
  std::uint32_t bottom_layers = 3;
  std::uint32_t bottom_width = 512;
  std::uint32_t top_layers = 3;
  std::uint32_t top_width = 1024;

  std::uint32_t vectors() const { return tables + 1; }
  std::uint32_t top_inputs() const { return floats + vectors() * (vectors() - 1) / 2; }
};

/// AGILE's three configurations (SC 2025): three layers in each network; one in each; and three in each with six times
/// the work, which here means six times as many layers.
inline dlrm_config dlrm_config_number(std::uint32_t number) {
  dlrm_config c;
  if (number < 1 || number > 3) throw refused_input("config", std::to_string(number), "must be 1, 2 or 3");
  c.bottom_layers = c.top_layers = number == 1 ? 3 : number == 2 ? 1 : 18;
  return c;
}

/// The offsets of a layer's weights [inputs][outputs] and biases among all parameters.
struct dlrm_layer {
  std::uint32_t inputs;
  std::uint32_t outputs;
  std::uint64_t weights;
  std::uint64_t biases;
};

/// Both networks, one after the other.
inline std::vector<dlrm_layer> dlrm_layers(dlrm_config const& c, std::uint64_t* floats_in_all = nullptr) {
  std::vector<dlrm_layer> layers;
  std::uint64_t at = 0;
  auto const add = [&](std::uint32_t inputs, std::uint32_t outputs) {
    std::uint64_t const weights = std::uint64_t{inputs} * outputs;
    layers.push_back({inputs, outputs, at, at + weights});
    at += weights + (outputs + 3) / 4 * 4;  // cuBLAS likes weights at 16 bytes
  };
  auto const network = [&](std::uint32_t inputs, std::uint32_t count, std::uint32_t width, std::uint32_t outputs) {
    for (std::uint32_t i = 0; i < count; ++i) add(i == 0 ? inputs : width, width);
    add(count == 0 ? inputs : width, outputs);
  };
  network(c.dense, c.bottom_layers, c.bottom_width, c.floats);
  network(c.top_inputs(), c.top_layers, c.top_width, 1);
  if (floats_in_all != nullptr) *floats_in_all = at;
  return layers;
}

/// In the memory of the machine.
struct dlrm_batch {
  std::uint32_t samples = 0;
  std::uint32_t const* rows = nullptr;  ///< [sample][table], of the one table that holds all
  float const* dense = nullptr;         ///< [sample][feature]
  float* clicks = nullptr;              ///< [sample]: receives probabilities
};

/// Matrix products of a machine, without cuBLAS.
template <class Executor>
class dlrm_naive_products {
 public:
  explicit dlrm_naive_products(Executor const& run) : run_(run) {}

  /// Starts y[samples][outputs] = x[samples][inputs] * w[inputs][outputs], rows of y `stride` apart.
  void multiply(float const* x, float const* w, float* y, std::uint32_t samples, std::uint32_t inputs,
                std::uint32_t outputs, std::uint32_t stride) const {
    run_(shape(), dlrm_multiply<M>{samples, inputs, outputs, stride, x, w, y});
  }
  /// Starts products[sample][vectors][vectors] of the vectors[sample][vectors][floats] with each other.
  void gram(float const* vector, float* products, std::uint32_t samples, std::uint32_t vectors,
            std::uint32_t floats) const {
    run_(shape(), dlrm_gram<M>{samples, vectors, floats, vector, products});
  }

 private:
  using M = typename Executor::machine;
  simt::grid shape() const { return {.blocks = (run_.warps() + 3) / 4, .threads_per_block = 128}; }
  Executor const& run_;
};

/// How far ahead a recommender prefetches.
struct dlrm_lookahead {
  std::uint32_t batches = 1;      ///< how many batches before it is gathered a batch is prefetched
  std::uint64_t patience_ns = 0;  ///< how long a prefetch may try again that finds the queues full
  std::uint32_t listed_from =
      512;  ///< samples of a batch for which it pays to list what is missing before it is brought in

  /// As many batches as make 2,048 samples, but at most four: for a small batch prefetching hides the drive's latency.
  static std::uint32_t batches_of(std::uint32_t samples) { return std::clamp(2048u / std::max(samples, 1u), 1u, 4u); }
};

/// `Table` is a view of `dlrm_quad`; `Products` as `dlrm_naive_products`, whose work runs in the order of `run`.
template <class Executor, class Table, class Products>
class dlrm {
  using M = typename Executor::machine;

 public:
  /// `page_quads`: how many elements one page of the view holds. `side`: the executor in which prefetches run.
  dlrm(Executor const& run, Executor const& side, Products const& products, dlrm_config const& config, Table table,
       std::uint64_t page_quads, std::uint32_t samples_max, std::uint64_t seed = 1)
      : run_(run),
        side_(side),
        products_of_(products),
        config_(checked(config)),
        table_(table),
        page_quads_(page_quads),
        layers_(dlrm_layers(config)),
        parameters_(run.memory(), parameter_count(config)),
        vectors_(run.memory(), std::size_t{samples_max} * config.vectors() * config.floats),
        products_(run.memory(), std::size_t{samples_max} * config.vectors() * config.vectors()),
        one_(run.memory(), std::size_t{samples_max} * widest(layers_)),
        other_(run.memory(), std::size_t{samples_max} * widest(layers_)),
        missing_(run.memory(),
                 std::size_t{samples_max} * config.tables * ((quads() + page_quads - 2) / page_quads + 1)),
        missing_counts_(run.memory(), 2),
        failure_(run.memory(), 1) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      dlrm_layer const& layer = layers_[l];
      // The bound of Kaiming initialization (2015) keeps the size of the values that pass through the layers.
      float const bound = std::sqrt(6.0f / static_cast<float>(layer.inputs)) / (l + 1 == layers_.size() ? 4.0f : 1.0f);
      run_(all(), dlrm_fill_layer<M>{seed + 2 * l, std::uint64_t{layer.inputs} * layer.outputs, bound,
                                     parameters_.data() + layer.weights});
      run_(all(), dlrm_fill_layer<M>{seed + 2 * l + 1, layer.outputs, 0.05f, parameters_.data() + layer.biases});
    }
    run_.synchronize();
  }

  /// Each of these starts its work and returns. A gather waits for rows that are not in the cache; `infer` works on the
  /// last gather.
  void gather(dlrm_batch const& batch) const {
    std::uint64_t const lookups = std::uint64_t{batch.samples} * config_.tables;
    // No more pages are held at a time than the cache has room for. Where there is room, a warp holds eight, so that
    // the pages that it asks for go to a drive together.
    std::uint64_t const held_max = std::max<std::uint64_t>(table_.prefetch_distance_max(), 1);
    std::uint64_t const warps = std::min<std::uint64_t>({(lookups + 7) / 8, 2 * run_.warps(), held_max});
    std::uint64_t const at_a_time = std::min<std::uint64_t>({(lookups + warps - 1) / warps, held_max / warps, 32});
    run_({.blocks = static_cast<std::uint32_t>((warps + 3) / 4), .threads_per_block = 128},
         dlrm_gather<M, Table>{table_, batch.rows, lookups, config_.tables, quads(),
                               static_cast<std::uint32_t>(at_a_time), reinterpret_cast<dlrm_quad*>(vectors_.data()),
                               failure_.data()});
  }
  /// Prefetches the batch's first `lookups_max` rows. For a large batch, present pages are touched before anything
  /// comes that could evict them, and a kernel of many threads lists the missing ones; then few threads stay to bring
  /// those in beside the networks. A small batch gains less by that than one more kernel costs.
  void prefetch(dlrm_batch const& batch, std::uint64_t lookups_max, dlrm_lookahead const& ahead) const {
    std::uint64_t const lookups = std::min(std::uint64_t{batch.samples} * config_.tables, lookups_max);
    if (lookups == 0) return;
    simt::grid const a_thread_each{.blocks = static_cast<std::uint32_t>((lookups + 127) / 128),
                                   .threads_per_block = 128};
    if (batch.samples < ahead.listed_from) {
      side_(a_thread_each,
            dlrm_prefetch<M, Table>{table_, batch.rows, lookups, quads(), page_quads_, ahead.patience_ns});
      return;
    }
    dlrm_missing const missing{missing_.data(), missing_counts_.data() + turn_};
    turn_ ^= 1;
    side_(a_thread_each, dlrm_list_missing<M, Table>{table_, batch.rows, lookups, quads(), page_quads_, missing,
                                                     missing_counts_.data() + turn_});
    side_({.blocks = std::min(a_thread_each.blocks, 128u), .threads_per_block = 128},
          dlrm_prefetch_missing<M, Table>{table_, missing, ahead.patience_ns});
  }
  /// Delivers prefetched pages; with no patience, only those whose data has come.
  void await_prefetches(std::uint64_t patience_ns) const {
    // About one thread for each queue pair of four drives: with fewer, pages are delivered more slowly than the drives
    // read.
    side_({.blocks = 4, .threads_per_block = 128}, dlrm_await_prefetches<M, Table>{table_, patience_ns});
  }
  void infer(dlrm_batch const& batch) const {
    std::uint32_t const samples = batch.samples, vectors = config_.vectors();
    std::size_t const bottom = config_.bottom_layers + 1;
    network(batch.dense, vectors_.data(), samples, 0, bottom, vectors * config_.floats, dlrm_activation::relu);
    products_of_.gram(vectors_.data(), products_.data(), samples, vectors, config_.floats);
    run_(all(), dlrm_interact<M>{samples, vectors, config_.floats, vectors_.data(), products_.data(), other_.data()});
    network(other_.data(), batch.clicks, samples, bottom, layers_.size(), 1, dlrm_activation::sigmoid);
  }

  /// Runs all batches, each gathered and then inferred.
  void run_in_turn(std::span<dlrm_batch const> batches) const {
    for (dlrm_batch const& b : batches) {
      gather(b);
      infer(b);
    }
  }
  /// Runs all batches; while one is inferred, rows of a later one are prefetched. `ahead.batches` is cut to what the
  /// cache has room for. Of a batch that is larger than the cache's room only as many rows as fit are prefetched: more
  /// would evict each other before they are used.
  void run_ahead(std::span<dlrm_batch const> batches, dlrm_lookahead const& ahead = {}) const {
    std::uint64_t const room = table_.prefetch_distance_max();
    std::size_t next = 1;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      gather(batches[i]);
      std::uint64_t const lookups = std::uint64_t{batches[i].samples} * config_.tables;
      std::size_t const distance =
          std::clamp<std::uint64_t>(room / std::max<std::uint64_t>(lookups, 1), 1, ahead.batches);
      if (next < batches.size()) {
        side_.wait_for(run_);  // a gather and a prefetch at the same time would compete for frames
        // The next batch's rows were prefetched before this turn, unless this turn prefetches them itself.
        if (distance > 1) await_prefetches(0);
        for (; next < batches.size() && next <= i + distance; ++next) prefetch(batches[next], room, ahead);
        if (distance == 1) await_prefetches(ahead.patience_ns);
      }
      infer(batches[i]);
      run_.wait_for(side_);
    }
  }

  /// Counts the floats of the last gather, which was of `batch`, that differ from the table. Waits.
  std::uint64_t wrong_floats(dlrm_batch const& batch) const {
    apps::device_array<std::uint64_t> const wrong(run_.memory(), 1);
    run_(all(), dlrm_check_vectors<M>{batch.rows, std::uint64_t{batch.samples} * config_.tables, config_.tables,
                                      config_.floats, vectors_.data(), wrong.data()});
    run_.synchronize();
    return wrong.to_host()[0];
  }

  dlrm_config const& config() const { return config_; }
  std::vector<float> parameters() const { return parameters_.to_host(); }
  /// The failures so far; only valid while nothing runs.
  apps::failure_latch failures() const { return failure_.to_host()[0]; }

 private:
  static dlrm_config const& checked(dlrm_config const& c) {
    if (c.floats == 0 || c.floats % dlrm_quad_floats != 0) {
      throw refused_input("floats", std::to_string(c.floats), "must be a multiple of 4");
    }
    if (c.tables == 0 || c.dense == 0) throw refused_input("tables", std::to_string(c.tables), "must be at least 1");
    return c;
  }
  static std::uint64_t parameter_count(dlrm_config const& c) {
    std::uint64_t count = 0;
    dlrm_layers(c, &count);
    return count;
  }
  static std::size_t widest(std::vector<dlrm_layer> const& layers) {
    std::size_t width = 1;
    for (dlrm_layer const& l : layers) width = std::max<std::size_t>({width, l.inputs, l.outputs});
    return width;
  }
  std::uint32_t quads() const { return config_.floats / dlrm_quad_floats; }
  simt::grid all() const { return {.blocks = (run_.warps() + 3) / 4, .threads_per_block = 128}; }

  /// Layers [first, end) of `x`; the last one's output goes to `y`, in rows `stride` apart. Uses `one_` and `other_`,
  /// of which `x` may be the latter.
  void network(float const* x, float* y, std::uint32_t samples, std::size_t first, std::size_t end,
               std::uint32_t stride, dlrm_activation last) const {
    for (std::size_t l = first; l < end; ++l) {
      dlrm_layer const& layer = layers_[l];
      bool const is_last = l + 1 == end;
      float* const to = is_last ? y : x == one_.data() ? other_.data() : one_.data();
      std::uint32_t const apart = is_last ? stride : layer.outputs;
      products_of_.multiply(x, parameters_.data() + layer.weights, to, samples, layer.inputs, layer.outputs, apart);
      run_(all(), dlrm_activate<M>{samples, layer.outputs, apart, is_last ? last : dlrm_activation::relu,
                                   parameters_.data() + layer.biases, to});
      x = to;
    }
  }

  Executor const& run_;
  Executor const& side_;
  Products const& products_of_;
  dlrm_config config_;
  Table table_;
  std::uint64_t page_quads_;
  std::vector<dlrm_layer> layers_;
  apps::device_array<float> parameters_, vectors_, products_, one_, other_;
  apps::device_array<std::uint64_t> missing_;
  apps::device_array<std::uint32_t> missing_counts_;  ///< of the list in use, and of the next, in turn
  mutable std::uint32_t turn_ = 0;
  apps::device_array<apps::failure_latch> failure_;
};

}  // namespace forebay::recommender
