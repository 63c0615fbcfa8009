// SPDX-License-Identifier: Apache-2.0
//! \file
//! The machine of a CUDA GPU. Only for translation units compiled by nvcc.
//!
//! Every member is host and device, so that templates marked FOREBAY_DEVICE instantiate without warnings; on the host a
//! member that needs a GPU ends the program.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda/atomic>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "forebay/detail/simt/cuda_copies.hpp"
#include "forebay/detail/simt/machine_traits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/detail/simt/wait_in_step.hpp"
#include "forebay/error.hpp"

// Checked here first, since otherwise the compiler reports, one by one, intrinsics that an older GPU lacks. CMake's own
// default may be older.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "forebay needs compute capability 8.0: set CMAKE_CUDA_ARCHITECTURES to 80 or newer, such as 90 for an H100"
#endif

namespace forebay::simt {

struct cuda : machine_traits, detail::cuda_copies {
  static constexpr std::uint32_t looks_per_poll = 16;
  static constexpr std::uint32_t full_warp_lanes = 32;
  static constexpr bool reduces_warps = true;
  static constexpr bool lanes_share_looks = true;
  static constexpr bool looks_beside_work = true;
  static constexpr bool counts_cycles = true;
  static constexpr bool lock_holders_go_on = true;
  static constexpr bool blocks_bring_scratch = true;

  template <scope S>
  static constexpr ::cuda::thread_scope thread_scope = S == scope::block    ? ::cuda::thread_scope_block
                                                       : S == scope::device ? ::cuda::thread_scope_device
                                                                            : ::cuda::thread_scope_system;
  FOREBAY_DEVICE static constexpr ::cuda::std::memory_order to_std(order o) {
    switch (o) {
      case order::relaxed:
        return ::cuda::std::memory_order_relaxed;
      case order::acquire:
        return ::cuda::std::memory_order_acquire;
      case order::release:
        return ::cuda::std::memory_order_release;
      case order::acq_rel:
        return ::cuda::std::memory_order_acq_rel;
      case order::seq_cst:
        break;
    }
    return ::cuda::std::memory_order_seq_cst;
  }

  template <word T, scope S>
  class atomic_ref {
   public:
    FOREBAY_DEVICE explicit atomic_ref(T& object) : object_(&object) {}
    FOREBAY_DEVICE T load(order o) const { return ref().load(to_std(o)); }
    FOREBAY_DEVICE void store(T value, order o) const { ref().store(value, to_std(o)); }
    FOREBAY_DEVICE T exchange(T value, order o) const { return ref().exchange(value, to_std(o)); }
    FOREBAY_DEVICE T fetch_add(T value, order o) const { return ref().fetch_add(value, to_std(o)); }
    FOREBAY_DEVICE T fetch_sub(T value, order o) const { return ref().fetch_sub(value, to_std(o)); }
    FOREBAY_DEVICE T fetch_or(T value, order o) const { return ref().fetch_or(value, to_std(o)); }
    FOREBAY_DEVICE T fetch_and(T value, order o) const { return ref().fetch_and(value, to_std(o)); }
    /// Raises the object to `value` if it is less; returns the value before.
    FOREBAY_DEVICE T fetch_max(T value, order o) const { return ref().fetch_max(value, to_std(o)); }
    /// On failure `expected` receives what was found, read with order relaxed.
    FOREBAY_DEVICE bool compare_exchange(T& expected, T desired, order success) const {
      return ref().compare_exchange_strong(expected, desired, to_std(success), ::cuda::std::memory_order_relaxed);
    }

   private:
    FOREBAY_DEVICE auto ref() const { return ::cuda::atomic_ref<T, thread_scope<S>>(*object_); }
    T* object_;
  };

  /// The same of an object in global memory, by threads of one GPU. With a pointer of which the compiler does not know
  /// that, each access tests whether it went to shared memory, and so waits for its result: no two are in flight. It
  /// has the orders that are used.
  template <word T>
  class global_atomic_ref {
   public:
    FOREBAY_DEVICE explicit global_atomic_ref(T& object) : object_(&object) {}
#if defined(__CUDA_ARCH__)
    FOREBAY_DEVICE T load(order o) const {
      bits value;
      if (o == order::relaxed) {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address()) : "memory");
      } else {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address()) : "memory");
      }
      return static_cast<T>(value);
    }
    FOREBAY_DEVICE void store(T value, order o) const {
      if (o == order::relaxed) {
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(address()), "l"(bits{value}) : "memory");
      } else {
        asm volatile("st.release.gpu.global.u64 [%0], %1;" : : "l"(address()), "l"(bits{value}) : "memory");
      }
    }
    FOREBAY_DEVICE T fetch_add(T value, order) const {
      bits before;
      asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                   : "=l"(before)
                   : "l"(address()), "l"(bits{value})
                   : "memory");
      return static_cast<T>(before);
    }
    /// Raises the object to `value` if it is less.
    FOREBAY_DEVICE void raise(T value, order) const {
      asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" : : "l"(address()), "l"(bits{value}) : "memory");
    }
#else
    FOREBAY_DEVICE T load(order) const { return not_on_host(); }
    FOREBAY_DEVICE void store(T value, order) const { not_on_host(value); }
    FOREBAY_DEVICE T fetch_add(T value, order) const { return not_on_host(value); }
    FOREBAY_DEVICE void raise(T value, order) const { not_on_host(value); }
#endif

   private:
    static_assert(sizeof(T) == 8);
    using bits = unsigned long long;
#if defined(__CUDA_ARCH__)
    FOREBAY_DEVICE std::size_t address() const { return __cvta_generic_to_global(object_); }
#endif
    T* object_;
  };

  FOREBAY_DEVICE static void fence(scope s, order o) {
    switch (s) {
      case scope::block:
        return ::cuda::atomic_thread_fence(to_std(o), ::cuda::thread_scope_block);
      case scope::device:
        return ::cuda::atomic_thread_fence(to_std(o), ::cuda::thread_scope_device);
      case scope::system:
        break;
    }
    ::cuda::atomic_thread_fence(to_std(o), ::cuda::thread_scope_system);
  }

  template <plain T>
  FOREBAY_DEVICE static T ld(T const* address) {
    if constexpr (sizeof(T) == 16) {
      T value;
      store_parts(&value, *reinterpret_cast<uint4 const*>(address));
      return value;
    } else {
      return *address;
    }
  }
  template <plain T>
  FOREBAY_DEVICE static void st(T* address, std::type_identity_t<T> value) {
    if constexpr (sizeof(T) == 16) {
      uint4 parts;
      memcpy(&parts, &value, sizeof parts);
      *reinterpret_cast<uint4*>(address) = parts;
    } else {
      *address = value;
    }
  }

  /// Starts to read the byte at `address`, in global memory, and so the sector around it. The caller goes on until it
  /// passes the value to `finish_loads`. A load of this sector by the same multiprocessor is then a fast one.
  FOREBAY_DEVICE static std::uint32_t start_load(std::byte const* address) {
#if defined(__CUDA_ARCH__)
    std::uint32_t value;
    // Volatile, so that it stays before the wait that it is to overlap with. Weak, so that the L1 cache keeps it.
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(address)));
    return value;
#else
    return not_on_host(address);
#endif
  }
  /// Returns when the loads are done whose values went into `values`, whatever the values are.
  FOREBAY_DEVICE static void finish_loads(std::uint32_t values) {
#if defined(__CUDA_ARCH__)
    // A guard that the assembler cannot know: the thread goes no further without the value. The rest is no rest.
    asm volatile(
        "{\n"
        "  .reg .pred found;\n"
        "  setp.eq.u32 found, %0, 165;\n"
        "  @found nanosleep.u32 0;\n"
        "}"
        :
        : "r"(values)
        : "memory");
#else
    not_on_host(values);
#endif
  }

  /// Two neighbouring words, at a multiple of 16 bytes. Each is read as by a relaxed atomic load at device scope.
  FOREBAY_DEVICE static vec16 load_pair(std::uint64_t const* words) {
#if defined(__CUDA_ARCH__)
    vec16 both;
    // A vector load is a load of each of its elements (PTX ISA, "Memory Consistency Model", vector data-types).
    asm volatile("ld.relaxed.gpu.v2.u64 {%0, %1}, [%2];" : "=l"(both.low), "=l"(both.high) : "l"(words) : "memory");
    return both;
#else
    not_on_host(words);
    return {};
#endif
  }
  /// Reads memory that other threads may be overwriting; the result may be any mixture of old and new bytes. The value
  /// may be used only if an atomic load of some word afterwards, which this load is ordered before, shows that no
  /// thread did.
  template <plain T>
  FOREBAY_DEVICE static T ld_speculative(T const* address) {
#if defined(__CUDA_ARCH__)
    T value;
    if constexpr (sizeof(T) == 1) {
      unsigned bits;
      asm volatile("ld.acquire.gpu.u8 %0, [%1];" : "=r"(bits) : "l"(address) : "memory");
      auto const byte = static_cast<unsigned char>(bits);
      memcpy(&value, &byte, sizeof value);
    } else if constexpr (sizeof(T) == 2) {
      unsigned short bits;
      asm volatile("ld.acquire.gpu.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
      memcpy(&value, &bits, sizeof value);
    } else if constexpr (sizeof(T) == 4) {
      unsigned bits;
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(bits) : "l"(address) : "memory");
      memcpy(&value, &bits, sizeof value);
    } else if constexpr (sizeof(T) == 8) {
      unsigned long long bits;
      asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory");
      memcpy(&value, &bits, sizeof value);
    } else {
      vec16 bits;
      asm volatile("ld.acquire.gpu.v2.u64 {%0, %1}, [%2];" : "=l"(bits.low), "=l"(bits.high) : "l"(address) : "memory");
      memcpy(&value, &bits, sizeof value);
    }
    return value;
#else
    not_on_host(address);
    return T{};
#endif
  }

  /// Moves `bytes` bytes between areas that do not overlap; one thread does all of it, with 16-byte accesses if both
  /// addresses allow, and four loads in flight.
  FOREBAY_DEVICE static void copy(void* to, void const* from, std::size_t bytes) {
    auto const both = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
    std::size_t done = 0;
    if (both % 16 == 0) {
      done = copy_parts<uint4>(to, from, bytes);
    } else if (both % 4 == 0) {
      done = copy_parts<std::uint32_t>(to, from, bytes);
    }
    for (; done < bytes; ++done) static_cast<char*>(to)[done] = static_cast<char const*>(from)[done];
  }

  /// Stores to a controller's doorbell register. Order it after the entries with `fence(scope::system,
  /// order::release)`.
  FOREBAY_DEVICE static void st_mmio(std::uint32_t* doorbell, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(doorbell)), "r"(value)
                 : "memory");
#else
    not_on_host(doorbell, value);
#endif
  }

  /// Nanoseconds since 1970 by the GPU's clock, which ticks every 32 ns or so. In smaller units the difference of two
  /// readings fits 64 bits, but a reading may not.
  FOREBAY_DEVICE static std::uint64_t clock_ns() {
#if defined(__CUDA_ARCH__)
    std::uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#else
    return not_on_host();
#endif
  }

  /// The clock of the calling thread's multiprocessor.
  FOREBAY_DEVICE static std::uint64_t cycles() {
#if defined(__CUDA_ARCH__)
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now) : : "memory");
    return now;
#else
    return not_on_host();
#endif
  }

  /// Rests for up to twice `ns`, so that other threads get access to the memory that the caller looks at.
  FOREBAY_DEVICE static void pause([[maybe_unused]] unsigned ns) {
#if defined(__CUDA_ARCH__)
    __nanosleep(ns);
#endif
  }

  /// Evaluates `predicate` until it holds (true) or `clock_ns()` reaches `deadline_ns` (false), backing off in between.
  template <class Predicate>
  [[nodiscard]] FOREBAY_DEVICE static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns) {
    for (unsigned pause_ns = 16;; pause_ns = pause_ns < 256 ? pause_ns * 2 : pause_ns) {
      // Read before the look: a thread that is held up in between looks once more before it gives up.
      std::uint64_t const now_ns = deadline_ns != no_deadline ? clock_ns() : 0;
      if (predicate()) return true;
      if (deadline_ns != no_deadline) {
        if (now_ns >= deadline_ns) return false;
        // A pause may last twice as long.
        if (deadline_ns - now_ns < 2 * pause_ns) pause_ns = static_cast<unsigned>((deadline_ns - now_ns) / 2);
      }
      pause(pause_ns);
    }
  }

  /// Whether any of the lanes that are here together says so.
  FOREBAY_DEVICE static bool any_here([[maybe_unused]] bool mine) {
#if defined(__CUDA_ARCH__)
    std::uint32_t some;
    // In one statement, so that no lane leaves between the mask and the vote.
    asm volatile(
        "{\n"
        "  .reg .b32 lanes;\n"
        "  .reg .pred one, any;\n"
        "  activemask.b32 lanes;\n"
        "  setp.ne.u32 one, %1, 0;\n"
        "  vote.sync.any.pred any, one, lanes;\n"
        "  selp.u32 %0, 1, 0, any;\n"
        "}"
        : "=r"(some)
        : "r"(static_cast<std::uint32_t>(mine)));
    return some != 0;
#else
    return not_on_host(mine);
#endif
  }

  /// Rests a moment, for a wait whose end is urgent to some nanoseconds. Does nothing if the end is `near` for any of
  /// the lanes that wait here together, since a lane that rests holds up the others. 64 ns may become 128.
  FOREBAY_DEVICE static void rest_unless_near(bool near) {
    if (!any_here(near)) pause(64);
  }

  /// The same for a wait that may be long and whose end is not urgent.
  template <class Predicate>
  [[nodiscard]] FOREBAY_DEVICE static bool idle_until(Predicate&& predicate, std::uint64_t deadline_ns) {
    for (unsigned pause_ns = 256;; pause_ns = pause_ns < 4096 ? pause_ns * 2 : pause_ns) {
      if (predicate()) return true;
      if (deadline_ns != no_deadline && clock_ns() >= deadline_ns) return false;
      pause(pause_ns);
    }
  }

  FOREBAY_DEVICE static void check(bool holds, char const* what) {
    if (holds) return;
#if defined(__CUDA_ARCH__)
    printf("forebay: check failed in block %u thread %u: %s\n", block_rank(), rank_in_block(), what);
    __trap();
#else
    not_on_host(what);
#endif
  }

  /// A set of lanes of one warp, the caller among them. All members call the same collective.
  class warp {
   public:
    FOREBAY_DEVICE explicit warp(std::uint32_t mask) : mask_(mask) {}
    /// Lane id in the warp, 0..31.
    FOREBAY_DEVICE std::uint32_t thread_rank() const { return lane_id(); }
    FOREBAY_DEVICE static constexpr std::uint32_t size() { return 32; }
    FOREBAY_DEVICE std::uint32_t mask() const { return mask_; }
    /// The members that are also in `mask`, which must hold the caller.
    FOREBAY_DEVICE warp subset(std::uint32_t mask) const { return warp(mask_ & mask); }
#if defined(__CUDA_ARCH__)
    FOREBAY_DEVICE void sync() const { __syncwarp(mask_); }
    FOREBAY_DEVICE bool any(bool p) const { return __any_sync(mask_, p) != 0; }
    FOREBAY_DEVICE bool all(bool p) const { return __all_sync(mask_, p) != 0; }
    FOREBAY_DEVICE std::uint32_t ballot(bool p) const { return __ballot_sync(mask_, p); }
    FOREBAY_DEVICE std::uint32_t reduce_add(std::uint32_t value) const { return __reduce_add_sync(mask_, value); }
    FOREBAY_DEVICE std::uint32_t reduce_max(std::uint32_t value) const { return __reduce_max_sync(mask_, value); }
    /// The value that member `lane` passed.
    template <class T>
      requires std::is_trivially_copyable_v<T>
    FOREBAY_DEVICE T shfl(T value, std::uint32_t lane) const {
      constexpr std::size_t words = (sizeof(T) + 3) / 4;
      std::uint32_t parts[words] = {};
      memcpy(parts, &value, sizeof(T));
      for (std::size_t i = 0; i < words; ++i) parts[i] = __shfl_sync(mask_, parts[i], static_cast<int>(lane));
      memcpy(&value, parts, sizeof(T));
      return value;
    }
    /// The members that passed the same value.
    template <word T>
    FOREBAY_DEVICE std::uint32_t match_any(T value) const {
      if constexpr (sizeof(T) == 8) {
        return __match_any_sync(mask_, static_cast<unsigned long long>(value));
      } else {
        return __match_any_sync(mask_, static_cast<unsigned>(value));
      }
    }
#else
    FOREBAY_DEVICE void sync() const { not_on_host(); }
    FOREBAY_DEVICE bool any(bool p) const { return not_on_host(p) != 0; }
    FOREBAY_DEVICE bool all(bool p) const { return not_on_host(p) != 0; }
    FOREBAY_DEVICE std::uint32_t ballot(bool p) const { return not_on_host(p); }
    FOREBAY_DEVICE std::uint32_t reduce_add(std::uint32_t value) const { return not_on_host(value); }
    FOREBAY_DEVICE std::uint32_t reduce_max(std::uint32_t value) const { return not_on_host(value); }
    template <class T>
      requires std::is_trivially_copyable_v<T>
    FOREBAY_DEVICE T shfl(T value, std::uint32_t lane) const {
      not_on_host(lane);
      return value;
    }
    template <word T>
    FOREBAY_DEVICE std::uint32_t match_any(T value) const {
      return not_on_host(value);
    }
#endif

   private:
    std::uint32_t mask_;
  };

  /// All lanes of the calling thread's warp.
  FOREBAY_DEVICE static warp this_warp() {
#if defined(__CUDA_ARCH__)
    unsigned const first = rank_in_block() / 32 * 32;
    unsigned const lanes = block_size() - first;
    return warp(lanes >= 32 ? ~0u : (1u << lanes) - 1);
#else
    return warp(not_on_host());
#endif
  }
  /// The lanes that are here together with the caller, as the hardware happens to group them.
  FOREBAY_DEVICE static warp converged() {
#if defined(__CUDA_ARCH__)
    // The compiler (CUDA 13.0) takes a plain mask of active lanes to be the same in all lanes that are together later
    // on. It compares one lane's mask with the lanes that are there, and no lane waits for the lanes of its own mask.
    // But lanes of other groups of the warp, which came here at another time, may have joined by then. Adding a lane's
    // own bit, which is in the mask anyhow, gives each lane a value of its own.
    std::uint32_t own_bit;
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(own_bit));
    return warp(__activemask() | own_bit);
#else
    return warp(not_on_host());
#endif
  }

  /// As `wait_in_step` says.
  template <class Done, class Help>
  [[nodiscard]] FOREBAY_DEVICE static bool wait_together(warp const& lanes, Done&& done, Help&& help,
                                                         std::uint64_t deadline_ns) {
    return wait_in_step<cuda>(lanes, done, help, deadline_ns);
  }

  struct block {
    std::uint32_t rank = 0;
#if defined(__CUDA_ARCH__)
    FOREBAY_DEVICE std::uint32_t thread_rank() const { return rank_in_block(); }
    FOREBAY_DEVICE std::uint32_t size() const { return block_size(); }
    FOREBAY_DEVICE void sync() const { __syncthreads(); }
    /// The block's dynamic shared memory (`grid::shared_bytes`, aligned to 16), uninitialised, as a `T`.
    template <class T>
    FOREBAY_DEVICE T& shared() const {
      extern __shared__ uint4 forebay_shared[];
      return *reinterpret_cast<T*>(forebay_shared);
    }
#else
    FOREBAY_DEVICE std::uint32_t thread_rank() const { return not_on_host(); }
    FOREBAY_DEVICE std::uint32_t size() const { return not_on_host(); }
    FOREBAY_DEVICE void sync() const { not_on_host(); }
    template <class T>
    FOREBAY_DEVICE T& shared() const {
      not_on_host();
      return *static_cast<T*>(nullptr);
    }
#endif
  };
  FOREBAY_DEVICE static block this_block() {
#if defined(__CUDA_ARCH__)
    return {block_rank()};
#else
    return {not_on_host()};
#endif
  }

  /// Rank of the calling thread in its grid, and how many the grid has.
  FOREBAY_DEVICE static std::uint32_t thread_rank() {
#if defined(__CUDA_ARCH__)
    return block_rank() * block_size() + rank_in_block();
#else
    return not_on_host();
#endif
  }
  FOREBAY_DEVICE static std::uint32_t thread_count() {
#if defined(__CUDA_ARCH__)
    return gridDim.x * gridDim.y * gridDim.z * block_size();
#else
    return not_on_host();
#endif
  }
  /// A number that distinguishes the calling thread's grid from others that run at the same time.
  FOREBAY_DEVICE static std::uint32_t grid_id() {
#if defined(__CUDA_ARCH__)
    std::uint64_t id;
    asm("mov.u64 %0, %%gridid;" : "=l"(id));
    return static_cast<std::uint32_t>(id) & (host_grids - 1);
#else
    return not_on_host();
#endif
  }

 private:
#if defined(__CUDA_ARCH__)
  // Blocks and grids may have up to three dimensions. Threads are counted in the order in which they lie in warps (CUDA
  // C++ Programming Guide, "Thread Hierarchy").
  FOREBAY_DEVICE static std::uint32_t rank_in_block() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
  FOREBAY_DEVICE static std::uint32_t block_size() { return blockDim.x * blockDim.y * blockDim.z; }
  FOREBAY_DEVICE static std::uint32_t block_rank() {
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
#endif

  template <class T>
  FOREBAY_DEVICE static void store_parts(T* value, uint4 parts) {
    memcpy(value, &parts, sizeof parts);
  }

  /// Copies as many whole `Part`s as fit; returns how many bytes that was.
  template <class Part>
  FOREBAY_DEVICE static std::size_t copy_parts(void* to, void const* from, std::size_t bytes) {
    auto* target = static_cast<Part*>(to);
    auto const* source = static_cast<Part const*>(from);
    std::size_t const parts = bytes / sizeof(Part);
    std::size_t i = 0;
    for (; i + 4 <= parts; i += 4) {
      Part const a = source[i], b = source[i + 1], c = source[i + 2], d = source[i + 3];
      target[i] = a;
      target[i + 1] = b;
      target[i + 2] = c;
      target[i + 3] = d;
    }
    for (; i < parts; ++i) target[i] = source[i];
    return parts * sizeof(Part);
  }

  FOREBAY_DEVICE static std::uint32_t lane_id() {
#if defined(__CUDA_ARCH__)
    std::uint32_t id;
    asm("mov.u32 %0, %%laneid;" : "=r"(id));
    return id;
#else
    return not_on_host();
#endif
  }

#if !defined(__CUDA_ARCH__)
  template <class... Unused>
  FOREBAY_DEVICE static std::uint32_t not_on_host(Unused...) {
    std::abort();
  }
#endif
};

#if defined(__CUDACC__)

namespace detail {
/// A kernel may state the largest number of threads that its blocks have (`max_threads_per_block`), so that the
/// compiler gives it as many registers as that leaves room for.
template <class Kernel>
constexpr unsigned max_threads_per_block = [] {
  if constexpr (requires { Kernel::max_threads_per_block; }) {
    return Kernel::max_threads_per_block;
  } else {
    return 0u;
  }
}();
template <class Kernel>
__global__ void cuda_entry(__grid_constant__ Kernel const kernel) {
  kernel();
}
template <class Kernel>
__global__ void __launch_bounds__(max_threads_per_block<Kernel>, 1)
    cuda_bounded_entry(__grid_constant__ Kernel const kernel) {
  kernel();
}
template <class Kernel>
constexpr auto cuda_entry_of() {
  if constexpr (max_threads_per_block<Kernel> != 0) {
    return &cuda_bounded_entry<Kernel>;
  } else {
    return &cuda_entry<Kernel>;
  }
}
}  // namespace detail

namespace detail {
/// Loads the code of a kernel. If the GPU cannot run the kernel, its launch says so, not this.
/// \throws operation_failed
template <class Kernel>
void load_kernel() {
  cudaFuncAttributes unused;
  cudaError_t const error = cudaFuncGetAttributes(&unused, cuda_entry_of<Kernel>());
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or the next launch would report it
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) return;
  throw operation_failed(std::string("cannot load a kernel: ") + cudaGetErrorString(error));
}

/// The kernels that the code of a program or a shared library launches, known before any of them is launched.
class launched_kernels {
 public:
  static launched_kernels& instance() {
    static auto* const kernels = new launched_kernels;  // never destroyed: other static objects may use it
    return *kernels;
  }
  bool add(void (*load)()) {
    std::lock_guard const lock(mutex_);
    loads_.push_back(load);
    return true;
  }
  void load_on(int ordinal) {
    std::lock_guard const lock(mutex_);
    for (std::size_t& loaded = loaded_[ordinal]; loaded < loads_.size(); ++loaded) loads_[loaded]();
  }

 private:
  std::mutex mutex_;
  std::vector<void (*)()> loads_;
  std::unordered_map<int, std::size_t> loaded_;  // of each GPU
};

/// Initialised when the program or the library that launches the kernel starts: each has kernels of its own.
template <class Kernel>
static bool const is_among_launched = launched_kernels::instance().add(&load_kernel<Kernel>);
}  // namespace detail

/// Loads the code of all kernels that `launch` is instantiated with, for the current GPU, `ordinal`. If a process loads
/// kernels when they are first launched (CUDA_MODULE_LOADING=LAZY, the default), a launch waits until the GPU is idle,
/// which it is not while the engine of a drive runs. After a call of this function it does not wait. A second call does
/// nothing. Thread-safe.
/// \throws operation_failed
inline void load_kernels(int ordinal) {
  detail::launched_kernels::instance().load_on(ordinal);
}

/// Starts `kernel`, a copyable functor, on every thread of `shape`, in `stream`. Returns before the kernel has run.
/// \throws operation_failed if the launch is refused, or if an earlier error of the process is reported now.
template <class M, class Kernel>
  requires std::is_same_v<M, cuda>
void launch(grid const& shape, Kernel const& kernel, cudaStream_t stream = nullptr) {
  static_cast<void>(&detail::is_among_launched<Kernel>);  // a use, without which it would not exist
  auto refuse = [&](cudaError_t error) {
    if (error == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());  // or the thread's next call might report it again
    throw operation_failed("cannot launch " + std::to_string(shape.blocks) + " blocks of " +
                           std::to_string(shape.threads_per_block) + " threads with " +
                           std::to_string(shape.shared_bytes) +
                           " bytes of shared memory: " + cudaGetErrorString(error));
  };
  // Above 48 KiB a kernel has to ask for dynamic shared memory (CUDA programming guide, "Shared Memory").
  if (shape.shared_bytes > 48 * 1024)
    refuse(cudaFuncSetAttribute(detail::cuda_entry_of<Kernel>(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(shape.shared_bytes)));
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  // Says what came of this launch, where `cudaGetLastError` might tell of an earlier call.
  refuse(cudaLaunchKernel(detail::cuda_entry_of<Kernel>(), shape.blocks, shape.threads_per_block, arguments,
                          shape.shared_bytes, stream));
}

#endif

}  // namespace forebay::simt
