// SPDX-License-Identifier: Apache-2.0
//! \file
//! A loop that keeps later reads in flight while it computes on the data of earlier ones.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/queue/parked.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// The indices `first`, `first + step`, ... below `end`. `WholeWarp`: all lanes of a full warp get the same indices,
/// and go through them together.
///
/// `pipeline` takes any range with `machine`, `index_type`, `whole_warp` and `bool next(index_type&)`. `next` gives the
/// calling thread's next index, or returns false; after that it is not called again. So indices may also come from a
/// counter that threads share. If a range is `repeatable`, a copy of it gives the same indices: then no stage has to
/// keep its own.
template <class M, bool WholeWarp>
class strided_range {
 public:
  using machine = M;
  using index_type = std::uint64_t;
  static constexpr bool whole_warp = WholeWarp;  ///< whether all lanes of a warp get the same indices
  static constexpr bool repeatable = true;       ///< a copy gives the same indices

  /// `grid_stride` and `warp_stride` call this.
  FOREBAY_DEVICE strided_range(std::uint64_t first, std::uint64_t end, std::uint64_t step)
      : next_(first), end_(end), step_(step) {}

  /// Gives the next index, or returns false at the end.
  FOREBAY_DEVICE bool next(std::uint64_t& i) {
    if (next_ >= end_) return false;
    i = next_;
    next_ = step_ < end_ - next_ ? next_ + step_ : end_;
    return true;
  }

 private:
  std::uint64_t next_;
  std::uint64_t end_;
  std::uint64_t step_;
};

/// [0, count) shared out among the threads of the grid: neighbours get neighbouring indices.
template <class M>
FOREBAY_DEVICE strided_range<M, false> grid_stride(std::uint64_t count) {
  return {M::thread_rank(), count, M::thread_count()};
}
/// [0, count) shared out among the warps of the grid, whose blocks consist of full warps: all lanes of a warp get the
/// same indices. Any lane may start a read for all of them; each lane may also start a part of it.
template <class M>
FOREBAY_DEVICE strided_range<M, true> warp_stride(std::uint64_t count) {
  std::uint64_t const lanes = M::this_block().size() < 32 ? M::this_block().size() : 32;
  return {M::thread_rank() / lanes, count, M::thread_count() / lanes};
}

/// What `pipeline` goes through: `grid_stride<M>(count)`, `warp_stride<M>(count)`, or a range of the user's that has
/// these members.
template <class R>
concept pipeline_range = requires(R range, typename R::index_type& index) {
  typename R::machine;
  { R::whole_warp } -> std::convertible_to<bool>;
  { range.next(index) } -> std::same_as<bool>;
};

namespace detail {

/// The token of an `issue` that returns none.
struct nothing_to_wait_for {
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const { return 0; }
  FOREBAY_DEVICE status wait(std::uint64_t) const { return {}; }
  FOREBAY_DEVICE void detach() const {}
};

/// Knows the index that a stage is for. In this general form each stage keeps its index.
template <class Range>
struct pipeline_indices {
  using kept = typename Range::index_type;
  FOREBAY_DEVICE explicit pipeline_indices(Range const&) {}
  FOREBAY_DEVICE kept keep(kept const& i) const { return i; }
  FOREBAY_DEVICE kept leaving(kept const& i) { return i; }
};
/// The form for repeatable ranges: a second walk through the range, as far behind the first one as there are stages.
template <class Range>
  requires(Range::repeatable)
struct pipeline_indices<Range> {
  struct kept {};
  FOREBAY_DEVICE explicit pipeline_indices(Range const& range) : behind(range) {}
  FOREBAY_DEVICE kept keep(typename Range::index_type const&) const { return {}; }
  FOREBAY_DEVICE auto leaving(kept) {
    typename Range::index_type i{};
    (void)behind.next(i);
    return i;
  }
  Range behind;
};

template <class Index, class Token>
struct pipeline_stage {
  Index index;
  typename parking<Token>::type token;
};

/// The outcome of a computation: to go on, to stop, or to fail.
struct pipeline_step {
  bool goes_on;
  status outcome;
};

template <class Compute, class... Arguments>
FOREBAY_DEVICE pipeline_step pipeline_compute(Compute& compute, Arguments const&... arguments) {
  using result = std::invoke_result_t<Compute&, Arguments const&...>;
  if constexpr (std::is_void_v<result>) {
    compute(arguments...);
    return {true, {}};
  } else if constexpr (std::is_same_v<result, bool>) {
    return {compute(arguments...), {}};
  } else {
    static_assert(std::is_same_v<result, status>, "compute returns nothing, whether to go on, or a status");
    status const outcome = compute(arguments...);
    return {outcome.ok(), outcome};
  }
}

/// The status that all lanes of a warp agree on: `timed_out` if any lane has it, else the failure of the first lane
/// that failed.
template <class Warp>
FOREBAY_DEVICE status pipeline_agreed(Warp const& warp, status mine) {
  std::uint32_t const failed = warp.ballot(!mine.ok());
  if (failed == 0) return mine;
  std::uint32_t const late = warp.ballot(mine == status(fault::timed_out));
  return status::from_bits(warp.shfl(mine.bits(), simt::lowest_bit(late != 0 ? late : failed)));
}

}  // namespace detail

/// Calls `issue(i, slot)` and then `compute(i, slot)` for each index of `range`, in the order of the range. Up to
/// `Depth` indices, 1 to 32, are issued and not yet computed; 1 is the plain loop. `slot` < `Depth` numbers the
/// thread's buffers for this purpose. A slot belongs to an index from its issue() until its compute() has returned;
/// then the next index may be issued into it.
///
/// `issue` returns what compute() has to wait for: a token, or several as one (`token_array`, `join`). If it only
/// prefetches, it may also return nothing, or a bool, which is ignored.
///
/// `compute` returns nothing; or a bool, whether to go on; or a status, which ends the loop unless it is success.
///
/// A read that fails ends the loop: compute() is not called for its index. But a `compute(i, slot, status)` is called,
/// with the status, and then the loop goes on unless compute() says otherwise. `timed_out` ends the loop in any case,
/// since the drive may still write to the slot. A loop that ends early waits for all that it has issued.
///
/// Returns the first failure, in the order of the range. The failures are what compute() returned, and failed reads
/// that compute() was not told of, including those that the loop waited for at its end. `timed_out` takes precedence
/// over all others: some request was given up after the storage's default time. The loop has detached it, and the
/// slots' buffers must be left alone until the storage is flushed or destroyed. After any other status all slots are
/// the caller's again.
///
/// Lanes of a warp that call this together go through it together and return together; their ranges may have different
/// lengths. All lanes issue before any of them waits. So compute() must not wait for what a lane of the same warp holds
/// from one of its indices to the next. If a cursor outlives compute(), make it a `warp_page()`, or give the cache more
/// frames than threads have such cursors. With a range of whole warps all lanes wait for the requests of each, get the
/// same status, and stop when one of them wants to.
template <std::uint32_t Depth, pipeline_range Range, class Issue, class Compute>
[[nodiscard]] FOREBAY_DEVICE status pipeline(Range range, Issue&& issue, Compute&& compute) {
  static_assert(Depth >= 1 && Depth <= 32, "pipeline<Depth> has 1 to 32 requests of a thread in flight");
  using M = typename Range::machine;
  using index_type = typename Range::index_type;
  using issued = std::invoke_result_t<Issue&, index_type const&, std::uint32_t const&>;
  constexpr bool has_token = !std::is_void_v<issued> && !std::is_same_v<issued, bool>;
  using token_type = std::conditional_t<has_token, issued, detail::nothing_to_wait_for>;
  constexpr bool tells = std::is_invocable_v<Compute&, index_type const&, std::uint32_t const&, status const&>;

  auto const lanes = [] {
    if constexpr (Range::whole_warp) {
      return M::this_warp();
    } else {
      return M::converged();
    }
  }();
  // Every step moves all stages on by one. So no index into them is a variable, and the code of issue(), of the wait
  // and of compute() exists once. The stage that leaves and the one that comes have the same slot.
  detail::pipeline_indices<Range> indices(range);
  detail::pipeline_stage<typename detail::pipeline_indices<Range>::kept, token_type> stages[Depth] = {};
  std::uint32_t filled = 0;  // bit k: stage k
  std::uint32_t slot = 0;
  bool more = true, computing = true, gave_up = false;
  status result;
  // Lanes that are done go on taking steps, so that all lanes go on together: a lane that fell behind here would come
  // alone to every submission and every wait.
  while (lanes.any(more || filled != 0)) {
    std::uint32_t const here = slot;
    if ((filled & 1) != 0) {
      token_type token(stages[0].token);
      index_type const i = indices.leaving(stages[0].index);
      // Once a request was given up, nothing more is issued. All other requests in flight began before the wait for
      // that one did, so their time has passed too.
      status ended = token.wait(gave_up ? M::clock_ns() : token.default_deadline_ns());
      if (ended == status(fault::timed_out)) token.detach();
      if constexpr (Range::whole_warp) {
        ended = detail::pipeline_agreed(lanes, ended);
        lanes.sync();  // what the lane that waited has acquired, all lanes now have
      }
      gave_up = gave_up || ended == status(fault::timed_out);
      detail::pipeline_step step{false, ended};
      if constexpr (tells) {
        if (computing) step = detail::pipeline_compute(compute, i, here, ended);
      } else {
        if (computing && ended.ok()) step = detail::pipeline_compute(compute, i, here);
      }
      if constexpr (Range::whole_warp) {
        step.outcome = detail::pipeline_agreed(lanes, step.outcome);
        step.goes_on = lanes.all(step.goes_on);
        lanes.sync();  // all are done with the slot before one of them issues into it
      }
      if (result.ok()) result = step.outcome;
      computing = computing && step.goes_on && !gave_up;
      more = more && computing;
    }
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k + 1 < Depth; ++k) stages[k] = stages[k + 1];
    filled >>= 1;
    if (more) {
      auto& last = stages[Depth - 1];
      index_type i{};
      more = range.next(i);
      if (more) {
        last.index = indices.keep(i);
        if constexpr (has_token) {
          last.token = parking<token_type>::park(issue(i, here));
        } else {
          (void)issue(i, here);
        }
        filled |= 1u << (Depth - 1);
      }
    }
    slot = slot + 1 < Depth ? slot + 1 : 0;
  }
  return gave_up ? status(fault::timed_out) : result;
}

/// Refuses a number as a range: `pipeline<4>(grid_stride<M>(10), issue, compute)` is right.
template <std::uint32_t Depth, class Range, class Issue, class Compute>
  requires(!pipeline_range<Range>)
status pipeline(Range, Issue&&, Compute&&) {
  static_assert(pipeline_range<Range>,
                "pipeline<Depth>(range, issue, compute): the first argument is a range, such as grid_stride<M>(count) "
                "or warp_stride<M>(count)");
  return {};
}

}  // namespace forebay
