// SPDX-License-Identifier: Apache-2.0
//! \file
//! Kernels that do nothing but reach the elements of an array, in memory or through the cache.
//!
//! Element `i` of the arrays is `i << 24` plus how often it was added to, so that a reader knows whether an element is
//! the right one.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

using cache_element = std::uint64_t;
inline constexpr std::uint32_t count_bits_of_element = 24;

/// The threads' counts. Zeroed by the host.
struct cache_tally {
  std::uint64_t accesses = 0;
  std::uint64_t added = 0;
  std::uint64_t wrong = 0;
  std::uint64_t failed = 0;
  std::uint64_t sum = 0;  ///< of what was added to the elements that were read

  template <class M>
  FOREBAY_DEVICE void add_to(cache_tally& all) const {
    // Relaxed, all: counters.
    simt::atomic<M>(all.accesses).fetch_add(accesses, simt::order::relaxed);
    if (added != 0) simt::atomic<M>(all.added).fetch_add(added, simt::order::relaxed);
    if (wrong != 0) simt::atomic<M>(all.wrong).fetch_add(wrong, simt::order::relaxed);
    if (failed != 0) simt::atomic<M>(all.failed).fetch_add(failed, simt::order::relaxed);
    if (sum != 0) simt::atomic<M>(all.sum).fetch_add(sum, simt::order::relaxed);
  }
  FOREBAY_DEVICE void see(std::uint64_t i, cache_element value) {
    ++accesses;
    wrong += value >> count_bits_of_element != i;
    sum += value & ((1u << count_bits_of_element) - 1);
  }
};

/// Writes all elements, a page at a time for each warp.
template <class M, class View>
struct write_elements {
  View view;
  std::uint64_t run;  ///< elements of a page
  cache_tally* tally;

  FOREBAY_DEVICE void operator()() const {
    auto page = view.warp_page();
    std::uint32_t const lane = M::this_warp().thread_rank();
    std::uint64_t const step = std::uint64_t{M::thread_count() / 32} * run;
    cache_tally mine;
    for (std::uint64_t first = std::uint64_t{M::thread_rank() / 32} * run; first < view.size(); first += step) {
      if (!page.seek(first).ok()) {
        ++mine.failed;
        continue;
      }
      for (std::uint64_t i = page.first() + lane; i < page.end(); i += 32) {
        page[i] = i << count_bits_of_element;
        ++mine.accesses;
      }
    }
    page.release();
    mine.add_to<M>(*tally);
  }
};

/// Reads all elements in order, some pages at a time for each warp. Each load reads two elements, and each lane has
/// eight loads in flight: a whole page of 4 KiB for the warp. The number of elements is a multiple of `run`.
template <class M, class View>
struct stream_elements {
  static constexpr unsigned max_threads_per_block = 1024;  // 64 registers
  View view;
  std::uint64_t run;
  std::uint32_t pages;  ///< that a warp holds at a time
  cache_tally* tally;

  FOREBAY_DEVICE void operator()() const {
    auto window = view.warp_pages(pages);
    std::uint32_t const lane = M::this_warp().thread_rank();
    std::uint64_t const stretch = pages * run, step = std::uint64_t{M::thread_count() / 32} * stretch;
    std::uint64_t wrong = 0, sum = 0, seen = 0;
    std::uint32_t failed = 0;
    for (std::uint64_t first = std::uint64_t{M::thread_rank() / 32} * stretch; first < view.size(); first += step) {
      std::uint64_t const stop = first + stretch < view.size() ? first + stretch : view.size();
      for (std::uint64_t from = first; from < stop; from += run) {
        if (!window.seek(from, stop).ok()) {
          ++failed;
          continue;
        }
        auto const* const data = reinterpret_cast<simt::vec16 const*>(window.data() + (from - window.first()));
        std::uint32_t at = lane;  // in pairs
        for (; at + (batch - 1) * 32 < run / 2; at += batch * 32) add<batch>(data + at, from + 2 * at, wrong, sum);
        for (; at < run / 2; at += 32) add<1>(data + at, from + 2 * at, wrong, sum);
        seen += run;
      }
    }
    window.release();
    cache_tally mine{.accesses = lane == 0 ? seen : 0, .wrong = wrong != 0 ? 1u : 0u, .failed = failed, .sum = sum};
    mine.add_to<M>(*tally);
  }

 private:
  static constexpr std::uint32_t batch = 8;

  /// `Count` pairs, 32 apart, of which the first is element `i` and the next one.
  template <std::uint32_t Count>
  FOREBAY_DEVICE static void add(simt::vec16 const* data, std::uint64_t i, std::uint64_t& wrong, std::uint64_t& sum) {
    simt::vec16 two[Count];
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < Count; ++k) two[k] = M::ld(data + k * 32);
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < Count; ++k) {
      std::uint64_t const at = (i + k * 64) << count_bits_of_element;
      // A difference in the index is a difference in the upper bits.
      wrong |= ((two[k].low - at) | (two[k].high - at - (1u << count_bits_of_element))) >> count_bits_of_element;
      sum += (two[k].low - at) + (two[k].high - at - (1u << count_bits_of_element));
    }
  }
};

/// Reads elements at random.
template <class M, class View>
struct read_at_random {
  View view;
  std::uint32_t rounds;
  std::uint64_t seed;
  cache_tally* tally;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t state = emulator::mix(seed ^ M::thread_rank());
    std::uint64_t const size = view.size();
    std::uint64_t wrong = 0;
    for (std::uint32_t k = 0; k < rounds; ++k) {
      // Constants of Knuth's MMIX generator; the upper half, scaled, is the index: `size` is below 2^32.
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::uint64_t const i = (state >> 32) * size >> 32;
      cache_element const value = view[i];
      wrong += value >> count_bits_of_element != i;
    }
    cache_tally const mine{.accesses = rounds, .wrong = wrong};
    mine.add_to<M>(*tally);
  }
};

/// Reads one element of each of the pages [0, pages), all in an order in which no page comes twice.
template <class M, class View>
struct read_each_page {
  View view;
  std::uint64_t run;
  std::uint64_t pages;         ///< a power of two
  std::uint64_t factor;        ///< odd
  std::uint64_t first, count;  ///< of the order
  cache_tally* tally;

  FOREBAY_DEVICE void operator()() const {
    cache_tally mine;
    for (std::uint64_t k = M::thread_rank(); k < count; k += M::thread_count()) {
      std::uint64_t page = (first + k) * factor & (pages - 1);
      page ^= page >> 13;
      page = page * (factor ^ 0x5851f42d4c957f2cu) & (pages - 1);
      std::uint64_t const i = page * run + page % run;
      mine.see(i, view[i]);
    }
    mine.add_to<M>(*tally);
  }
};

/// Reads and adds to elements at random.
template <class M, class View>
struct read_and_add {
  View view;
  std::uint32_t rounds;
  std::uint32_t percent_added;
  std::uint64_t seed;
  cache_tally* tally;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t state = emulator::mix(seed ^ M::thread_rank());
    std::uint64_t const size = view.size();
    cache_tally mine;
    for (std::uint32_t k = 0; k < rounds; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::uint64_t const i = (state >> 32) * size >> 32;
      bool const add = (state >> 8 & 0xffff) * 100 >> 16 < percent_added;
      cache_element const value = add ? view.fetch_add(i, 1) : static_cast<cache_element>(view[i]);
      mine.added += add ? 1 : 0;
      mine.see(i, value);
    }
    mine.sum = 0;
    mine.add_to<M>(*tally);
  }
};

/// An array in memory, as a view.
template <class T>
struct memory_view {
  T* data;
  std::uint64_t count;
  FOREBAY_DEVICE std::uint64_t size() const { return count; }
  FOREBAY_DEVICE T& operator[](std::uint64_t i) const { return data[i]; }
  struct page {
    T* data_;
    std::uint64_t count_;
    FOREBAY_DEVICE status seek(std::uint64_t, std::uint64_t = 0) { return {}; }
    FOREBAY_DEVICE std::uint64_t first() const { return 0; }
    FOREBAY_DEVICE std::uint64_t end() const { return count_; }
    FOREBAY_DEVICE T* data() const { return data_; }
    FOREBAY_DEVICE T& operator[](std::uint64_t i) const { return data_[i]; }
    FOREBAY_DEVICE void release() {}
  };
  FOREBAY_DEVICE page warp_page() const { return {data, count}; }
  FOREBAY_DEVICE page warp_pages(std::uint32_t) const { return {data, count}; }
};

}  // namespace forebay::bench
