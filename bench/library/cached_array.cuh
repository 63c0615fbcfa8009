// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array on drives, behind a cache, and the runs of kernels over it. For CUDA sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/executor.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"
#include "harness/event_timer.hpp"
#include "harness/gpu_use.hpp"
#include "library/cache_bench.hpp"
#include "library/cache_kernels.hpp"

namespace forebay::bench {

inline constexpr std::uint32_t threads_per_block = 256;

/// Registers per thread, and bytes of local memory, of a kernel.
template <class Kernel>
nlohmann::json shape_of() {
  launch_report::gpu_use const use = gpu_use_of<Kernel>();
  return {{"registers", use.registers_per_thread}, {"local_bytes", use.local_bytes_per_thread}};
}

template <class Traits>
struct cached_array {
  using drive_storage = storage_ref<simt::cuda, Traits>;
  using drive_view = typename drive_storage::template view_type<cache_element>;
  using const_drive_view = typename drive_storage::template view_type<cache_element const>;

  cached_array(storage_options const& options, std::uint32_t client_sms)
      : drives(options), sms(client_sms), run_elements(options.cache.page_bytes / sizeof(cache_element)) {
    running = drives.lease();
  }

  std::uint64_t elements() const { return drives.size_bytes() / sizeof(cache_element); }
  drive_view view() const { return drives.template ref<simt::cuda, Traits>().template array<cache_element>(); }
  const_drive_view const_view() const {
    return drives.template ref<simt::cuda, Traits>().template array<cache_element const>();
  }

  template <class Kernel>
  cache_run run(std::uint32_t threads_per_sm, Kernel kernel) {
    cache_run out;
    result.from().copy_in(result.data(), &out.seen, sizeof out.seen);
    kernel.tally = result.as<cache_tally>();
    std::uint32_t const fit = gpu_use_of<Kernel>(threads_per_block).resident_blocks_per_sm;
    std::uint32_t const blocks = std::min(threads_per_sm / threads_per_block, fit) * sms;
    out.seconds = seconds_of(executor.stream(),
                             [&] { executor({.blocks = blocks, .threads_per_block = threads_per_block}, kernel); });
    result.from().copy_out(&out.seen, result.data(), sizeof out.seen);
    return out;
  }

  cache_run write() { return run(1024, write_elements<simt::cuda, drive_view>{view(), run_elements, nullptr}); }
  cache_run random(std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint64_t seed) {
    return run(threads_per_sm, read_at_random<simt::cuda, const_drive_view>{const_view(), rounds, seed, nullptr});
  }
  /// `count` pages of an order in which each comes once, from the `first` on.
  cache_run each_page(std::uint32_t threads_per_sm, std::uint64_t first, std::uint64_t count) {
    std::uint64_t pages = 1;
    while (2 * pages * run_elements <= elements()) pages *= 2;
    return run(threads_per_sm, read_each_page<simt::cuda, const_drive_view>{
                                   const_view(), run_elements, pages, 0x9e3779b97f4a7c15u, first, count, nullptr});
  }

  storage drives;
  std::uint32_t sms;
  std::uint64_t run_elements;  ///< of a page
  memory::allocation result{memory::device(0), sizeof(cache_tally), 128};
  apps::executor<simt::cuda> executor{0};
  std::optional<storage_lease> running;  ///< last: what is above is freed when the engine may leave
};

}  // namespace forebay::bench
