// SPDX-License-Identifier: Apache-2.0
//! \file
//! A storage as an array: kernels read and write its elements in place, through the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/page_cursor.hpp"
#include "forebay/page_window.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// An array of a trivially copyable type `T` behind the cache: `size()` elements, from a given byte of a storage on.
/// Trivially copyable; thread-safe. An `array_view<T const, ...>` only reads. Every access looks for the page in the
/// cache. If the page is not there, the access reads it from its drive and waits, up to the storage's default time.
///
/// If threads of a warp miss the same page at the same time, that is one miss. A cursor makes a run of accesses to one
/// page cost one lookup: `thread_page()`, `warp_page()`. A window looks several pages up at once, for runs over many
/// pages: `warp_pages()`.
///
/// `view[i]`, `load(i)`, `store` and `fetch_add` return no status. If one of them fails, it returns a value-initialised
/// element, or writes nothing. The storage counts these failures and keeps the first one for `storage::take_errors()`:
/// `out_of_range` beyond the end, `read_only`, `no_frame`, `timed_out`, or the drive's status. `try_load` and
/// `try_store` return the status.
///
/// Elements of 1, 2, 4, 8 or 16 bytes that are aligned to their size never lie in two pages, and a hit reads them
/// without a pin. Other elements may lie in two pages: the part in each page is then read or written on its own.
template <class T, class Cache>
class array_view {
 public:
  using machine = typename Cache::machine;
  using value_type = std::remove_const_t<T>;
  static_assert(std::is_trivially_copyable_v<value_type>,
                "array<T>: T must be trivially copyable, since a drive holds its bytes and runs no constructor: use a "
                "plain struct of numbers and arrays of fixed size");

  array_view() = default;
  /// Elements from byte `first_byte` of the storage on, which is a multiple of the alignment of `T`.
  FOREBAY_DEVICE array_view(Cache const& cache, std::uint64_t first_byte, std::uint64_t size, bool writable)
      : cache_(cache), first_byte_(first_byte), size_(size), writable_(writable) {}

  /// The number of elements.
  FOREBAY_DEVICE std::uint64_t size() const { return size_; }

  /// One element, as `view[i]` returns it: it reads when it is used as a value, and writes when it is assigned to. It
  /// holds a copy of the view, since that may be a temporary, as in `drives[d][i]`. `auto x = view[i]` is a reference,
  /// not a value. Only a temporary can be assigned to, so a later `x = 5` does not compile, rather than write to the
  /// drive: write `float x = view[i]` for the value. `+=` and the like read and then write, as on any array: use
  /// `fetch_add` if other threads may write the same element.
  class reference {
   public:
    /// Element `i` of the view.
    FOREBAY_DEVICE reference(array_view const& view, std::uint64_t i) : view_(view), i_(i) {}
    /// Reads the element.
    FOREBAY_DEVICE operator value_type() const { return view_.load(i_); }
    reference(reference const&) = default;
    /// Writes the element, and returns what was written. `view[i]++` and `view[i]--` return the value before.
    FOREBAY_DEVICE value_type operator=(value_type const& value) const&&
      requires(!std::is_const_v<T>)
    {
      return assign(value);
    }
    FOREBAY_DEVICE value_type operator=(reference const& other) const&&
      requires(!std::is_const_v<T>)
    {
      return assign(static_cast<value_type>(other));
    }
    FOREBAY_DEVICE value_type operator+=(value_type const& amount) const&&
      requires(!std::is_const_v<T> && requires(value_type a) { a + a; })
    {
      return assign(static_cast<value_type>(static_cast<value_type>(*this) + amount));
    }
    FOREBAY_DEVICE value_type operator-=(value_type const& amount) const&&
      requires(!std::is_const_v<T> && requires(value_type a) { a - a; })
    {
      return assign(static_cast<value_type>(static_cast<value_type>(*this) - amount));
    }
    FOREBAY_DEVICE value_type operator*=(value_type const& factor) const&&
      requires(!std::is_const_v<T> && requires(value_type a) { a * a; })
    {
      return assign(static_cast<value_type>(static_cast<value_type>(*this) * factor));
    }
    FOREBAY_DEVICE value_type operator++() const&&
      requires(!std::is_const_v<T> && std::is_arithmetic_v<value_type>)
    {
      return assign(static_cast<value_type>(static_cast<value_type>(*this) + 1));
    }
    FOREBAY_DEVICE value_type operator--() const&&
      requires(!std::is_const_v<T> && std::is_arithmetic_v<value_type>)
    {
      return assign(static_cast<value_type>(static_cast<value_type>(*this) - 1));
    }
    FOREBAY_DEVICE value_type operator++(int) const&&
      requires(!std::is_const_v<T> && std::is_arithmetic_v<value_type>)
    {
      value_type const before = *this;
      (void)assign(static_cast<value_type>(before + 1));
      return before;
    }
    FOREBAY_DEVICE value_type operator--(int) const&&
      requires(!std::is_const_v<T> && std::is_arithmetic_v<value_type>)
    {
      value_type const before = *this;
      (void)assign(static_cast<value_type>(before - 1));
      return before;
    }

   private:
    FOREBAY_DEVICE value_type assign(value_type const& value) const {
      view_.store(i_, value);
      return value;
    }
    array_view view_;
    std::uint64_t i_;
  };

  /// Element `i`: its value if the view only reads, else a `reference` to it.
  FOREBAY_DEVICE auto operator[](std::uint64_t i) const {
    if constexpr (std::is_const_v<T>) {
      return load(i);
    } else {
      return reference(*this, i);
    }
  }

  /// The value of element `i`.
  FOREBAY_DEVICE value_type load(std::uint64_t i) const {
    value_type value{};
    status const outcome = try_load(i, value);
    if (!outcome.ok()) {
      cache_.targets().report(outcome, byte_of(i));
      value = value_type{};
    }
    return value;
  }
  /// Writes element `i`.
  FOREBAY_DEVICE void store(std::uint64_t i, value_type const& value) const
    requires(!std::is_const_v<T>)
  {
    status const outcome = try_store(i, value);
    if (!outcome.ok()) cache_.targets().report(outcome, byte_of(i));
  }

  /// Reads element `i` into `value`.
  FOREBAY_DEVICE status try_load(std::uint64_t i, value_type& value) const {
    if (i >= size_) return fault::out_of_range;
    std::uint64_t const byte = first_byte_ + i * sizeof(T);
    if constexpr (simt::plain<value_type> && stays_in_a_page) {
      if (cache_.try_read(byte >> cache_.page_shift(), offset_in_page(byte), value)) return {};
      return read_bytes<true>(byte, reinterpret_cast<std::byte*>(&value));
    } else {
      return read_bytes<false>(byte, reinterpret_cast<std::byte*>(&value));
    }
  }
  /// Writes element `i`.
  FOREBAY_DEVICE status try_store(std::uint64_t i, value_type const& value) const
    requires(!std::is_const_v<T>)
  {
    if (i >= size_) return fault::out_of_range;
    if (!writable_) return fault::read_only;
    return with_parts(first_byte_ + i * sizeof(T), access::write,
                      [&](std::byte* in_frame, std::size_t at, std::size_t n) {
                        move(in_frame, reinterpret_cast<std::byte const*>(&value) + at, n);
                      });
  }
  /// Adds to an element in one step, which no other access to the element can interrupt; returns the value before. For
  /// integers of 4 or 8 bytes.
  FOREBAY_DEVICE value_type fetch_add(std::uint64_t i, value_type amount) const
    requires(!std::is_const_v<T> && simt::word<value_type>)
  {
    status outcome = i >= size_ ? fault::out_of_range : !writable_ ? fault::read_only : fault::none;
    value_type before{};
    if (outcome.ok()) {
      outcome =
          with_parts(first_byte_ + i * sizeof(T), access::write, [&](std::byte* in_frame, std::size_t, std::size_t) {
            // Relaxed: the pin orders it with the threads that pin the page before and afterwards.
            before =
                simt::atomic<machine>(*reinterpret_cast<value_type*>(in_frame)).fetch_add(amount, simt::order::relaxed);
          });
    }
    if (!outcome.ok()) cache_.targets().report(outcome, byte_of(i));
    return before;
  }

  /// Copies elements [first, first + count) to `to`, with one lookup for each page.
  FOREBAY_DEVICE status load(std::uint64_t first, std::uint64_t count, value_type* to) const {
    if (first > size_ || count > size_ - first) return fault::out_of_range;
    std::uint64_t byte = first_byte_ + first * sizeof(T);
    auto* out = reinterpret_cast<std::byte*>(to);
    for (std::uint64_t left = count * sizeof(T); left != 0;) {
      std::uint32_t const offset = offset_in_page(byte);
      std::uint64_t const room = page_bytes() - offset;
      std::uint64_t const n = left < room ? left : room;
      page_pin const pinned = cache_.pin(byte >> cache_.page_shift(), access::read, when_full::wait);
      if (!pinned.outcome.ok()) return pinned.outcome;
      machine::copy(out, cache_.frame_data(pinned.frame) + offset, n);
      cache_.unpin(pinned.frame);
      byte += n;
      out += n;
      left -= n;
    }
    return {};
  }

  /// Whether the page of element `i` is in a set of the cache, or being read into one; if so, counts a hit to the
  /// replacement policy. If you prefetch many pages at once, touch all of them first: then the pages that come in evict
  /// none of those that are there. The few pages in overflow frames and users' buffers count as missing.
  FOREBAY_DEVICE bool touch(std::uint64_t i) const {
    return i < size_ && cache_.touch_page((first_byte_ + i * sizeof(T)) >> cache_.page_shift());
  }

  /// The same, and starts reading the page into the cache if it is not there. Never waits. False if there was no room,
  /// or no such element.
  FOREBAY_DEVICE bool prefetch(std::uint64_t i) const {
    if (i >= size_) return false;
    return cache_.prefetch((first_byte_ + i * sizeof(T)) >> cache_.page_shift());
  }

  /// Delivers the completions of prefetches, until no command of the storage is in flight; false if one still is at the
  /// deadline. Without it, a prefetched page becomes available only when some thread waits, for any reason, and finds
  /// the page's completion. It is for a small kernel that follows a prefetching kernel and runs beside others. Its
  /// threads share out the queue pairs of all drives: with far fewer threads than pairs, drives read faster than it
  /// delivers.
  FOREBAY_DEVICE bool await_prefetches(std::uint64_t deadline_ns) const {
    return cache_.queues().drain_share(deadline_ns) == 0;
  }

  /// How many pages, of all arrays of the storage, may be prefetched before the first of them is used: half of those
  /// that the cache's sets hold. If you prefetch further ahead, pages are evicted before they are used.
  FOREBAY_DEVICE std::uint64_t prefetch_distance_max() const { return cache_.prefetch_distance_max(); }

  /// A cursor of one thread, or of the full warp that the calling thread belongs to; the lanes of a warp call the
  /// cursor's functions together. A cursor must not outlive the view, whose cache it uses: keep the view in a variable.
  /// There are no cursors of a temporary view: `ref.array<float>().thread_page()` does not compile.
  FOREBAY_DEVICE page_cursor<T, Cache, false> thread_page() const& { return {cache_, first_byte_, size_, writable_}; }
  FOREBAY_DEVICE page_cursor<T, Cache, true> warp_page() const& { return {cache_, first_byte_, size_, writable_}; }
  void thread_page() const&& = delete;
  void warp_page() const&& = delete;
  /// The same for up to `pages` consecutive pages, which the lanes of the warp look up together, one page each. `pages`
  /// is 1 to 32. More count as 32, since a warp has 32 lanes, and 0 counts as 1.
  FOREBAY_DEVICE page_window<T, Cache> warp_pages(std::uint32_t pages) const& {
    return {cache_, first_byte_, size_, writable_, pages};
  }
  void warp_pages(std::uint32_t pages) const&& = delete;

 private:
  /// Whether every element lies in one page, whatever the page size: page sizes are powers of two, 512 at least. An
  /// element that is not aligned to its size may lie in two.
  static constexpr bool stays_in_a_page = alignof(T) == sizeof(T) && sizeof(T) <= 512;

  FOREBAY_DEVICE std::uint64_t byte_of(std::uint64_t i) const { return first_byte_ + i * sizeof(T); }
  FOREBAY_DEVICE std::uint32_t page_bytes() const { return 1u << cache_.page_shift(); }
  FOREBAY_DEVICE std::uint32_t offset_in_page(std::uint64_t byte) const {
    return static_cast<std::uint32_t>(byte) & (page_bytes() - 1);
  }

  /// Calls `use(bytes in the frame, offset in the element, how many)` for each page that the element at `byte` lies in,
  /// while that page is pinned.
  template <class Use>
  FOREBAY_DEVICE status with_parts(std::uint64_t byte, access how, Use&& use) const {
    for (std::size_t done = 0; done < sizeof(T);) {
      std::uint32_t const offset = offset_in_page(byte + done);
      std::size_t n = sizeof(T) - done;
      if constexpr (!stays_in_a_page) {
        if (n > page_bytes() - offset) n = page_bytes() - offset;
      }
      page_pin const pinned = cache_.pin((byte + done) >> cache_.page_shift(), how, when_full::wait);
      if (!pinned.outcome.ok()) return pinned.outcome;
      use(cache_.frame_data(pinned.frame) + offset, done, n);
      cache_.unpin(pinned.frame);
      done += n;
    }
    return {};
  }

  /// Reads an element whose page has to be pinned. `LookedAt`: the caller has found the page in no frame. Lanes that
  /// come together and want the same page pin it once.
  template <bool LookedAt>
  FOREBAY_DEVICE status read_bytes(std::uint64_t byte, std::byte* to) const {
    for (std::size_t done = 0; done < sizeof(T);) {
      std::uint32_t const offset = offset_in_page(byte + done);
      std::size_t n = sizeof(T) - done;
      if constexpr (!stays_in_a_page) {
        if (n > page_bytes() - offset) n = page_bytes() - offset;
      }
      std::uint64_t const page = (byte + done) >> cache_.page_shift();
      auto const here = machine::converged();
      auto const same = here.subset(here.match_any(page));
      std::uint32_t const leader = simt::lowest_bit(same.mask());
      page_pin pinned;
      if (same.thread_rank() == leader) {
        pinned = LookedAt ? cache_.pin_missing(page, access::read, when_full::wait)
                          : cache_.pin(page, access::read, when_full::wait);
      }
      // What the leader has acquired, all lanes now have.
      same.sync();
      pinned = same.shfl(pinned, leader);
      if (pinned.outcome.ok()) {
        move(to + done, cache_.frame_data(pinned.frame) + offset, n);
        // All lanes have read before the leader unpins.
        same.sync();
        if (same.thread_rank() == leader) cache_.unpin(pinned.frame);
      }
      // They go on together: no lane holds a page that another lane waits for.
      here.sync();
      if (!pinned.outcome.ok()) return pinned.outcome;
      done += n;
    }
    return {};
  }

  /// Copies bytes of an element, in one access if the element allows it.
  FOREBAY_DEVICE static void move(std::byte* to, std::byte const* from, std::size_t bytes) {
    if constexpr (simt::plain<value_type> && stays_in_a_page) {
      machine::st(reinterpret_cast<value_type*>(to), machine::ld(reinterpret_cast<value_type const*>(from)));
    } else {
      machine::copy(to, from, bytes);
    }
  }

  Cache cache_;
  std::uint64_t first_byte_ = 0;
  std::uint64_t size_ = 0;
  bool writable_ = false;
};

}  // namespace forebay
