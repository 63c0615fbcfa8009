// SPDX-License-Identifier: Apache-2.0
//! \file
//! The second level: pages that left a set's frames, kept in host memory until they are wanted again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"

namespace forebay {

/// Written by the host before any thread uses it.
struct host_pool_state {
  std::uint32_t* words = nullptr;      ///< per way: a `host_word`
  std::byte* policy_states = nullptr;  ///< per group of ways
  std::uint32_t policy_state_bytes = 0;
  std::uint32_t groups = 0;  ///< of `replacement::max_ways` ways, for each set of the cache; 0: there is no host pool
  std::byte* frames = nullptr;  ///< page-locked where a GPU's threads use them
};

/// The word of a way of the host pool: state 2 bits, doomed 1, unused 1, tag 28.
struct host_word {
  enum class content : std::uint32_t {
    nothing = 0,
    arriving = 1,  ///< a page that a thread copies here
    page = 2,
    leaving = 3,  ///< a page that a thread copies into a frame
  };
  /// Of an arriving page: it must be forgotten on arrival, since it has come back to a frame meanwhile.
  static constexpr std::uint32_t doomed = 4;
  static constexpr std::uint32_t tag_shift = 4;

  std::uint32_t bits = 0;

  FOREBAY_DEVICE static constexpr host_word of(content what, std::uint32_t tag) {
    return {static_cast<std::uint32_t>(what) | tag << tag_shift};
  }
  FOREBAY_DEVICE constexpr content what() const { return static_cast<content>(bits & 3); }
  FOREBAY_DEVICE constexpr std::uint32_t tag() const { return bits >> tag_shift; }
};

/// A page is in a frame or in the host pool, never in both. So the host pool holds no page that is out of date. Only
/// clean pages come here, so nothing is lost when a page is forgotten. All functions but arrived() and left() need the
/// lock of the cache's set; none waits. `Policy`: see `replacement::policy`. It is asked for a group of ways at a time.
/// A page that is used leaves the pool, so `hit` is never called.
template <class M, class Policy>
class host_pool {
 public:
  static constexpr std::uint32_t none = ~0u;
  static constexpr std::uint32_t ways = replacement::max_ways;

  FOREBAY_DEVICE explicit host_pool(host_pool_state const& state) : s_(state) {}

  /// The way that holds the page; the caller copies the page out and then calls left(). `none`: no way holds it.
  FOREBAY_DEVICE std::uint32_t take(page_location at) const {
    std::uint32_t const way = find(at);
    if (way == none) return none;
    host_word const seen = look(way);
    if (seen.what() == host_word::content::page) {
      // Relaxed: under the lock; no other thread changes the word of a page.
      word(way).store(host_word::of(host_word::content::leaving, at.tag).bits, simt::order::relaxed);
      return way;
    }
    doom(way);
    return none;
  }
  /// The page shall not be in the host pool any more, nor arrive there.
  FOREBAY_DEVICE void forget(page_location at) const {
    std::uint32_t const way = find(at);
    if (way == none) return;
    // Relaxed: as in take().
    if (look(way).what() == host_word::content::page) {
      word(way).store(0, simt::order::relaxed);
    } else {
      doom(way);
    }
  }
  /// A way for a page that is leaving its frame; the caller copies the page in and then calls arrived(). `none`: there
  /// is no room.
  FOREBAY_DEVICE std::uint32_t make_room(page_location at) const {
    std::uint32_t const group = group_of(at);
    auto* const policy =
        reinterpret_cast<typename Policy::set_state*>(s_.policy_states + std::uint64_t{group} * s_.policy_state_bytes);
    replacement::set_view view;
    std::uint32_t way = none;
    FOREBAY_ROLLED
    for (std::uint32_t w = 0; w < ways; ++w) {
      host_word const seen = look(group * ways + w);
      if (seen.what() == host_word::content::nothing && way == none) way = w;
      if (seen.what() == host_word::content::page) view.evictable |= 1u << w;
      if (seen.what() != host_word::content::nothing) view.pages |= 1u << w;
    }
    group_access const access(view);
    if (way == none) {
      way = Policy::template victim<M>(access, policy);
      if (way == replacement::no_way) return none;
      Policy::template evicted<M>(access, policy, way, look(group * ways + way).tag(), 0);
    }
    (void)Policy::template filled<M>(access, policy, way, at.tag);
    // Relaxed: under the lock.
    word(group * ways + way).store(host_word::of(host_word::content::arriving, at.tag).bits, simt::order::relaxed);
    return group * ways + way;
  }

  /// The page has been copied into the way.
  FOREBAY_DEVICE void arrived(std::uint32_t way) const {
    std::uint32_t seen = look(way).bits;
    for (;;) {
      bool const doomed = (seen & host_word::doomed) != 0;
      std::uint32_t const next = doomed ? 0 : host_word::of(host_word::content::page, host_word{seen}.tag()).bits;
      // Release pairs with the acquire in look(): the page's bytes.
      if (word(way).compare_exchange(seen, next, simt::order::release)) return;
    }
  }
  /// The page has been copied out of the way.
  FOREBAY_DEVICE void left(std::uint32_t way) const {
    // Release pairs with the acquire in look(): what was read is no longer needed.
    word(way).store(0, simt::order::release);
  }

 private:
  /// What the policy sees of a group of ways. They have no marks.
  struct group_access {
    FOREBAY_DEVICE explicit group_access(replacement::set_view const& seen) : view(seen) {}
    FOREBAY_DEVICE static constexpr std::uint32_t ways() { return host_pool::ways; }
    FOREBAY_DEVICE replacement::set_view look() const { return view; }
    FOREBAY_DEVICE void unmark(std::uint32_t, std::uint32_t) const {}
    replacement::set_view const& view;
  };

  FOREBAY_DEVICE auto word(std::uint32_t way) const { return simt::atomic<M>(s_.words[way]); }
  FOREBAY_DEVICE host_word look(std::uint32_t way) const {
    // Acquire pairs with the releases of arrived() and left().
    return {word(way).load(simt::order::acquire)};
  }
  FOREBAY_DEVICE std::uint32_t group_of(page_location at) const { return at.set * s_.groups + at.tag % s_.groups; }
  /// The way that holds the page, or at which it arrives. A page that is leaving is in a frame already.
  FOREBAY_DEVICE std::uint32_t find(page_location at) const {
    std::uint32_t const first = group_of(at) * ways;
    FOREBAY_ROLLED
    for (std::uint32_t way = first; way < first + ways; ++way) {
      host_word const seen = look(way);
      bool const here = seen.what() == host_word::content::page ||
                        (seen.what() == host_word::content::arriving && (seen.bits & host_word::doomed) == 0);
      if (here && seen.tag() == at.tag) return way;
    }
    return none;
  }
  /// Dooms a page that was arriving, and may have arrived since.
  FOREBAY_DEVICE void doom(std::uint32_t way) const {
    // Acquire pairs with the release of arrived(): the next thread that gets the way overwrites what was copied there.
    // Relaxed: the lock orders the store with that thread.
    std::uint32_t const before = word(way).fetch_or(host_word::doomed, simt::order::acquire);
    if (host_word{before}.what() == host_word::content::page) word(way).store(0, simt::order::relaxed);
  }

  host_pool_state const& s_;
};

}  // namespace forebay
