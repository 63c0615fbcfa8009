// SPDX-License-Identifier: Apache-2.0
//! \file
//! The embedding tables of a recommender on drives, behind a cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "apps/common/device_array.hpp"
#include "apps/common/failure_latch.hpp"
#include "apps/recommender/kernels.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"

namespace forebay::recommender {

/// Writes `quads` quads, those of all tables together, to the beginning of `drives`, whose pages have `page_bytes`, and
/// flushes them. The caller holds a lease. Throws `operation_failed`.
template <class Executor>
void dlrm_write_tables(Executor const& run, storage& drives, std::uint64_t quads, std::uint64_t page_bytes) {
  using machine = typename Executor::machine;
  apps::device_array<apps::failure_latch> const failure(run.memory(), 1);
  auto const table = drives.template ref<machine, cached>().template array<float>(0, quads * dlrm_quad_floats);
  // Few warps for a small cache: more would wait for each other's frames most of the time.
  auto const warps = std::clamp<std::uint64_t>(table.prefetch_distance_max() / 4, 4, run.warps() / 4);
  run({.blocks = static_cast<std::uint32_t>(warps / 4), .threads_per_block = 128},
      dlrm_write_table<machine, std::remove_const_t<decltype(table)>>{table, page_bytes / sizeof(float),
                                                                      failure.data()});
  run.synchronize();
  if (failure.to_host()[0].failures != 0) throw operation_failed("the tables cannot be written to the drives");
  drives.flush();
}

}  // namespace forebay::recommender
