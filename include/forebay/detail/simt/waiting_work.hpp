// SPDX-License-Identifier: Apache-2.0
//! \file
//! Work that OS threads do while they wait, whatever they wait for.
#pragma once

#include <cstdint>

namespace forebay::simt {

/// A thread that waits does such work before it rests; see `backoff`. For instance it serves an emulated drive whose
/// completions it waits for. A second thread for that would run at the same time, and on a small machine it takes time
/// from the disk's own threads.
class waiting_work {
 public:
  enum class result : std::uint8_t {
    nothing,  ///< there was nothing to do
    some,
    taken,  ///< another thread does it at the moment
  };

  /// Does what there is to do, and waits for nothing. Called by any thread.
  virtual result work() noexcept = 0;
  /// Waits until there is something to do, for `most_ns` at most; it may return earlier. False: it cannot wait, since
  /// nothing is under way. Called by any thread, also while others call `work`.
  virtual bool wait(std::uint64_t most_ns) noexcept = 0;

 protected:
  waiting_work() = default;
  ~waiting_work() = default;
  waiting_work(waiting_work const&) = delete;
  waiting_work& operator=(waiting_work const&) = delete;
};

/// Offers work to all threads of the process, as long as this exists. After a fork, the child has no such work.
class offered_work {
 public:
  static constexpr int offers_max = 64;  ///< at a time

  /// The work must outlive this. If there are `offers_max` offers already, this makes none.
  explicit offered_work(waiting_work& work);
  /// Waits until no thread does the work. May not be called by the work itself.
  ~offered_work();
  offered_work(offered_work const&) = delete;
  offered_work& operator=(offered_work const&) = delete;

  bool made() const { return place_ >= 0; }

 private:
  waiting_work* const work_;
  int place_ = -1;
};

/// From now on `do_waiting_work` does nothing on the calling thread: it has such work of its own.
void do_no_waiting_work();

/// Whether the calling thread does such work at the moment, or `do_no_waiting_work` was called on it.
bool at_waiting_work();

/// Does what there is to do. If there is nothing, waits for something, for `most_ns` at most. Returns whether it did or
/// waited for anything. Work that itself waits does no other work meanwhile: there this returns false. Thread-safe.
bool do_waiting_work(std::uint64_t most_ns);

}  // namespace forebay::simt
