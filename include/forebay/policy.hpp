// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a replacement policy is: it chooses which page leaves a set of the page directory when another must come in.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::replacement {

/// The most ways that a set has.
inline constexpr std::uint32_t max_ways = 16;
/// The most marks that a page has.
inline constexpr std::uint32_t max_mark_bits = 3;
/// Stands for no way: what `victim` returns if no page may leave.
inline constexpr std::uint32_t no_way = ~0u;

/// What a set's words said when they were last read, all at once. Bit `w` of a mask stands for way `w`.
struct set_view {
  std::uint32_t pages = 0;  ///< ways that hold a page, or into which one is being read
  /// Those of them whose page may leave: read, clean, not pinned, not protected by a prefetch.
  std::uint32_t evictable = 0;
  std::uint32_t marked[max_mark_bits] = {};  ///< [b]: ways whose page has mark `b`
};

/// A set as the directory shows it to a policy, under the set's lock.
template <class Set>
concept set_access = requires(Set const& set, std::uint32_t ways, std::uint32_t marks) {
  /// How many ways the set has, 1 to `max_ways`; the same for all sets of a directory.
  { set.ways() } -> std::same_as<std::uint32_t>;
  /// What the words of the set say, or said earlier under this lock, without the marks that `unmark` has cleared since.
  { set.look() } -> std::same_as<set_view>;
  /// Clears the marks in `marks` of the pages in the ways in `ways`; both are masks.
  { set.unmark(ways, marks) } -> std::same_as<void>;
};

/// A set without ways, to check policies with.
struct empty_set {
  FOREBAY_DEVICE std::uint32_t ways() const { return 0; }
  FOREBAY_DEVICE set_view look() const { return {}; }
  FOREBAY_DEVICE void unmark(std::uint32_t, std::uint32_t) const {}
};
static_assert(set_access<empty_set>);

/// A replacement policy on machine `M`: `static_assert(replacement::policy<clock, M>)`.
///
/// A policy is a type. The directory is a template on it, so what a policy does not use costs nothing. A policy decides
/// for one **set** of 1 to 16 **ways** at a time; a way is a frame that holds one page or none. A policy keeps
///
/// - **marks**: up to 3 bits of each page's word. Hits set them without a lock; only the policy clears them.
/// - a **set_state**: a trivially copyable struct of its own for each set, in device memory.
///
/// The directory calls the following, with M the machine that the code runs on:
///
/// ```
/// struct some_policy {
///   static constexpr char const* name = "some_policy";
///   static constexpr std::uint32_t mark_bits = 1;  // of a page's word, 0 to 3
///   struct set_state { ... };                      // all zero: a set that has held no page
///
///   // A thread uses the page in `way`, whose marks it read as `marks`: returns those and perhaps more.
///   template <class M>
///   static std::uint32_t hit(std::uint32_t marks, set_state* state, std::uint32_t way);
///
///   // A way whose page shall leave: one of `set.look().evictable`, or `no_way` if that is empty.
///   template <class M, class Set>
///   static std::uint32_t victim(Set const& set, set_state* state);
///
///   // The page `tag` leaves `way` to make room; its word had `marks`.
///   template <class M, class Set>
///   static void evicted(Set const& set, set_state* state, std::uint32_t way, std::uint32_t tag, std::uint32_t marks);
///
///   // The page `tag` comes into `way`, which is free: returns its first marks.
///   template <class M, class Set>
///   static std::uint32_t filled(Set const& set, set_state* state, std::uint32_t way, std::uint32_t tag);
/// };
/// ```
///
/// **What the directory promises.**
/// - `victim`, `evicted` and `filled` run under the set's lock: one thread at a time for a set, which sees what the
///   thread before it wrote. So they use `M::ld` and `M::st` on the state. They are short and never wait.
/// - `hit` runs in any thread, at any time, concurrently with all of them and with itself. It touches parts of the
///   state only as a relaxed `simt::atomic<M>`, since all threads touch them. If it returns `marks` unchanged, nothing
///   is written. The page may meanwhile have left: `hit` is a hint, and may then mark the page that came instead.
/// - A way without a page is filled without asking `victim`.
/// - `victim` is only asked when no way is free. The way that it returns may have become unevictable (pinned, dirty) by
///   then. `victim` is then asked again, a bounded number of times, or not at all. So a call of `victim` alone is no
///   eviction.
/// - `evicted` and then `filled` are called once the eviction is certain, in the same hold of the lock. `evicted` may
///   also be called alone.
/// - A page may also leave without `evicted` (invalidated, or its read failed): its way is then missing in
///   `set_view::pages`.
/// - The directory decides which accesses are hits. Lanes of a warp that use one page together are one hit.
///
/// **What the policy promises.** `victim` ends after a number of steps that the number of ways bounds. It finds a way
/// if the view that it took has one, whatever hits do meanwhile.
template <class P, class M>
concept policy =
    requires(typename P::set_state* state, empty_set const& set, std::uint32_t way, std::uint32_t tag,
             std::uint32_t marks) {
      { P::name } -> std::convertible_to<char const*>;
      { P::mark_bits } -> std::convertible_to<std::uint32_t>;
      { P::template hit<M>(marks, state, way) } -> std::same_as<std::uint32_t>;
      { P::template victim<M>(set, state) } -> std::same_as<std::uint32_t>;
      { P::template evicted<M>(set, state, way, tag, marks) } -> std::same_as<void>;
      { P::template filled<M>(set, state, way, tag) } -> std::same_as<std::uint32_t>;
    } &&
    P::mark_bits <= max_mark_bits && std::is_trivially_copyable_v<typename P::set_state> &&
    std::is_trivially_default_constructible_v<typename P::set_state>;

}  // namespace forebay::replacement
