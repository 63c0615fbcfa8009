// SPDX-License-Identifier: Apache-2.0
//! \file
//! Pinned pages through which the bytes of frames pass that no drive reaches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/buffer_ref.hpp"
#include "forebay/detail/queue/slot_pool.hpp"
#include "forebay/detail/queue/together.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/move_bytes.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// Written by the host before any thread uses it.
struct staging_state {
  buffer_ref pages;                ///< registered memory that every drive reaches
  slot_pool free;                  ///< the numbers of `pages` that no command has
  std::uint32_t* slots = nullptr;  ///< per staged frame: the page of the command under way
  std::byte* frames = nullptr;     ///< the staged frames
  std::uint32_t frame_count = 0;   ///< frames from 0 on that are staged; 0: drives reach all frames
  std::uint32_t page_shift = 0;
};

/// A command for a staged frame has a staging page from before it is submitted until its completion is delivered.
/// Trivially copyable; thread-safe; no function waits.
template <class M>
class staging_pages {
 public:
  static constexpr std::uint32_t none = slot_pool::none;

  FOREBAY_DEVICE explicit staging_pages(staging_state const& state) : s_(state) {}

  FOREBAY_DEVICE bool stages(std::uint32_t frame) const { return frame < s_.frame_count; }

  /// A page for a command on `frame`, whose claim the caller has; `none` if all pages are in use.
  FOREBAY_DEVICE std::uint32_t try_take(std::uint32_t frame) const {
    std::uint32_t const slot = s_.free.template try_take<M>(M::thread_rank() * 7u);
    // Read by the thread that delivers the completion, or that cancels the command: the queue pair orders that after
    // the submission.
    if (slot != none) M::st(&s_.slots[frame], slot);
    return slot;
  }
  /// The page that the command on `frame` has, for the thread that delivers its completion.
  FOREBAY_DEVICE std::uint32_t page_of(std::uint32_t frame) const { return M::ld(&s_.slots[frame]); }
  FOREBAY_DEVICE void give(std::uint32_t slot) const { s_.free.template give<M>(slot); }

  /// The first `bytes` bytes of a page.
  FOREBAY_DEVICE buffer_ref buffer(std::uint32_t slot, std::uint64_t bytes) const {
    return s_.pages.subspan(std::uint64_t{slot} << s_.page_shift, bytes);
  }

  /// Copies the page of each lane that `has` one into its frame. All lanes of `group` call it.
  FOREBAY_DEVICE void copy_in(together<M> const& group, bool has, std::uint32_t frame, std::uint32_t slot) const {
    copy(group, has, frame_data(frame), page_data(slot));
  }
  /// Copies the frame of each lane into its page. All lanes of `group` call it.
  FOREBAY_DEVICE void copy_out(together<M> const& group, std::uint32_t frame, std::uint32_t slot) const {
    copy(group, true, page_data(slot), frame_data(frame));
  }
  /// Copies a page into its frame, by the calling lane alone.
  FOREBAY_DEVICE void copy_in_alone(std::uint32_t frame, std::uint32_t slot) const {
    M::copy(frame_data(frame), page_data(slot), std::uint64_t{1} << s_.page_shift);
  }

 private:
  FOREBAY_DEVICE std::byte* frame_data(std::uint32_t frame) const {
    return s_.frames + (std::uint64_t{frame} << s_.page_shift);
  }
  FOREBAY_DEVICE std::byte* page_data(std::uint32_t slot) const {
    return s_.pages.data() + (std::uint64_t{slot} << s_.page_shift);
  }
  /// All lanes copy one lane's page, then the next lane's: neighbouring lanes access neighbouring bytes.
  FOREBAY_DEVICE void copy(together<M> const& group, bool has, std::byte* to, std::byte const* from) const {
    std::uint64_t const bytes = std::uint64_t{1} << s_.page_shift;
    if constexpr (M::lanes_are_alone) {
      if (has) M::copy(to, from, bytes);
    } else {
      group.sync();  // what a lane has acquired, all lanes now have
      FOREBAY_ROLLED
      for (std::uint32_t left = group.ballot(has); left != 0; left &= left - 1) {
        std::uint32_t const lane = simt::lowest_bit(left);
        simt::move_bytes<M>(group.rank(), group.size(), group.from(to, lane), group.from(from, lane), bytes);
      }
      group.sync();  // what the lanes have written, each of them may now publish
    }
  }

  staging_state const& s_;
};

}  // namespace forebay
