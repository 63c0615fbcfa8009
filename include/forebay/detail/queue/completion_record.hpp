// SPDX-License-Identifier: Apache-2.0
//! \file
//! Completions are counted here: one record for all commands of one request.
#pragma once

#include <cstdint>

#include "forebay/detail/queue/slot_pool.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// A completion occupies neither the ring slot nor the command id (invariant Q5). Both go back to the queue at once,
/// however long the request's owner takes to look.
struct completion_record {
  std::uint32_t outstanding;    ///< commands not yet completed; bit 31: detached, the last completion frees the record
  std::uint32_t first_failure;  ///< bits of the first status that was not success
};

/// What commands complete to (`Targets` of `io_queues_ref`). A model has
///  - `void complete(std::uint32_t target, status result, std::uint32_t commands) const`, which counts that many
///    commands of the target as completed. It is called after a release fence at device scope, so that a thread that
///    acquires what it stores, relaxed stores included, sees the data. It does not wait, and calls no function of the
///    queues.
///  - `static constexpr bool lands`. If it is true, also `void land(together<M> const& group, bool read, std::uint32_t
///    target) const`, which all lanes of `group` call before complete() for completions that they deliver together.
///    `read`: the calling lane has a completion, for `target`, of a command that succeeded. It does not wait.
///  - `record_pool<M> const& records() const`, whose records are the targets below its size. A target has 30 bits, not
///    all of them ones.
///
/// This is the simplest model. It has only the pool of records, in the client's device memory. Trivially copyable;
/// thread-safe.
template <class M>
class record_pool {
 public:
  static constexpr std::uint32_t none = slot_pool::none;

  record_pool() = default;
  FOREBAY_DEVICE record_pool(completion_record* records, slot_pool free) : records_(records), free_(free) {}

  FOREBAY_DEVICE record_pool const& records() const { return *this; }
  static constexpr bool lands = false;

  /// A record that waits for `commands` completions (1 to 2^31 - 1), or `none` if the pool is empty.
  FOREBAY_DEVICE std::uint32_t try_open(std::uint32_t commands) const {
    std::uint32_t const record = free_.template try_take<M>(M::thread_rank() * 7u);
    if (record == none) return none;
    // Relaxed: the record is the caller's alone until a command that names it is published.
    simt::atomic<M>(records_[record].first_failure).store(0, simt::order::relaxed);
    simt::atomic<M>(records_[record].outstanding).store(commands, simt::order::relaxed);
    return record;
  }

  /// Counts `commands` commands as completed with `result`. The caller has fenced, as above, unless no thread has to
  /// see what it did.
  FOREBAY_DEVICE void complete(std::uint32_t record, status result, std::uint32_t commands = 1) const {
    if (!result.ok()) {
      std::uint32_t nothing_yet = 0;
      // Relaxed: the fence below follows.
      simt::atomic<M>(records_[record].first_failure)
          .compare_exchange(nothing_yet, result.bits(), simt::order::relaxed);
      // Release pairs with the acquire in done(): the waiter sees the status.
      M::fence(simt::scope::device, simt::order::release);
    }
    // Relaxed: after a release fence, which pairs with the acquire in done() and with the one below.
    std::uint32_t const before =
        simt::atomic<M>(records_[record].outstanding).fetch_sub(commands, simt::order::relaxed);
    if (before != (detached | commands)) return;
    // Acquire pairs with the releases of the other completions and of detach(), so that the thread that frees a
    // detached record is the last to touch it.
    M::fence(simt::scope::device, simt::order::acquire);
    free_.template give<M>(record);
  }

  FOREBAY_DEVICE bool done(std::uint32_t record) const {
    auto const outstanding = simt::atomic<M>(records_[record].outstanding);
    // Relaxed, since most looks find it open, and an acquire empties a multiprocessor's cache.
    if (outstanding.load(simt::order::relaxed) != 0) return false;
    // Acquire pairs with the release before complete().
    return outstanding.load(simt::order::acquire) == 0;
  }

  /// The result of a record that is done; the record goes back to the pool.
  FOREBAY_DEVICE status close(std::uint32_t record) const {
    // Relaxed: done() acquired it.
    status const result = status::from_bits(simt::atomic<M>(records_[record].first_failure).load(simt::order::relaxed));
    free_.template give<M>(record);
    return result;
  }

  /// The program will not wait for the record: its last completion frees it, or this call does if that has come
  /// already.
  FOREBAY_DEVICE void detach(std::uint32_t record) const {
    // Acquire and release for the same reason as in complete().
    std::uint32_t const before = simt::atomic<M>(records_[record].outstanding).fetch_or(detached, simt::order::acq_rel);
    if (before == 0) free_.template give<M>(record);
  }

 private:
  static constexpr std::uint32_t detached = 1u << 31;
  completion_record* records_ = nullptr;
  slot_pool free_;
};

}  // namespace forebay
