// SPDX-License-Identifier: Apache-2.0
//! \file
//! What both executors share: lanes, blocks, and the rules of warp collectives and block barriers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "context.hpp"
#include "forebay/detail/simt/lane.hpp"

namespace forebay::simt::detail {

/// A small copy of a lane that has not been waited for.
struct started_copy {
  std::byte* to;
  std::byte const* from;
  std::uint32_t bytes;
  std::uint32_t group;
  bool arrived = false;  ///< before the lane waited: `data` is what it brought
  std::array<std::byte, 16> data = {};
};

struct lane;

/// A bulk copy that has not arrived.
struct started_bulk_copy {
  lane* by;
  std::byte* to;
  std::byte const* from;
  std::uint32_t bytes;
  std::uint64_t* barrier;  ///< a `barrier_word`
  location where;
};

enum class lane_state : std::uint8_t { fresh, ready, waiting, in_collective, converging, at_barrier, ended };

struct block_group;

struct lane : lane_hooks {
  context fiber;
  block_group* group = nullptr;  ///< null for an agent
  std::uint32_t id = 0;
  lane_state state = lane_state::fresh;
  location where;  ///< of the wait, collective or barrier that it is in
  collective kind{};
  std::uint32_t mask = 0;
  std::uint32_t together =
      0;  ///< lanes that it last converged with, in the predicate that it evaluates if it is in one
  std::uint32_t source = 0;
  std::uint64_t operand = 0;
  std::uint64_t result = 0;
  std::vector<started_copy> copies;  ///< oldest first
  std::uint32_t copy_groups = 0;     ///< that the lane has made
};

/// The lanes of a warp that wait in collectives, as sets of bits, so that a lane that comes to one need not look at the
/// others one by one.
struct warp_collectives {
  std::uint32_t present = 0;  ///< lanes that exist and have not ended; none when a block starts
  std::uint32_t waiting = 0;
  bool alike = true;  ///< all of `waiting` are in a collective of this kind with this mask
  collective kind{};
  std::uint32_t mask = 0;
};

struct block_group {
  std::vector<lane*> lanes;
  std::vector<warp_collectives> warps;
  std::uint32_t live = 0;
  std::vector<lane*> arrived;
  std::vector<started_bulk_copy> bulk_copies;
  std::unique_ptr<std::byte[]> shared;

  /// Lane `rank` of `of`'s warp; null beyond the block's end.
  lane* in_warp(lane const& of, std::uint32_t rank) const {
    std::uint32_t const thread = of.thread / 32 * 32 + rank;
    return thread < lanes.size() ? lanes[thread] : nullptr;
  }
};

/// "name (line 12 of queue.hpp, in f)".
std::string describe(location where);
/// "block 1 warp 0 lane 7".
std::string describe_position(lane const& l);
char const* name_of(collective kind);
/// What a lane that cannot go on is doing: "waits in wait_until".
std::string describe_state(lane const& l);
/// One line for each group of lanes of a warp that hang at the same place, at most 64.
std::string describe_stuck(std::span<lane* const> lanes);

/// Collectives, barriers and their errors, on top of an executor's own way to park and resume lanes.
class lockstep : public executor {
 public:
  std::uint64_t collect(collective kind, std::uint32_t mask, std::uint64_t operand, std::uint32_t source,
                        location where) override;
  std::uint32_t converged(location where) override;
  void block_sync(location where) final;
  void copy_async(void* to, void const* from, std::uint32_t bytes, location where) final;
  void commit_copies() final;
  void wait_copies(std::uint32_t newest, location where) final;
  void copy_bulk(void* to, void const* from, std::uint32_t bytes, std::uint64_t* barrier, location where) final;

 protected:
  /// The current lane gives way; returns when it is picked again.
  virtual void give_way() = 0;
  virtual void set_runnable(lane& l, bool is) = 0;
  /// Fails the run in the name of the current lane, which then calls `stop`. These are two calls because everything
  /// that the lane's stack owns at `stop` is lost: by then the text of the report has been freed.
  virtual void report(std::string what, location where) = 0;
  /// Leaves the current lane for ever.
  [[noreturn]] virtual void stop() = 0;
  /// The members of a warp sync or a block barrier: all of them have arrived and none has gone on.
  virtual void synchronised(std::span<lane* const> /*members*/) {}
  /// The current lane starts a copy of `bytes` bytes: shows that it reads the source, and fills the target with
  /// `pattern`.
  virtual void begin_copy(std::byte* to, std::byte const* from, std::uint32_t bytes, location where) = 0;
  /// The current lane waits for `copy`: its bytes are in the target when this returns.
  virtual void end_copy(started_copy& copy, location where) = 0;
  /// The current lane has started the last bulk copy of its block.
  virtual void began_bulk_copy(location /*where*/) {}
  /// Whether a lane at the same site is converged with the lane that asks.
  virtual bool converges() { return true; }

  /// What the target of a copy holds until the copy arrives. As a floating-point number it is about -3e-13.
  static constexpr std::byte pattern{0xab};

  /// Takes the lane out of its block. \returns the message for what still needs the lane, a collective or a copy, or
  /// "".
  std::string retire(lane& l);
  /// Makes `l` a lane of `group`, ready to start.
  static void enlist(lane& l, block_group* group, std::uint32_t thread);
  /// Ends the `converged` of `l`, which was picked, and of the lanes that are converged with it.
  void converge(lane& l);

 private:
  void release_barrier(block_group& group);
  bool collective_is_complete(lane const& me);
  void require_copy(char const* name, void const* to, void const* from, std::uint32_t bytes, std::uint32_t unit,
                    location where);
  void give_results(lane const& last);
  std::vector<lane*> members_;
};

}  // namespace forebay::simt::detail
