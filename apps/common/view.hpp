// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the programs ask of an array that they read, so that each is written once for every place where its data can
//! lie. docs/internals/views.md has the models.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "forebay/status.hpp"

namespace forebay::apps {

/// A position in an array, with a run of elements around it within reach: plain loads read these.
///
/// - `seek(i, stop)` brings element `i` within reach, for a caller that next needs the elements [i, stop). It waits
///   until they are there. What was within reach before is no longer. It returns success, `out_of_range` if there is no
///   element `i`, or why the element cannot be had.
/// - The elements [first(), end()) are within reach. They lie one after the other, so that `&cursor[i]` is a pointer to
///   all of them from `i` on. Before the first seek there are none. After one that failed, nothing may be read.
///
/// A seek to an element that is within reach already does nothing. Any other seek with the cursor of a thread brings
/// all of [i, stop) within reach if they lie in one page of the view. A warp shares its cursor: the lanes of a full
/// warp make it, call its functions and destroy it together, with the same arguments.
template <class C, class T>
concept cursor = requires(C& c, C const& there, std::uint64_t i) {
  { c.seek(i, i) } -> std::same_as<status>;
  { there.first() } -> std::same_as<std::uint64_t>;
  { there.end() } -> std::same_as<std::uint64_t>;
  { there[i] } -> std::same_as<T const&>;
};

/// An array of a trivially copyable type. Kernels take it by value, and it may be used by all threads of a grid.
///
/// - `thread_page()`: a cursor of the calling thread. `warp_page()`: a cursor of its warp. `warp_pages(n)`: one that
///   brings up to `n` pages within reach together, 1 to 32. A thread has one cursor of a view at a time, of one of the
///   three kinds.
/// - `prefetch(i)` starts to bring the page of element `i` closer, and returns at once. It is a hint: false says that
///   nothing was started.
///
/// The elements of a view form pages of equal size, a power of two. What a page is depends on the view, and the program
/// that makes the view knows it.
template <class V>
concept view = std::is_trivially_copyable_v<V> && requires(V const& v, std::uint64_t i, std::uint32_t pages) {
  typename V::value_type;
  { v.size() } -> std::same_as<std::uint64_t>;
  { v.thread_page() } -> cursor<typename V::value_type>;
  { v.warp_page() } -> cursor<typename V::value_type>;
  { v.warp_pages(pages) } -> cursor<typename V::value_type>;
  { v.prefetch(i) } -> std::same_as<bool>;
};

}  // namespace forebay::apps
