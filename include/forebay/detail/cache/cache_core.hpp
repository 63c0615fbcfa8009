// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of a cache that commands complete to: frames' words, and what became of the commands on them.
#pragma once

#include <cstdint>

#include "forebay/access_errors.hpp"
#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/cache/staging.hpp"
#include "forebay/detail/queue/completion_record.hpp"
#include "forebay/detail/queue/together.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/frame_pools.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// Written by the host before any thread uses it; lies in the memory of the threads that use the cache.
struct cache_core {
  std::uint64_t* words = nullptr;  ///< per frame: a `page_word`
  /// Per frame: the queue pair of the command under way; after a command that failed, its status.
  std::uint32_t* notes = nullptr;
  std::uint32_t frames = 0;
  /// Bits of the first status with which a page could not be written back or an element not be read, and
  /// `of_write_back` for a page; 0: none.
  std::uint32_t first_error = 0;
  static constexpr std::uint32_t of_write_back = 1u << 31;
  /// Where the first error was, in bytes of the storage, if it was not a write-back.
  std::uint64_t first_error_byte = 0;
  std::uint64_t failed_accesses = 0;
  std::uint64_t failed_write_backs = 0;
  cache_counters* counters = nullptr;
  staging_state staging;
  static constexpr std::uint32_t counter_stripes = 64;

  /// The status in `first_error`.
  static constexpr status status_of(std::uint32_t first_error) {
    return status::from_bits(first_error & ~of_write_back);
  }

  /// Of a note: the rest is a status.
  static constexpr std::uint32_t note_is_status = 1u << 31;
};

/// What a command of a cached storage completes to: a record of the pool, or a frame. `Frames`: `direct_frames` or
/// `staged_frames`; the latter also serves a cache whose frames are not staged. Trivially copyable; thread-safe.
template <class M, class Frames = direct_frames>
class cache_targets {
 public:
  static constexpr std::uint32_t index_bits = 28;
  /// Frames that a cache may have.
  static constexpr std::uint32_t max_frames = 1u << index_bits;

  FOREBAY_DEVICE static constexpr std::uint32_t fill(std::uint32_t frame) { return 1u << index_bits | frame; }
  FOREBAY_DEVICE static constexpr std::uint32_t write_back(std::uint32_t frame) { return 2u << index_bits | frame; }

  cache_targets() = default;
  FOREBAY_DEVICE cache_targets(record_pool<M> const& records, cache_core* core) : records_(records), core_(core) {}

  FOREBAY_DEVICE record_pool<M> const& records() const { return records_; }

  /// Whether land() has anything to do.
  static constexpr bool lands = Frames::staged;
  /// Copies the pages that reads have brought for lanes of `group` that `read` something for `target`.
  FOREBAY_DEVICE void land(together<M> const& group, bool read, std::uint32_t target) const
    requires lands
  {
    if constexpr (Frames::copies_before_valid) {
      staging_pages<M> const staging(core_->staging);
      std::uint32_t const frame = target & (max_frames - 1);
      bool const has = read && is_fill(target) && staging.stages(frame);
      if (!group.any(has)) return;
      staging.copy_in(group, has, frame, has ? staging.page_of(frame) : 0);
      // Release pairs with the acquire of each thread that pins the frame or reads it without a pin: filled() is
      // relaxed.
      M::fence(simt::scope::device, simt::order::release);
    }
  }

  /// The thread that consumed the completion calls this after land() and a release fence at device scope. The thread
  /// that submitted the command may have ended long before.
  FOREBAY_DEVICE void complete(std::uint32_t target, status result, std::uint32_t commands = 1) const {
    if (target >> index_bits == 0) return records_.complete(target, result, commands);
    std::uint32_t const frame = target & (max_frames - 1);
    if constexpr (Frames::staged) {
      staging_pages<M> const staging(core_->staging);
      if (staging.stages(frame)) {
        std::uint32_t const slot = staging.page_of(frame);
        if constexpr (Frames::copies_before_valid) {
          staging.give(slot);
          // Release pairs with the acquire of the next claim, whose thread notes another staging page.
          M::fence(simt::scope::device, simt::order::release);
        } else {
          ended(target, frame, result);
          if (is_fill(target) && result.ok()) staging.copy_in_alone(frame, slot);
          return staging.give(slot);
        }
      }
    }
    ended(target, frame, result);
  }

  /// The read of a busy frame ended.
  FOREBAY_DEVICE void filled(std::uint32_t frame, status result) const {
    auto word = simt::atomic<M>(core_->words[frame]);
    if (result.ok()) {
      // Relaxed: complete() is called after a release fence, which pairs with the acquire of each thread that pins the
      // frame or reads it without a pin: the page's bytes.
      word.fetch_or(page_word::busy_to_valid, simt::order::relaxed);
      return;
    }
    // Relaxed: the release on the word below publishes it.
    simt::atomic<M>(core_->notes[frame]).store(cache_core::note_is_status | result.bits(), simt::order::relaxed);
    // Release pairs with the acquire of the waiters: the note.
    word.fetch_add(page_word::busy_to_failed, simt::order::release);
  }

  /// The write-back of a frame ended. Where it failed the page stays dirty.
  FOREBAY_DEVICE void written(std::uint32_t frame, status result) const {
    auto word = simt::atomic<M>(core_->words[frame]);
    if (result.ok()) {
      // Relaxed: complete() is called after a release fence, which pairs with the acquire of the thread that claims the
      // frame: the controller has read its bytes.
      word.fetch_and(~page_word::writing, simt::order::relaxed);
      return;
    }
    (void)latch(cache_core::of_write_back | result.bits());
    // Relaxed, both: a count; and the note, which the release on the word below publishes.
    simt::atomic<M>(core_->failed_write_backs).fetch_add(1, simt::order::relaxed);
    simt::atomic<M>(core_->notes[frame]).store(cache_core::note_is_status | result.bits(), simt::order::relaxed);
    // Sets dirty before it clears writing: a frame with neither bit would be clean. Relaxed: ordered by the release
    // below, on the same word.
    word.fetch_or(page_word::dirty, simt::order::relaxed);
    // Release pairs with the acquire of the threads that wait for the write-back: the note.
    word.fetch_and(~page_word::writing, simt::order::release);
  }

  /// An access at byte `at` of the storage failed.
  FOREBAY_DEVICE void report(status error, std::uint64_t at) const {
    // Relaxed, both: the host reads the place after the kernels have ended; the other is a count.
    if (latch(error.bits())) simt::atomic<M>(core_->first_error_byte).store(at, simt::order::relaxed);
    simt::atomic<M>(core_->failed_accesses).fetch_add(1, simt::order::relaxed);
  }

 private:
  FOREBAY_DEVICE static constexpr bool is_fill(std::uint32_t target) { return target >> index_bits == 1; }
  FOREBAY_DEVICE void ended(std::uint32_t target, std::uint32_t frame, status result) const {
    if (is_fill(target)) return filled(frame, result);
    written(frame, result);
  }
  /// Keeps the error if it is the first; returns whether it is.
  FOREBAY_DEVICE bool latch(std::uint32_t error) const {
    std::uint32_t none = 0;
    // Relaxed: the word stands for itself.
    return simt::atomic<M>(core_->first_error).compare_exchange(none, error, simt::order::relaxed);
  }

  record_pool<M> records_;
  cache_core* core_ = nullptr;
};

}  // namespace forebay
