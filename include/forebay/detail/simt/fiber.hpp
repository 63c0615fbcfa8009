// SPDX-License-Identifier: Apache-2.0
//! \file
//! The machine of simulated GPU lanes: each lane is a fiber; warps and blocks are groups of fibers.
//!
//! Two executors run it: `simt::run` (run.hpp), which is deterministic, under a scheduler and a memory model; and
//! `simt::launch<fiber>` (launch.hpp), in real time on OS threads. Outside both, a thread is a grid of one lane.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "forebay/detail/simt/barrier_word.hpp"
#include "forebay/detail/simt/lane.hpp"
#include "forebay/detail/simt/machine_traits.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

struct fiber : machine_traits {
  static constexpr bool asks_again_and_again = false;

  using location = detail::location;

  /// The atomic view of a word. Every access is a scheduling point of a scheduled run.
  template <word T, scope S>
  class atomic_ref {
   public:
    explicit atomic_ref(T& object) : object_(&object) {}

    T load(order o, location where = location::current()) const {
      auto* lane = detail::current;
      if (lane == nullptr || !lane->scheduled) return detail::host_load(object_, o);
      T value;
      if (lane->weak) {
        value = static_cast<T>(lane->owner->load(object_, sizeof(T), o, S, where));
      } else {
        lane->owner->point(where);
        value = detail::host_load(object_, o);
      }
      if (lane->watching) lane->owner->seen(object_, sizeof(T), bits(value));
      return value;
    }

    void store(T value, order o, location where = location::current()) const {
      auto* lane = detail::current;
      if (lane == nullptr || !lane->scheduled) return detail::host_store(object_, value, o);
      if (lane->weak) {
        lane->owner->store(object_, sizeof(T), bits(value), o, S, where);
      } else {
        lane->owner->point(where);
        detail::host_store(object_, value, o);
        lane->owner->wrote(object_, sizeof(T));
      }
      if (lane->watching) lane->owner->seen(object_, sizeof(T), bits(value));
    }

    T exchange(T value, order o, location where = location::current()) const {
      return modify(o, where, [&] { return detail::host_exchange(object_, value, o); });
    }
    T fetch_add(T value, order o, location where = location::current()) const {
      return modify(o, where, [&] { return detail::host_fetch_add(object_, value, o); });
    }
    T fetch_sub(T value, order o, location where = location::current()) const {
      return modify(o, where, [&] { return detail::host_fetch_sub(object_, value, o); });
    }
    T fetch_or(T value, order o, location where = location::current()) const {
      return modify(o, where, [&] { return detail::host_fetch_or(object_, value, o); });
    }
    T fetch_and(T value, order o, location where = location::current()) const {
      return modify(o, where, [&] { return detail::host_fetch_and(object_, value, o); });
    }
    /// Raises the object to `value` if it is less; returns the value before.
    T fetch_max(T value, order o, location where = location::current()) const {
      return modify(o, where, [&] { return detail::host_fetch_max(object_, value, o); });
    }
    /// On failure `expected` receives what was found, read with order relaxed.
    bool compare_exchange(T& expected, T desired, order success, location where = location::current()) const {
      bool stored = false;
      modify_if(success, where, stored, [&] {
        stored = detail::host_compare_exchange(object_, expected, desired, success);
        return expected;
      });
      return stored;
    }

   private:
    static std::uint64_t bits(T value) {
      return static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
    }

    template <class Operation>
    T modify(order o, location where, Operation&& operation) const {
      return modify_if(o, where, true, operation);
    }

    /// `stored` says, after `operation`, whether it wrote to memory.
    template <class Operation>
    T modify_if(order o, location where, bool const& stored, Operation&& operation) const {
      auto* lane = detail::current;
      if (lane == nullptr || !lane->scheduled) return operation();
      if (lane->weak) {
        lane->owner->modify_begin(object_, sizeof(T), o, S, where);
      } else {
        lane->owner->point(where);
      }
      T const before = operation();
      T const after = detail::host_load(object_, order::relaxed);
      if (lane->weak) lane->owner->modify_end(object_, sizeof(T), bits(after), stored, o, S);
      if (lane->watching) lane->owner->seen(object_, sizeof(T), bits(after));
      if (stored) lane->owner->wrote(object_, sizeof(T));
      return before;
    }

    T* object_;
  };

  static void fence(scope s, order o) {
    auto* lane = detail::current;
    if (lane != nullptr && lane->weak) return lane->owner->fence(o, s);
    detail::host_fence(o);
  }

  /// A tracked plain access: it is a scheduling point, and the race detector checks it.
  template <plain T>
  static T ld(T const* address, location where = location::current()) {
    auto* lane = detail::current;
    if (lane == nullptr || !lane->scheduled) return *address;
    if (!lane->weak) {
      lane->owner->point(where);
      T const value = *address;
      if (lane->watching) see(*lane, address, &value, sizeof(T));
      return value;
    }
    T value;
    lane->owner->point(where);
    load_granules(*lane, &value, address, sizeof(T), where);
    return value;
  }
  template <plain T>
  static void st(T* address, std::type_identity_t<T> value, location where = location::current()) {
    auto* lane = detail::current;
    if (lane == nullptr || !lane->scheduled) {
      *address = value;
      return;
    }
    lane->owner->point(where);
    if (!lane->weak) {
      *address = value;
      tell_written(*lane, address, sizeof(T));
      if (lane->watching) see(*lane, address, &value, sizeof(T));
      return;
    }
    store_granules(*lane, address, &value, sizeof(T), where);
  }

  /// Starts to read the byte at `address`. The value goes to `finish_loads`, which returns when it is there.
  static std::uint32_t start_load(std::byte const* address, location where = location::current()) {
    return static_cast<std::uint32_t>(ld(address, where));
  }
  static void finish_loads(std::uint32_t /*values*/) {}

  /// Two neighbouring words, at a multiple of 16 bytes. Each is read as by a relaxed atomic load at device scope.
  static vec16 load_pair(std::uint64_t const* words, location where = location::current()) {
    auto* const both = const_cast<std::uint64_t*>(words);
    return {atomic_ref<std::uint64_t, scope::device>(both[0]).load(order::relaxed, where),
            atomic_ref<std::uint64_t, scope::device>(both[1]).load(order::relaxed, where)};
  }
  /// Reads memory that other lanes may be overwriting; the result may be any mixture of old and new bytes. The value
  /// may be used only if an atomic load of some word afterwards, which this load is ordered before, shows that no lane
  /// did. It is a scheduling point, and counts as no race. Where loads may be stale, this one may be too: it returns
  /// what the lane has acquired, or anything newer.
  template <plain T>
  static T ld_speculative(T const* address, location where = location::current()) {
    auto* lane = detail::current;
    if (lane == nullptr || !lane->scheduled) return native::ld_speculative(address);
    lane->owner->point(where);
    T value;
    if (lane->weak) {
      for_granules(address, sizeof(T), [&](std::size_t at, std::uint32_t n) {
        std::uint64_t const bits = lane->owner->speculative_load(reinterpret_cast<std::byte const*>(address) + at, n);
        std::memcpy(reinterpret_cast<std::byte*>(&value) + at, &bits, n);
      });
    } else {
      value = detail::host_load_racy(address);
    }
    if (lane->watching) see(*lane, address, &value, sizeof(T));
    // Acquire: the promised order, before the load that tells whether the value may be used.
    fence(scope::device, order::acquire);
    return value;
  }

  /// Moves `bytes` bytes between areas that do not overlap; one lane does all of it. In a scheduled run up to four
  /// scheduling points split it, so that a reader that comes too early sees a torn copy.
  static void copy(void* to, void const* from, std::size_t bytes, location where = location::current()) {
    auto* lane = detail::current;
    if (lane == nullptr || !lane->scheduled) {
      std::memcpy(to, from, bytes);
      return;
    }
    std::size_t const piece = std::max<std::size_t>(16, (bytes / 4 + 15) / 16 * 16);
    for (std::size_t at = 0; at < bytes; at += piece) {
      std::size_t const n = std::min(piece, bytes - at);
      auto* target = static_cast<std::byte*>(to) + at;
      auto const* source = static_cast<std::byte const*>(from) + at;
      lane->owner->point(where);
      if (lane->weak) {
        std::array<std::byte, 64> staged;
        for (std::size_t k = 0; k < n; k += staged.size()) {
          std::size_t const m = std::min(staged.size(), n - k);
          load_granules(*lane, staged.data(), source + k, m, where);
          store_granules(*lane, target + k, staged.data(), m, where);
        }
      } else {
        std::memcpy(target, source, n);
        if (lane->watching) see(*lane, source, source, n);
        tell_written(*lane, target, n);
      }
    }
  }

  static constexpr bool has_bulk_copies = true;

  /// Starts to copy `Bytes` bytes of global memory into shared memory. Both addresses are multiples of `Bytes`. The
  /// target holds a pattern until the copy arrives: in real time when the lane waits for it, in a scheduled run at any
  /// moment until then. The source is read when the copy arrives.
  template <std::uint32_t Bytes>
  static void copy_async(void* to, void const* from, location where = location::current()) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "asynchronous copies move 4, 8 or 16 bytes");
    auto* lane = detail::current;
    check(lane != nullptr, "copy_async: outside an executor there is no shared memory", where);
    lane->owner->copy_async(to, from, Bytes, where);
  }
  /// Makes a group of the copies that the caller started since its last group. A group may be empty.
  static void commit_copies() {
    if (auto* lane = detail::current; lane != nullptr) lane->owner->commit_copies();
  }
  /// Returns when all groups of the caller but the newest `Newest` have arrived. The caller then sees their bytes; the
  /// other lanes of its block see them after a barrier.
  template <std::uint32_t Newest>
  static void wait_copies(location where = location::current()) {
    if (auto* lane = detail::current; lane != nullptr) lane->owner->wait_copies(Newest, where);
  }

  // What `simt::bulk_barrier` is made of.

  static void init_barrier(std::uint64_t& word, std::uint32_t arrivals, location where = location::current()) {
    check(arrivals != 0 && arrivals <= 1024, "a barrier: 1 to 1024 arrivals", where);
    barrier(word).store(detail::barrier_word::initial(arrivals), order::relaxed, where);
  }
  static void expect_bytes(std::uint64_t& word, std::uint32_t bytes, location where = location::current()) {
    change_barrier(word, bytes, 0, order::relaxed, where);
  }
  static void arrive_at_barrier(std::uint64_t& word, location where = location::current()) {
    // Release: pairs with the acquire in barrier_passed.
    change_barrier(word, 0, 1, order::release, where);
  }
  [[nodiscard]] static bool barrier_passed(std::uint64_t& word, std::uint32_t parity,
                                           location where = location::current()) {
    if (auto* lane = detail::current; lane != nullptr) lane->owner->look_for_bulk_copies(&word);
    // Acquire: pairs with the release in arrive_at_barrier, and with that of copy_bulk, which each change since
    // continues.
    return detail::barrier_word::parity(barrier(word).load(order::acquire, where)) != parity;
  }
  /// As `copy_async`, except that it arrives when a lane looks at the barrier, and at any moment in a scheduled run.
  static void copy_bulk(void* to, void const* from, std::uint32_t bytes, std::uint64_t& word,
                        location where = location::current()) {
    auto* lane = detail::current;
    check(lane != nullptr, "copy_bulk: outside an executor there is no shared memory", where);
    lane->owner->copy_bulk(to, from, bytes, &word, where);
  }
  /// There is one proxy here, so this orders nothing, and no run finds that it is missing.
  static void fence_before_bulk_copies() {}

  /// Stores to a controller's doorbell register. Order it after the entries with `fence(scope::system,
  /// order::release)`.
  static void st_mmio(std::uint32_t* doorbell, std::uint32_t value, location where = location::current()) {
    atomic_ref<std::uint32_t, scope::system>(*doorbell).store(value, order::relaxed, where);
  }

  /// Nanoseconds: virtual time in a scheduled run (from 0), else a monotonic clock whose origin is unspecified.
  static std::uint64_t clock_ns() {
    auto* lane = detail::current;
    return lane == nullptr ? native::clock_ns() : lane->owner->clock_ns();
  }

  /// Evaluates `predicate` until it holds (true) or `clock_ns()` reaches `deadline_ns` (false). In a scheduled run the
  /// lane sleeps until a value that the predicate read through this machine changes; values that it reads otherwise,
  /// the clock included, do not wake the lane, so pass a time as the deadline. A predicate must not itself wait.
  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    auto* lane = detail::current;
    if (lane == nullptr) return native::wait_until(predicate, deadline_ns);
    for (std::uint32_t misses = 0;; ++misses) {
      if (lane->scheduled) {
        watch const scoped(*lane, where);
        if (predicate()) return true;
      } else if (predicate()) {
        return true;
      }
      // In real time, a thread that was held up looks once more.
      if (!lane->owner->wait_sleep(deadline_ns, misses, where)) return !lane->scheduled && predicate();
    }
  }

  /// The same for a wait that may be long and whose end is not urgent.
  template <class Predicate>
  [[nodiscard]] static bool idle_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    return wait_until(predicate, deadline_ns, where);
  }

  static void check(bool holds, char const* what, location where = location::current()) {
    if (holds) return;
    auto* lane = detail::current;
    if (lane == nullptr) return native::check(false, what);
    lane->owner->check_failed(what, where);
  }

  /// A set of lanes of one warp, the caller among them. A collective names its site; all members call the same one.
  class warp {
   public:
    explicit warp(std::uint32_t mask) : mask_(mask) {}
    /// Lane id in the warp, 0..31.
    std::uint32_t thread_rank() const { return detail::current == nullptr ? 0 : detail::current->thread % 32; }
    static constexpr std::uint32_t size() { return 32; }
    std::uint32_t mask() const { return mask_; }
    /// The members that are also in `mask`, which must hold the caller.
    warp subset(std::uint32_t mask) const { return warp(mask_ & mask); }

    /// Waits for all members and orders memory among them.
    void sync(location where = location::current()) const { collect(detail::collective::sync, 0, 0, where); }
    bool any(bool p, location where = location::current()) const {
      return collect(detail::collective::any, p, 0, where) != 0;
    }
    bool all(bool p, location where = location::current()) const {
      return collect(detail::collective::all, p, 0, where) != 0;
    }
    std::uint32_t ballot(bool p, location where = location::current()) const {
      return static_cast<std::uint32_t>(collect(detail::collective::ballot, p, 0, where));
    }
    /// The value that member `lane` passed.
    template <class T>
      requires std::is_trivially_copyable_v<T>
    T shfl(T value, std::uint32_t lane, location where = location::current()) const {
      T result = value;
      for (std::size_t at = 0; at < sizeof(T); at += 8) {
        std::size_t const n = std::min<std::size_t>(8, sizeof(T) - at);
        std::uint64_t part = 0;
        std::memcpy(&part, reinterpret_cast<std::byte const*>(&value) + at, n);
        part = collect(detail::collective::shuffle, part, lane, where);
        std::memcpy(reinterpret_cast<std::byte*>(&result) + at, &part, n);
      }
      return result;
    }
    /// The members that passed the same value.
    template <word T>
    std::uint32_t match_any(T value, location where = location::current()) const {
      return static_cast<std::uint32_t>(
          collect(detail::collective::match, static_cast<std::uint64_t>(value), 0, where));
    }

   private:
    std::uint64_t collect(detail::collective kind, std::uint64_t operand, std::uint32_t source, location where) const {
      auto* lane = detail::current;
      if (lane != nullptr) return lane->owner->collect(kind, mask_, operand, source, where);
      return kind == detail::collective::match ? 1 : operand;
    }
    std::uint32_t mask_;
  };

  /// All lanes of the calling lane's warp.
  static warp this_warp() {
    auto* lane = detail::current;
    if (lane == nullptr) return warp(1);
    std::uint32_t const first = lane->thread / 32 * 32;
    std::uint32_t const lanes = std::min(32u, lane->threads_per_block - first);
    return warp(lanes == 32 ? ~0u : (1u << lanes) - 1);
  }
  /// The lanes that are here together with the caller. A GPU groups them as it happens to, so any set that holds the
  /// caller is right. A scheduled run picks one of the possible sets at random.
  static warp converged(location where = location::current()) {
    auto* lane = detail::current;
    return warp(lane == nullptr ? 1 : lane->owner->converged(where));
  }

  /// Waits together with the other `lanes`, all of which call this, until `done()` holds for each of them or its
  /// deadline has passed. Returns whether it holds for the caller. Each lane calls `help()` while it waits. `help`
  /// returns whether it did anything; the lane sleeps only after it did nothing.
  template <class Done, class Help>
  [[nodiscard]] static bool wait_together(warp const& lanes, Done&& done, Help&& help, std::uint64_t deadline_ns,
                                          location where = location::current()) {
    bool const holds = wait_until(
        [&] {
          std::uint32_t late_helps = 0;
          while (!done()) {
            if (!help()) return done();
            if (clock_ns() >= deadline_ns && ++late_helps == late_helps_max) return done();
          }
          return true;
        },
        deadline_ns, where);
    lanes.sync(where);
    return holds;
  }

  struct block {
    std::uint32_t rank = 0;
    std::uint32_t thread_rank() const { return detail::current == nullptr ? 0 : detail::current->thread; }
    std::uint32_t size() const { return detail::current == nullptr ? 1 : detail::current->threads_per_block; }
    /// Waits for all lanes of the block that have not ended and orders memory among them.
    void sync(location where = location::current()) const {
      if (auto* lane = detail::current; lane != nullptr) lane->owner->block_sync(where);
    }
    /// The block's dynamic shared memory (`grid::shared_bytes`, aligned to 16), uninitialised, as a `T`.
    template <class T>
    T& shared(location where = location::current()) const {
      auto* lane = detail::current;
      check(lane != nullptr && sizeof(T) <= lane->shared_bytes, "shared memory: grid::shared_bytes is too small",
            where);
      return *reinterpret_cast<T*>(lane->shared);
    }
  };
  static block this_block() { return {detail::current == nullptr ? 0 : detail::current->block}; }

  /// Rank of the calling lane in its grid, and how many the grid has.
  static std::uint32_t thread_rank() {
    auto* lane = detail::current;
    return lane == nullptr ? 0 : lane->block * lane->threads_per_block + lane->thread;
  }
  static std::uint32_t thread_count() {
    auto* lane = detail::current;
    return lane == nullptr ? 1 : lane->blocks * lane->threads_per_block;
  }
  /// A number that distinguishes the calling lane's grid from others that run at the same time.
  static std::uint32_t grid_id() {
    auto* lane = detail::current;
    return lane == nullptr ? native::grid_id() : lane->grid;
  }

  /// A choice of 0..n-1, which the scheduler makes and a replay repeats. For agents and tests.
  static std::uint32_t choose(std::uint32_t n) {
    auto* lane = detail::current;
    return lane == nullptr ? 0 : lane->owner->choose(n);
  }
  /// Whether all lanes of a scheduled run have ended. Turning true wakes every agent that waits.
  static bool stopping() {
    auto* lane = detail::current;
    return lane != nullptr && lane->owner->stopping();
  }

 private:
  class watch {
   public:
    watch(detail::lane_hooks& lane, location where) : lane_(lane) {
      check(!lane.watching, "wait_until inside the predicate of another", where);
      lane.owner->wait_begin();
      lane.watching = true;
    }
    ~watch() {
      lane_.watching = false;
      lane_.owner->wait_end();
    }
    watch(watch const&) = delete;
    watch& operator=(watch const&) = delete;

   private:
    detail::lane_hooks& lane_;
  };

  static atomic_ref<std::uint64_t, scope::block> barrier(std::uint64_t& word) {
    return atomic_ref<std::uint64_t, scope::block>(word);
  }
  static void change_barrier(std::uint64_t& word, std::uint32_t expected, std::uint32_t arrivals, order o,
                             location where) {
    std::uint64_t seen = barrier(word).load(order::relaxed, where);
    for (;;) {
      check(detail::barrier_word::missing(seen) >= arrivals, "a barrier: more lanes arrive than init() said", where);
      if (barrier(word).compare_exchange(seen, detail::barrier_word::after(seen, expected, arrivals), o, where)) return;
    }
  }

  /// Calls `visit(offset, bytes)` for the parts of [address, address + bytes) that each lie in one granule of 8 bytes.
  template <class Visit>
  static void for_granules(void const* address, std::size_t bytes, Visit&& visit) {
    auto const start = reinterpret_cast<std::uintptr_t>(address);
    for (std::size_t at = 0; at < bytes;) {
      auto const n = static_cast<std::uint32_t>(std::min<std::size_t>(bytes - at, 8 - (start + at) % 8));
      visit(at, n);
      at += n;
    }
  }
  static void see(detail::lane_hooks& lane, void const* address, void const* values, std::size_t bytes) {
    for_granules(address, bytes, [&](std::size_t at, std::uint32_t n) {
      std::uint64_t value = 0;
      std::memcpy(&value, static_cast<std::byte const*>(values) + at, n);
      lane.owner->seen(static_cast<std::byte const*>(address) + at, n, value);
    });
  }
  static void tell_written(detail::lane_hooks& lane, void const* address, std::size_t bytes) {
    lane.owner->worked();
    for_granules(address, bytes, [&](std::size_t at, std::uint32_t n) {
      lane.owner->wrote(static_cast<std::byte const*>(address) + at, n);
    });
  }
  static void load_granules(detail::lane_hooks& lane, void* to, void const* from, std::size_t bytes, location where) {
    for_granules(from, bytes, [&](std::size_t at, std::uint32_t n) {
      auto const* source = static_cast<std::byte const*>(from) + at;
      std::uint64_t const value = lane.owner->plain_load(source, n, where);
      std::memcpy(static_cast<std::byte*>(to) + at, &value, n);
      if (lane.watching) lane.owner->seen(source, n, value);
    });
  }
  static void store_granules(detail::lane_hooks& lane, void* to, void const* from, std::size_t bytes, location where) {
    for_granules(to, bytes, [&](std::size_t at, std::uint32_t n) {
      auto* target = static_cast<std::byte*>(to) + at;
      std::uint64_t value = 0;
      std::memcpy(&value, static_cast<std::byte const*>(from) + at, n);
      lane.owner->plain_store(target, n, value, where);
      if (lane.watching) lane.owner->seen(target, n, value);
    });
  }
};

}  // namespace forebay::simt
