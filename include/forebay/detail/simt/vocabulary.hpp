// SPDX-License-Identifier: Apache-2.0
//! \file
//! Terms that every machine of the device dialect shares: scopes, memory orders, grids, and what can be an atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/simt/language.hpp"

/// Marks a function of the device dialect: compiled for the GPU by nvcc, an ordinary inline function elsewhere.
#if defined(__CUDACC__)
#define FOREBAY_DEVICE __host__ __device__ inline
#else
#define FOREBAY_DEVICE inline
#endif

/// Marks a function of the device dialect that runs seldom, so that its registers and its code do not burden other
/// functions.
#if defined(__CUDACC__)
#define FOREBAY_COLD __host__ __device__ __noinline__
#else
#define FOREBAY_COLD __attribute__((noinline)) inline
#endif

/// Stands before a loop with a small, fixed number of iterations whose memory accesses are to be in flight together.
#if defined(__CUDA_ARCH__)
#define FOREBAY_UNROLL _Pragma("unroll")
#elif defined(__CUDACC__)
#define FOREBAY_UNROLL
#else
#define FOREBAY_UNROLL _Pragma("GCC unroll 8")
#endif

/// Stands before a loop whose code is to exist once, because it runs seldom or because unrolled it would take many
/// registers.
#if defined(__CUDA_ARCH__)
#define FOREBAY_ROLLED _Pragma("unroll 1")
#else
#define FOREBAY_ROLLED
#endif

namespace forebay::simt {

/// The threads that must agree on the effect of an atomic access or a fence (PTX ISA, "Scope").
enum class scope : std::uint8_t {
  block,   ///< the threads of one block
  device,  ///< every thread of one GPU
  system,  ///< the host, the drives and every GPU
};

/// C++ memory orders. Named here because device code may not use `std::memory_order` on every machine.
enum class order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

/// A deadline that never comes. Use it only for a wait that provably depends on nothing but the caller's own grid.
inline constexpr std::uint64_t no_deadline = ~std::uint64_t{0};

/// How often a thread whose deadline has passed goes on with completions that it can deliver itself. What it waits for
/// may have arrived in time, behind other completions, while the thread was held up. So this is the number of entries
/// of the largest ring, and no more, since otherwise the thread could serve others for ever.
inline constexpr std::uint32_t late_helps_max = 1u << 16;

/// The bit of `M::grid_id()` that is set if the grid is a host thread of its own.
inline constexpr std::uint32_t host_grids = 1u << 31;

/// What an atomic access may touch: one 32-bit or 64-bit integer.
template <class T>
concept word = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

/// What a tracked plain access may touch: at most one 16-byte hardware access.
template <class T>
concept plain = std::is_trivially_copyable_v<T> &&
                (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);

/// Sixteen bytes that one load or store instruction moves.
struct alignas(16) vec16 {
  std::uint64_t low;
  std::uint64_t high;
};

/// Shape of a launch: `blocks` blocks of `threads_per_block` threads, each block with `shared_bytes` of shared memory.
struct grid {
  std::uint32_t blocks = 1;
  std::uint32_t threads_per_block = 32;
  std::uint32_t shared_bytes = 0;
};

/// Calls a function as if the compiler did not know it. On a GPU, a call of a function that the compiler knows adds its
/// registers to those of the caller. Called this way, the greater of the two numbers is enough, and a kernel that never
/// calls it pays nothing.
template <class Function>
FOREBAY_DEVICE Function* out_of_line(Function* function) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(function));
#endif
  return function;
}

/// The atomic view of `object` on machine `M`: `simt::atomic<M, scope::system>(word).store(1, order::release)`.
template <class M, scope S = scope::device, word T>
FOREBAY_DEVICE auto atomic(T& object) {
  return typename M::template atomic_ref<T, S>{object};
}

/// The same of a 64-bit word that lies in global memory, not in that of a block, and that only threads of one GPU use.
/// It has `load` and `store`, relaxed or ordered, and relaxed `fetch_add` and `raise`, which returns nothing.
template <class M, word T>
FOREBAY_DEVICE auto global_atomic(T& object) {
  if constexpr (requires { typename M::template global_atomic_ref<T>; }) {
    return typename M::template global_atomic_ref<T>{object};
  } else {
    using base = typename M::template atomic_ref<T, scope::device>;
    struct raising : base {
      using base::base;
      void raise(T value, order o) const { (void)this->fetch_max(value, o); }
    };
    return raising{object};
  }
}

}  // namespace forebay::simt
