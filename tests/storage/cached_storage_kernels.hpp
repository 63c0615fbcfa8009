// SPDX-License-Identifier: Apache-2.0
//! \file
//! Kernels of the cached storage suite, for any machine.
#pragma once

#include <cstdint>

#include "forebay/cached_storage_ref.hpp"
#include "storage/storage_kernels.hpp"

namespace forebay::storage_test {

/// What word `i` of a storage holds after its owner has written it `number` times: a reader can tell which word it is.
FOREBAY_DEVICE constexpr std::uint64_t numbered(std::uint64_t i, std::uint64_t number) {
  return (i + 1) << 24 | number;
}

/// Neither a power of two nor a divisor of any page: every few of them lie in two pages.
struct record24 {
  std::uint64_t a, b, c;

  FOREBAY_DEVICE static record24 of(std::uint64_t i) { return {stamp(i, 1), stamp(i, 2), stamp(i, 3)}; }
  FOREBAY_DEVICE bool operator==(record24 const& other) const { return a == other.a && b == other.b && c == other.c; }
};

/// As large as one access, but aligned to a quarter of it.
struct quad {
  std::uint32_t a, b, c, d;

  FOREBAY_DEVICE static quad of(std::uint64_t i) {
    auto const n = static_cast<std::uint32_t>(i);
    return {n, n ^ 0x55555555u, ~n, n * 2654435761u};
  }
  FOREBAY_DEVICE bool operator==(quad const& other) const {
    return a == other.a && b == other.b && c == other.c && d == other.d;
  }
};

/// Each thread reads random words, by the array's two ways of reading one.
template <class M, class Ref>
struct read_words {
  Ref storage;
  std::uint32_t rounds;
  std::uint64_t seed;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    for (std::uint32_t r = 0; r < rounds; ++r) {
      std::uint64_t const i = mix(seed + M::thread_rank() * 1000003ull + r) % words.size();
      std::uint64_t value = 0;
      status outcome;
      if (r % 2 == 0) {
        outcome = words.try_load(i, value);
      } else {
        value = words[i];
      }
      count<M>(result, outcome, value == stamp(i * 8, generation));
    }
  }
};

/// Writes every word once, through the proxy.
template <class M, class Ref>
struct write_words {
  Ref storage;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t>();
    for (std::uint64_t i = M::thread_rank(); i < words.size(); i += M::thread_count()) {
      words[i] = stamp(i * 8, generation);
    }
    count<M>(result, {}, true);
  }
};

/// For a cache of one set. One thread holds every frame of the set, so that the next page goes to an overflow frame. It
/// then takes the set's lock, as other threads may at any moment. A thread that wants the page must still get it.
template <class M, class Ref>
struct use_an_overflow_frame_beside_a_lock {
  Ref storage;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    if (M::thread_rank() != 0) return;
    constexpr std::uint64_t next = cache_ways;
    auto const cache = storage.cache();
    std::uint32_t frames[cache_ways] = {};
    for (std::uint64_t page = 0; page < next; ++page) {
      page_pin const pinned = cache.pin(page, access::read);
      count<M>(result, pinned.outcome, pinned.frame < cache_ways);
      frames[page] = pinned.frame;
    }
    page_pin const first = cache.pin(next, access::read);
    count<M>(result, first.outcome, first.frame >= cache_ways);
    using set_type = cache_set<typename Ref::cache_type::policy_type>;
    auto const lock = simt::atomic<M>(reinterpret_cast<set_type*>(cache.state()->sets)->lock);
    // Relaxed, both: no other thread is there.
    lock.store(1, simt::order::relaxed);
    page_pin const second = cache.pin(next, access::write);
    count<M>(result, second.outcome, second.frame == first.frame);
    count<M>(result, {}, cache.prefetch(next));
    count<M>(result, {}, !cache.prefetch(next + 1));
    lock.store(0, simt::order::relaxed);
    for (std::uint64_t page = 0; page < next; ++page) cache.unpin(frames[page]);
    cache.unpin(first.frame);
    if (second.outcome.ok()) cache.unpin(second.frame);
  }
};

/// Random reads and writes, 70 to 30. Word `i` belongs to thread `i % threads`, which knows what it wrote last; the
/// words of other threads that it reads must have values that belong there.
template <class M, class Ref>
struct mixed_load {
  Ref storage;
  std::uint32_t rounds;
  std::uint64_t seed;
  std::uint32_t* written;  ///< for each word of the storage
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t>();
    std::uint64_t const me = M::thread_rank(), threads = M::thread_count();
    if (me >= words.size()) return;
    std::uint64_t const mine = (words.size() - me + threads - 1) / threads;
    for (std::uint32_t r = 0; r < rounds; ++r) {
      std::uint64_t const dice = mix(seed + me * 1000003ull + r);
      std::uint64_t const own = me + (dice >> 8) % mine * threads;
      if (dice % 100 < 30) {
        std::uint32_t const number = M::ld(written + own) + 1;
        M::st(written + own, number);
        count<M>(result, words.try_store(own, numbered(own, number)), true);
      } else if (dice % 100 < 65) {
        std::uint64_t value = 0;
        status const outcome = words.try_load(own, value);
        count<M>(result, outcome, value == numbered(own, M::ld(written + own)));
      } else {
        std::uint64_t const i = (dice >> 8) % words.size();
        std::uint64_t value = 0;
        status const outcome = words.try_load(i, value);
        count<M>(result, outcome, value >> 24 == i + 1);
      }
    }
  }
};

/// All threads add to the same few words.
template <class M, class Ref>
struct add_up {
  Ref storage;
  std::uint32_t counters;
  std::uint64_t apart;  ///< words between two of them
  std::uint32_t rounds;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t>();
    for (std::uint32_t r = 0; r < rounds; ++r) {
      std::uint64_t const k = mix(M::thread_rank() * 1000003ull + r) % counters;
      std::uint64_t const before = words.fetch_add(k * apart, k + 1);
      count<M>(result, {}, before % (k + 1) == 0);
    }
  }
};

/// Writes or checks elements of any type, from a byte of the storage on.
template <class M, class Ref, class T>
struct elements {
  Ref storage;
  std::uint64_t offset_bytes;
  bool write;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const all = storage.template array<T>(offset_bytes);
    for (std::uint64_t i = M::thread_rank(); i < all.size(); i += M::thread_count()) {
      if (write) {
        count<M>(result, all.try_store(i, T::of(i)), true);
      } else {
        T value{};
        status const outcome = all.try_load(i, value);
        count<M>(result, outcome, value == T::of(i));
      }
    }
  }
};

/// Each thread loads random stretches of records into its part of `buffer`.
template <class M, class Ref>
struct load_spans {
  Ref storage;
  buffer_ref buffer;
  std::uint32_t longest;
  std::uint32_t rounds;
  std::uint64_t seed;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const all = storage.template array<record24 const>();
    auto* const mine = reinterpret_cast<record24*>(buffer.data()) + std::uint64_t{M::thread_rank()} * longest;
    for (std::uint32_t r = 0; r < rounds; ++r) {
      std::uint64_t const dice = mix(seed + M::thread_rank() * 1000003ull + r);
      std::uint64_t const n = dice % (longest + 1);
      std::uint64_t const first = (dice >> 16) % (all.size() - n + 1);
      status const outcome = all.load(first, n, mine);
      bool good = true;
      for (std::uint64_t i = 0; i < n; ++i) good = good && mine[i] == record24::of(first + i);
      count<M>(result, outcome, good);
    }
  }
};

/// Writes every page whole through a thread's cursor or a warp's, without reading it.
template <class M, class Ref, bool WholeWarp>
struct overwrite_by_cursor {
  Ref storage;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t>();
    std::uint32_t const lanes = WholeWarp ? 32 : 1;
    std::uint32_t const lane = WholeWarp ? M::this_warp().thread_rank() : 0;
    std::uint64_t const per_page = storage.page_bytes() / sizeof(std::uint64_t);
    auto page = cursor(words);
    for (std::uint64_t at = M::thread_rank() / lanes * per_page; at < words.size();
         at += M::thread_count() / lanes * per_page) {
      status const outcome = page.seek_overwrite(at);
      if (!outcome.ok()) return count<M>(result, outcome, false);
      for (std::uint64_t i = page.first() + lane; i < page.end(); i += lanes) M::st(&page[i], stamp(i * 8, generation));
    }
    page.release();
    count<M>(result, status(), true);
  }

 private:
  template <class View>
  FOREBAY_DEVICE static auto cursor(View const& words) {
    if constexpr (WholeWarp) {
      return words.warp_page();
    } else {
      return words.thread_page();
    }
  }
};

/// Writes every word through a thread's cursor or a warp's: each thread, or each warp, has stretches of its own.
template <class M, class Ref, bool WholeWarp>
struct write_by_cursor {
  Ref storage;
  std::uint64_t generation;
  std::uint64_t stretch;  ///< words
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t>();
    if constexpr (WholeWarp) {
      auto const warp = M::this_warp();
      auto page = words.warp_page();
      std::uint64_t const step = M::thread_count() / 32 * stretch;
      for (std::uint64_t from = M::thread_rank() / 32 * stretch; from < words.size(); from += step) {
        std::uint64_t const to = from + stretch < words.size() ? from + stretch : words.size();
        for (std::uint64_t at = from; at < to;) {
          status const outcome = page.seek(at);
          if (!outcome.ok()) return count<M>(result, outcome, false);
          std::uint64_t const end = page.end() < to ? page.end() : to;
          for (std::uint64_t i = at + warp.thread_rank(); i < end; i += 32) M::st(&page[i], stamp(i * 8, generation));
          at = end;
        }
      }
    } else {
      auto page = words.thread_page();
      for (std::uint64_t from = M::thread_rank() * stretch; from < words.size(); from += M::thread_count() * stretch) {
        for (std::uint64_t i = from; i < from + stretch && i < words.size(); ++i) {
          status const outcome = page.seek(i);
          if (!outcome.ok()) return count<M>(result, outcome, false);
          M::st(&page[i], stamp(i * 8, generation));
        }
      }
    }
    count<M>(result, {}, true);
  }
};

/// Notes where the first word lies in memory.
template <class M, class Ref>
struct place_of_page {
  Ref storage;
  std::uint64_t* address;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    auto page = words.thread_page();
    status const outcome = page.seek(0);
    if (outcome.ok() && M::thread_rank() == 0) M::st(address, reinterpret_cast<std::uint64_t>(page.data()));
    count<M>(result, outcome, true);
  }
};

/// Reads every word through cursors; a thread's cursor goes over them backwards.
template <class M, class Ref, bool WholeWarp>
struct read_by_cursor {
  Ref storage;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    std::uint64_t const workers = WholeWarp ? M::thread_count() / 32 : M::thread_count();
    std::uint64_t const me = WholeWarp ? M::thread_rank() / 32 : M::thread_rank();
    std::uint64_t const each = (words.size() + workers - 1) / workers;
    std::uint64_t const from = me * each < words.size() ? me * each : words.size();
    std::uint64_t const to = from + each < words.size() ? from + each : words.size();
    bool good = true;
    if constexpr (WholeWarp) {
      auto const warp = M::this_warp();
      auto page = words.warp_page();
      for (std::uint64_t at = from; at < to;) {
        status const outcome = page.seek(at);
        if (!outcome.ok()) return count<M>(result, outcome, false);
        std::uint64_t const end = page.end() < to ? page.end() : to;
        for (std::uint64_t i = at + warp.thread_rank(); i < end; i += 32) {
          good = good && M::ld(&page[i]) == stamp(i * 8, generation);
        }
        at = end;
      }
    } else {
      auto page = words.thread_page();
      for (std::uint64_t i = to; i-- > from;) {
        status const outcome = page.seek(i);
        if (!outcome.ok()) return count<M>(result, outcome, false);
        good = good && M::ld(&page[i]) == stamp(i * 8, generation) && page.first() <= i && i < page.end() &&
               page.data() == &page[page.first()];
      }
    }
    count<M>(result, {}, good);
  }
};

/// Writes or reads every word through windows of up to `pages` pages; each warp has stretches of its own. Where it
/// reads, a warp goes through a window's pages in an order of its own.
template <class M, class Ref, class T>
struct go_by_window {
  Ref storage;
  std::uint64_t generation;
  std::uint64_t stretch;  ///< words
  std::uint32_t pages;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    constexpr bool writes = !std::is_const_v<T>;
    auto const words = storage.template array<T>();
    auto const warp = M::this_warp();
    auto window = words.warp_pages(pages);
    bool good = true;
    std::uint64_t const step = M::thread_count() / 32 * stretch;
    for (std::uint64_t from = M::thread_rank() / 32 * stretch; from < words.size(); from += step) {
      std::uint64_t const to = from + stretch < words.size() ? from + stretch : words.size();
      for (std::uint64_t at = from; at < to;) {
        status const outcome = window.seek(at, to);
        if (!outcome.ok()) return count<M>(result, outcome, false);
        std::uint64_t const end = window.end() < to ? window.end() : to;
        for (std::uint64_t i = at + warp.thread_rank(); i < end; i += 32) {
          if constexpr (writes) {
            M::st(&window[i], stamp(i * 8, generation));
          } else {
            good = good && M::ld(&window[i]) == stamp(i * 8, generation) && window.data() == &window[window.first()];
          }
        }
        at = end;
      }
      // Back to the first page, which the window may still have.
      if (!writes && window.seek(from, to).ok()) {
        good = good && M::ld(&window[from]) == stamp(from * 8, generation);
      }
    }
    count<M>(result, {}, good);
  }
};

/// Each thread holds pages of the first half while it writes the other half: a cursor for each of three stretches.
template <class M, class Ref>
struct copy_by_cursors {
  Ref storage;
  std::uint64_t generation;
  std::uint64_t words_each;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t>();
    auto const same_words = storage.template array<std::uint64_t const>();
    std::uint64_t const half = words.size() / 2;
    std::uint64_t const me = M::thread_rank() * words_each;
    auto from = same_words.thread_page();
    auto to = words.thread_page();
    auto again = words.thread_page();
    bool good = true;
    for (std::uint64_t i = me; i < me + words_each; ++i) {
      status outcome = from.seek(i);
      if (outcome.ok()) outcome = to.seek(half + i);
      if (outcome.ok()) outcome = again.seek(half + me);
      if (!outcome.ok()) return count<M>(result, outcome, false);
      M::st(&to[half + i], M::ld(&from[i]));
      good = good && M::ld(&again[half + me]) == stamp(me * 8, generation);
    }
    count<M>(result, {}, good);
  }
};

/// Asks for the page of a stretch ahead before each read.
template <class M, class Ref>
struct read_ahead {
  Ref storage;
  std::uint64_t distance;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    std::uint64_t const each = (words.size() + M::thread_count() - 1) / M::thread_count();
    std::uint64_t const from = M::thread_rank() * each;
    bool good = true;
    for (std::uint64_t i = from; i < from + each && i < words.size(); i += 16) {
      if (i % 32 == 0) {
        (void)words.prefetch(i + distance);
      } else {
        (void)storage.prefetch((i + distance) * 8);
      }
      good = good && words[i] == stamp(i * 8, generation);
    }
    count<M>(result, {}, good);
  }
};

/// The threads of a block prefetch a page each, and then read each other's pages without waiting.
template <class M, class Ref>
struct read_what_was_prefetched {
  Ref storage;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    std::uint64_t const each = storage.page_bytes() / 8, deadline_ns = storage.cache().default_deadline_ns();
    bool good = M::wait_until([&] { return words.prefetch(M::thread_rank() * each); }, deadline_ns);
    M::this_block().sync();
    good = words.await_prefetches(deadline_ns) && good;
    M::this_block().sync();
    std::uint64_t const page = (M::thread_rank() + 1) % M::thread_count();
    std::uint64_t value = 0;
    bool const there = storage.cache().try_read(page, 8, value);
    count<M>(result, good && there ? status() : status(fault::no_frame),
             value == stamp(page * each * 8 + 8, generation));
  }
};

/// One thread that fills a cache of one set, prefetches the page that would leave it next, and reads one page more.
template <class M, class Ref>
struct prefetch_what_is_there {
  Ref storage;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    std::uint64_t const each = storage.page_bytes() / 8;
    bool good = true;
    for (std::uint64_t page = 0; page <= cache_ways; ++page) {
      if (page == cache_ways) good = words.prefetch(0) && good;
      good = words[page * each] == stamp(page * each * 8, generation) && good;
    }
    std::uint64_t value = 0;
    good = storage.cache().try_read(0, 8, value) && value == stamp(8, generation) && good;
    count<M>(result, {}, good);
  }
};

/// The answers of a view's members to calls that they cannot carry out.
struct answers {
  tally counted;
  std::uint32_t load_outside, store_outside, span_outside, span_wraps, store_read_only, seek_outside, seek_read_only;
  std::uint32_t seek_split, prefetch_outside, misaligned_size, size_beyond;
  std::uint64_t value_outside;
};

template <class M, class Ref>
struct ask {
  Ref storage;
  tally* result;  ///< the first member of `answers`

  FOREBAY_DEVICE void operator()() const {
    if (M::thread_rank() != 0) return;
    auto* const a = reinterpret_cast<answers*>(result);
    auto const words = storage.template array<std::uint64_t>();
    auto const read_only = storage.template array<std::uint64_t const>();
    std::uint64_t value = 7;
    a->load_outside = words.try_load(words.size(), value).bits();
    a->store_outside = words.try_store(~std::uint64_t{0}, 1).bits();
    a->span_outside = words.load(words.size() - 1, 2, &value).bits();
    a->span_wraps = words.load(1, ~std::uint64_t{0}, &value).bits();
    a->store_read_only = words.try_store(0, 1).bits();
    auto outside = read_only.thread_page();
    a->seek_outside = outside.seek(words.size()).bits();
    auto writing = words.thread_page();
    a->seek_read_only = writing.seek(0).bits();
    auto const records = storage.template array<record24 const>();
    auto split = records.thread_page();
    a->seek_split = split.seek(storage.page_bytes() / 24).bits();
    a->prefetch_outside = words.prefetch(words.size()) || storage.prefetch(storage.size_bytes());
    a->misaligned_size = storage.template array<std::uint64_t>(4).size() != 0;
    a->size_beyond = storage.template array<std::uint64_t>(storage.size_bytes() + 8).size() != 0;
    a->value_outside = read_only[words.size() + 5];
  }
};

/// A write that no thread waits for.
template <class M, class Ref>
struct write_one {
  Ref storage;
  std::uint64_t i;
  std::uint64_t value;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    if (M::thread_rank() != 0) return;
    count<M>(result, storage.template array<std::uint64_t>().try_store(i, value), true);
  }
};

/// Writes or checks the words of each drive's own array.
template <class M, class Ref>
struct drive_words {
  Ref storage;
  bool write;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const values = storage.template drive_arrays<std::uint64_t>();
    auto const read_only = storage.template drive_arrays<std::uint64_t const>();
    bool good = values.size() == read_only.size();
    for (std::uint32_t d = 0; d < values.size(); ++d) {
      for (std::uint64_t i = M::thread_rank(); i < values[d].size(); i += M::thread_count()) {
        if (write) {
          values[d][i] = stamp(i, d);
        } else {
          // It outlives the array that it came from.
          auto const element = values[d][i];
          good = good && read_only[d][i] == stamp(i, d) && element == stamp(i, d);
        }
      }
    }
    std::uint64_t value = 0;
    good = good && values[values.size()].try_load(0, value) == status(fault::out_of_range);
    count<M>(result, {}, good);
  }
};

/// The lanes of each warp read the words of one page at the same time.
template <class M, class Ref>
struct read_page_by_warps {
  Ref storage;
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    auto const words = storage.template array<std::uint64_t const>();
    std::uint64_t const per_page = storage.page_bytes() / 8;
    std::uint64_t const i = M::thread_rank() / 32 * per_page + M::thread_rank() % 32;
    count<M>(result, {}, words[i] == stamp(i * 8, generation));
  }
};

/// Each thread takes its own pages through every path in turn: each path must see what the one before has written.
template <class M, class Ref>
struct transfer_beside_views {
  Ref storage;
  buffer_ref buffers;  ///< two pages for each thread
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const bytes = storage.page_bytes();
    std::uint32_t const words = bytes / 8;
    auto const view = storage.template array<std::uint64_t>();
    buffer_ref const mine = buffers.subspan(M::thread_rank() * 2ull * bytes, 2ull * bytes);
    auto* const data = reinterpret_cast<std::uint64_t*>(mine.data());
    for (std::uint64_t page = M::thread_rank(); (page + 1) * bytes <= storage.size_bytes(); page += M::thread_count()) {
      std::uint64_t const first = page * words;
      // By the view, then read asynchronously.
      count<M>(result, view.try_store(first + 1, stamp(first + 1, 1)), true);
      count<M>(result, storage.read(mine, page * bytes, bytes), true);
      bool right = M::ld(data + 1) == stamp(first + 1, 1);
      // Overwritten asynchronously, then seen by the view.
      for (std::uint32_t w = 0; w < words; ++w) M::st(data + w, stamp(first + w, 2));
      count<M>(result,
               storage.write_async(mine, page * bytes, bytes, page % 2 == 0 ? write_until::cache : write_until::drive)
                   .wait(),
               right);
      right = view.load(first) == stamp(first, 2) && view.load(first + words - 1) == stamp(first + words - 1, 2);
      // A part of the page, at no block's boundary.
      M::st(data, stamp(first + 3, 3));
      count<M>(result, storage.write(mine, (first + 3) * 8, 8), right);
      buffer_ref const other = mine.subspan(bytes, bytes);
      status const outcome = storage.read(other, page * bytes, bytes);
      right = true;
      for (std::uint32_t w = 0; w < words; ++w) {
        right = right && M::ld(data + words + w) == stamp(first + w, w == 3 ? 3 : 2);
      }
      count<M>(result, outcome, right);
    }
  }
};

/// Each thread shares a buffer as each of its pages in turn, writes there, and takes it back; with `Leave` it leaves
/// the first buffer that it gets to the host.
template <class M, class Ref, bool Leave>
struct share_pages {
  Ref storage;
  buffer_ref buffers;  ///< a page for each thread
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const bytes = storage.page_bytes();
    std::uint32_t const words = bytes / 8;
    auto const view = storage.template array<std::uint64_t>();
    buffer_ref const mine = buffers.subspan(M::thread_rank() * std::uint64_t{bytes}, bytes);
    for (std::uint64_t page = M::thread_rank(); (page + 1) * bytes <= storage.size_bytes(); page += M::thread_count()) {
      std::uint64_t const first = page * words;
      auto shared = storage.share(mine, page * bytes, sharing_use::read);
      status outcome = shared.wait();
      auto* const data = reinterpret_cast<std::uint64_t*>(shared.data());
      bool right = outcome.ok() && M::ld(data + 1) == stamp((first + 1) * 8, generation);
      if (outcome.ok()) {
        right = right && shared.will_write().ok();
        for (std::uint32_t w = 0; w < words; ++w) M::st(data + w, stamp((first + w) * 8, generation + 1));
      }
      right = right && view.load(first + 5) == stamp((first + 5) * 8, generation + 1);
      if (Leave && shared.is_own()) return count<M>(result, outcome, right);
      if (outcome.ok()) outcome = shared.take_back();
      count<M>(result, outcome, right && view.load(first + 6) == stamp((first + 6) * 8, generation + 1));
    }
  }
};

/// Overwrites pages from buffers that are shared.
template <class M, class Ref>
struct share_to_overwrite {
  Ref storage;
  buffer_ref buffers;  ///< a page for each thread
  std::uint64_t generation;
  tally* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const bytes = storage.page_bytes();
    std::uint32_t const words = bytes / 8;
    auto const view = storage.template array<std::uint64_t>();
    buffer_ref const mine = buffers.subspan(M::thread_rank() * std::uint64_t{bytes}, bytes);
    auto* const data = reinterpret_cast<std::uint64_t*>(mine.data());
    for (std::uint64_t page = M::thread_rank(); (page + 1) * bytes <= storage.size_bytes(); page += M::thread_count()) {
      std::uint64_t const first = page * words;
      for (std::uint32_t w = 0; w < words; ++w) M::st(data + w, stamp((first + w) * 8, generation));
      auto shared = storage.share(mine, page * bytes, sharing_use::overwrite);
      status outcome = shared.outcome();
      bool const right = view.load(first + 7) == stamp((first + 7) * 8, generation);
      if (outcome.ok()) outcome = shared.take_back();
      count<M>(result, outcome, right);
    }
  }
};

}  // namespace forebay::storage_test
