// SPDX-License-Identifier: Apache-2.0
//! \file
//! Views of lists in each place: what the algorithms read them through.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/direct_view.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/external_view.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "apps/graph_lists/placed_lists.hpp"
#include "forebay/storage.hpp"

namespace forebay::graph {

/// How the pages of a place are used.
struct place_paging {
  std::uint32_t page_bytes;        ///< a power of two
  std::uint32_t at_a_time = 32;    ///< pages that a warp holds, 1 to 32
  std::uint32_t window = 1;        ///< consecutive pages that it asks for at a time, 1 to 32
  std::uint32_t warps_max = ~0u;   ///< that use the views
  std::uint32_t share_pages = 32;  ///< consecutive pages that a warp has, 1 to 32
  bool is_far = false;             ///< whether neighbouring lists that are needed soon after one another cost less
};

// Each place has views of the entries and of the values, tells how its pages are used, and in the end what it counted.

/// Plain loads, wherever the memory is.
template <class M>
class memory_place_views {
 public:
  memory_place_views(placed_lists const& lists, apps::executor<M> const& /*run*/) : lists_(lists) {}

  template <class T>
  apps::memory_view<T> entries() {
    return {lists_.entries_in_memory.as<T>(), lists_.entry_count()};
  }
  apps::memory_view<float> values() { return {lists_.values_in_memory.as<float>(), lists_.entry_count()}; }
  place_paging paging() const { return {.page_bytes = 4096, .share_pages = 8, .is_far = lists_.is_far}; }
  void count(run_figures& /*figures*/) const {}

 private:
  placed_lists const& lists_;
};

/// Loads that take the time of a model. The values follow the entries.
template <class M>
class external_place_views {
 public:
  using memory_ref = memory::external_memory_ref<M, true>;

  external_place_views(placed_lists const& lists, apps::executor<M> const& run)
      : lists_(lists), memory_(*lists.external, run.memory()) {}

  template <class T>
  apps::external_view<T, memory_ref> entries() {
    return view<T>(lists_.entries_in_memory.as<T>(), 0);
  }
  apps::external_view<float, memory_ref> values() {
    std::uint64_t const page = paging().page_bytes;
    std::uint64_t const bytes = lists_.entry_count() * bytes_of(lists_.entry);
    return view<float>(lists_.values_in_memory.as<float>(), (bytes + page - 1) / page * page);
  }
  place_paging paging() const {
    std::uint32_t const block = memory_.options().alignment_bytes;
    // Lanes of a warp make a request each; a thread makes all those of its page one after the other.
    return {.page_bytes = std::max(512u, block), .window = 32, .share_pages = 32};
  }
  void count(run_figures& figures) const {
    memory::external_memory_counts const counts = memory_.counts();
    figures.requests = counts.requests;
    figures.read_bytes = counts.bytes;
    figures.loads = counts.loads;
    figures.late = counts.late;
  }

 private:
  template <class T>
  apps::external_view<T, memory_ref> view(T const* data, std::uint64_t address) {
    return {data, lists_.entry_count(), memory_.template ref<M, true>(), address,
            memory_.options().requests_of_page(paging().page_bytes)};
  }

  placed_lists const& lists_;
  memory::external_memory memory_;
};

/// Through the cache of a storage.
template <class M>
class cached_place_views {
 public:
  cached_place_views(placed_lists const& lists, apps::executor<M> const& run)
      : lists_(lists), warps_(run.warps()), before_(reads_of(*lists.drives)) {}

  template <class T>
  auto entries() {
    return array<T>(lists_.on_drives.entries);
  }
  auto values() { return array<float>(*lists_.on_drives.values); }
  place_paging paging() const {
    // Half of the frames may be held at a time, so that no set of frames is held as a whole.
    std::uint64_t const most = std::max<std::uint64_t>(1, lists_.cache_frames / 2);
    auto const each = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most / warps_, 1, 32));
    std::uint32_t const window = std::min(each, 8u);
    return {.page_bytes = lists_.cache_page_bytes,
            .at_a_time = each,
            .window = window,
            .warps_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(most / each, ~0u)),
            .share_pages = 8,
            .is_far = true};
  }
  /// Of everything that used the drives meanwhile.
  void count(run_figures& figures) const {
    std::optional<drive_reads> const now = reads_of(*lists_.drives);
    if (!now || !before_) return;
    figures.requests = now->commands - before_->commands;
    figures.read_bytes = now->bytes - before_->bytes;
  }

 private:
  template <class T>
  auto array(extent const& part) {
    return lists_.drives->template ref<M, cached>(part).template array<T const>(0, lists_.entry_count());
  }

  placed_lists const& lists_;
  std::uint32_t warps_;
  std::optional<drive_reads> before_;
};

/// Past the cache: each thread reads into memory of its own.
template <class M>
class direct_place_views {
 public:
  direct_place_views(placed_lists const& lists, apps::executor<M> const& run)
      : lists_(lists),
        run_(run),
        warps_((lists.on_drives.iodepth + 31) / 32),
        bins_(run.memory(), apps::latency_bins::count) {}

  template <class T>
  auto entries() {
    return view<T>(lists_.on_drives.entries);
  }
  auto values() { return view<float>(*lists_.on_drives.values); }
  place_paging paging() const {
    std::uint32_t const each = lists_.on_drives.iodepth / warps_;
    return {.page_bytes = static_cast<std::uint32_t>(lists_.on_drives.request_bytes),
            .at_a_time = each,
            .window = each,
            .warps_max = warps_,
            .share_pages = 32};
  }
  void count(run_figures& figures) const {
    apps::latency_distribution latency;
    std::uint64_t bytes = 0;
    latency.bins = bins_.to_host();
    for (piece_buffers const& part : parts_) {
      for (apps::direct_reads const& r : part.reads.to_host()) {
        latency.summary.merge(r.latency);
        bytes += r.bytes;
      }
    }
    figures.requests = latency.summary.count;
    figures.read_bytes = bytes;
    figures.latency = std::move(latency);
  }

 private:
  /// The cursors of one view have a piece of buffer for each thread.
  struct piece_buffers {
    piece_buffers(storage& drives, apps::executor<M> const& run, std::size_t pieces, std::uint64_t piece_bytes)
        : buffer(drives, pieces * piece_bytes), reads(run.memory(), std::vector<apps::direct_reads>(pieces)) {}

    apps::io_buffer buffer;
    apps::device_array<apps::direct_reads> reads;
  };

  template <class T>
  auto view(extent const& part) {
    std::size_t const pieces = std::size_t{warps_} * 32;
    std::uint64_t const request = lists_.on_drives.request_bytes;
    piece_buffers const& own = parts_.emplace_back(*lists_.drives, run_, pieces, request);
    auto const ref = lists_.drives->template ref<M>(part);
    return apps::direct_view<T, std::remove_const_t<decltype(ref)>, std::remove_cvref_t<decltype(own.buffer.ref())>,
                             true>(
        ref, own.buffer.ref(), lists_.entry_count(), lists_.drives->block_bytes(), static_cast<std::uint32_t>(request),
        static_cast<std::uint64_t>(lists_.on_drives.timeout_s * 1e9), own.reads.data(), bins_.data());
  }

  placed_lists const& lists_;
  apps::executor<M> const& run_;
  std::uint32_t warps_;
  apps::device_array<std::uint64_t> bins_;
  std::deque<piece_buffers> parts_;
};

/// What an algorithm is given.
template <class M, class Views>
struct placed_run {
  apps::executor<M> const& run;
  graph_shape shape;
  Views& views;
  place_paging paging;

  template <class T>
  std::uint32_t page_elements() const {
    return paging.page_bytes / static_cast<std::uint32_t>(sizeof(T));
  }
};

/// Calls `use(placed_run)` with the views of the place where the lists are; launches may use them meanwhile. Then
/// counts.
template <class M, class Use>
void in_their_place(placed_lists const& lists, run_figures& figures, Use&& use) {
  apps::executor<M> const run(lists.gpu);
  auto const with = [&](auto views_for) {
    using views_type = typename decltype(views_for)::type;
    apps::device_array<std::uint64_t> const row_begin(run.memory(), lists.row_begin);
    views_type views(lists, run);
    use(placed_run<M, views_type>{
        run, {lists.vertices(), lists.entry_count(), row_begin.data()}, views, views.paging()});
    views.count(figures);
  };
  if (lists.drives != nullptr) {
    run.beside(*lists.drives, [&] {
      if (lists.cache_page_bytes != 0) {
        with(std::type_identity<cached_place_views<M>>());
      } else {
        with(std::type_identity<direct_place_views<M>>());
      }
    });
  } else if (lists.external) {
    with(std::type_identity<external_place_views<M>>());
  } else {
    with(std::type_identity<memory_place_views<M>>());
  }
}

/// The same for lists that are in memory and read by plain loads, wherever the model says that they are.
template <class M, class Use>
void in_plain_memory(placed_lists const& lists, Use&& use) {
  apps::executor<M> const run(lists.gpu);
  apps::device_array<std::uint64_t> const row_begin(run.memory(), lists.row_begin);
  memory_place_views<M> views(lists, run);
  use(placed_run<M, memory_place_views<M>>{
      run, {lists.vertices(), lists.entry_count(), row_begin.data()}, views, views.paging()});
}

/// The seconds that a call takes.
template <class Call>
double seconds_of(Call&& call) {
  auto const begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace forebay::graph
