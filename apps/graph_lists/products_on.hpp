// SPDX-License-Identifier: Apache-2.0
//! \file
//! PageRank and the product of a matrix and a vector, which have the same kernels.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "apps/common/constant_view.hpp"
#include "apps/graph/bounded_vertices.hpp"
#include "apps/graph/pagerank.hpp"
#include "apps/graph/spmv.hpp"
#include "apps/graph_lists/places.hpp"

namespace forebay::graph {

template <class M, class Views>
spmv_paging product_paging(placed_run<M, Views> const& at) {
  return {.window = at.paging.window,
          .entries = at.template page_elements<std::uint32_t>(),
          .warps_max = at.paging.warps_max};
}
/// As many as a share of pages has, and at least what makes it worth a warp's while.
template <class M, class Views>
std::uint64_t entries_per_warp(placed_run<M, Views> const& at) {
  return std::max<std::uint64_t>(4096, std::uint64_t{at.paging.window} * at.template page_elements<std::uint32_t>());
}

template <class M>
run_errors run_pagerank_on(placed_lists const& lists, std::span<std::uint32_t const> outgoing,
                           pagerank_options const& options, found_pagerank& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&](auto const& at) {
    auto const neighbours = at.views.template entries<std::uint32_t>();
    apps::device_array<std::uint32_t> const degrees(at.run.memory(), outgoing);
    pagerank<apps::executor<M>, std::remove_const_t<decltype(neighbours)>> rank(
        at.run, at.shape, neighbours, outgoing.empty() ? nullptr : degrees.data(), entries_per_warp(at),
        product_paging(at));
    pagerank_outcome outcome;
    found.figures.seconds = seconds_of([&] { outcome = rank(options); });
    found.figures.useful_bytes = lists.entry_count() * sizeof(std::uint32_t) * outcome.iterations;
    found.iterations = outcome.iterations;
    found.change = outcome.change;
    errors.lists = rank.errors();
    found.scores = rank.scores_to_host();
  });
  return errors;
}

template <class M>
double residual_of_pagerank_on(placed_lists const& lists, std::span<std::uint32_t const> outgoing,
                               std::span<float const> scores, pagerank_options const& options) {
  double residual = 0;
  in_plain_memory<M>(lists, [&](auto const& at) {
    apps::device_array<std::uint32_t> const degrees(at.run.memory(), outgoing);
    apps::device_array<float> const of_vertices(at.run.memory(), scores);
    residual = check_pagerank(at.run, at.shape, at.views.template entries<std::uint32_t>(),
                              outgoing.empty() ? nullptr : degrees.data(), of_vertices.data(), options)
                   .sum;
  });
  return residual;
}

template <class M, class Views, class Values>
run_errors multiply_with(placed_run<M, Views> const& at, Values const& values, std::span<float const> x,
                         found_product& found) {
  using columns_view = bounded_vertices<M, std::remove_cvref_t<decltype(at.views.template entries<std::uint32_t>())>>;
  apps::device_array<range_latch> const latch(at.run.memory(), std::vector<range_latch>(1));
  apps::device_array<float> const from(at.run.memory(), x), y(at.run.memory(), x.size());
  spmv<apps::executor<M>, columns_view, Values, 512, 1, 0, true> const product(
      at.run, {at.shape.vertices, at.shape.entries, at.shape.row_begin},
      columns_view(at.views.template entries<std::uint32_t>(), at.shape.vertices, latch.data()), values,
      entries_per_warp(at), product_paging(at));
  found.figures.seconds = seconds_of([&] {
    product(from.data(), y.data());
    at.run.synchronize();
  });
  found.y = y.to_host();
  run_errors errors;
  errors.lists.failure = product.failures();
  errors.lists.vertices = latch.to_host()[0];
  return errors;
}

template <class M>
run_errors run_product_on(placed_lists const& lists, std::span<float const> x, found_product& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&](auto const& at) {
    found.figures.useful_bytes = lists.entry_count() * (lists.has_values ? 8 : 4);
    errors = lists.has_values ? multiply_with(at, at.views.values(), x, found)
                              : multiply_with(at, apps::constant_view<float>(1.0f, lists.entry_count()), x, found);
  });
  return errors;
}

}  // namespace forebay::graph
