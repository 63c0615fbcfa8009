// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/cache/inspection.hpp"

#include <bit>
#include <cstring>

#include "forebay/detail/memory/peek.hpp"

namespace forebay {

using memory::peek;

cache_look look_at(cache_state const* state, memory::resource& where) {
  cache_state const s = peek(where, state);
  std::vector<std::uint64_t> const words = peek(where, s.words, s.frames);
  std::vector<std::uint32_t> const notes = peek(where, s.notes, s.frames);
  std::vector<outside_frame> const outside = peek(where, s.outside, s.overflow_count + s.user_count);
  std::vector<std::byte> const sets = peek(where, s.sets, std::size_t{s.mapping.sets()} * s.set_bytes);

  cache_look out;
  out.sets = s.mapping.sets();
  out.overflow_frames = s.overflow_count;
  out.user_frames = s.user_count;
  out.page_bytes = 1u << s.page_shift;
  out.staging_pages = static_cast<std::uint32_t>(s.staging.pages.size_bytes() >> s.page_shift);
  for (std::uint32_t const free : peek(where, s.staging.free.words, s.staging.free.word_count)) {
    out.free_staging_pages += static_cast<std::uint32_t>(std::popcount(free));
  }
  out.first_error = cache_core::status_of(s.first_error);
  out.failed_write_backs = s.failed_write_backs;
  std::uint32_t const in_sets = out.sets * cache_ways;
  std::uint32_t pinned_ways = 0;
  for (std::uint32_t frame = 0; frame < s.frames; ++frame) {
    page_word const word{words[frame]};
    if (frame < in_sets) {
      pinned_ways = (frame % cache_ways == 0 ? 0 : pinned_ways) + (word.pins() != 0 ? 1 : 0);
      if (pinned_ways == cache_ways) out.pinned_sets.push_back(frame / cache_ways);
    }
    if (word.state() == page_state::valid) {
      ++out.pages;
      if (word.is_dirty()) ++out.dirty;
    }
    bool const is_failed = word.state() == page_state::failed && word.pins() != 0;
    if (word.pins() == 0 && word.state() != page_state::busy && !word.is_writing() && !is_failed) continue;
    std::uint64_t const page =
        frame < in_sets ? s.mapping.page_of({frame / cache_ways, word.tag()}) : outside[frame - in_sets].page;
    out.frames.push_back({frame, page, word, notes[frame]});
  }
  for (std::uint32_t set = 0; set < out.sets; ++set) {
    // The lock is the first word of a set, whatever the policy.
    std::uint32_t lock = 0;
    std::memcpy(&lock, sets.data() + std::size_t{set} * s.set_bytes, sizeof lock);
    if (lock != 0) out.locks.push_back({set, lock - 1});
  }
  return out;
}

}  // namespace forebay
