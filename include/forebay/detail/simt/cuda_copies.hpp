// SPDX-License-Identifier: Apache-2.0
//! \file
//! Asynchronous copies between the memory of a GPU and the shared memory of its blocks: what `simt::cuda` has of them.
//! Only for translation units compiled by nvcc.
//!
//! Small copies (`cp.async`) belong to the thread that starts them, which waits for groups of them. Bulk copies
//! (`cp.async.bulk`, compute capability 9.0) belong to a barrier in shared memory (`mbarrier`), which counts their
//! bytes.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt::detail {

struct cuda_copies {
  /// Whether the target has bulk copies. Below compute capability 9.0 their functions do not compile.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr bool has_bulk_copies = false;
#else
  static constexpr bool has_bulk_copies = true;
#endif

  /// Starts to copy `Bytes` bytes of global memory into shared memory. Both addresses are multiples of `Bytes`. Copies
  /// of 16 bytes pass by the L1 cache, others go through it.
  template <std::uint32_t Bytes>
  FOREBAY_DEVICE static void copy_async([[maybe_unused]] void* to, [[maybe_unused]] void const* from) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "asynchronous copies move 4, 8 or 16 bytes");
#if defined(__CUDA_ARCH__)
    if constexpr (Bytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :
                   : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from))
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                   :
                   : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "n"(Bytes)
                   : "memory");
    }
#else
    std::abort();
#endif
  }

  /// Makes a group of the copies that the caller started since its last group. A group may be empty.
  FOREBAY_DEVICE static void commit_copies() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" : : : "memory");
#else
    std::abort();
#endif
  }

  /// Returns when all groups of the caller but the newest `Newest` have arrived. The caller then sees their bytes; the
  /// other threads of its block see them after a barrier.
  template <std::uint32_t Newest>
  FOREBAY_DEVICE static void wait_copies() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" : : "n"(Newest) : "memory");
#else
    std::abort();
#endif
  }

  // What `simt::bulk_barrier` is made of. Templates, so that only a use of them is refused below 9.0.

  /// Makes `word` a barrier whose phases end when `arrivals` threads have arrived and all bytes that are expected have.
  template <bool Used = true>
  FOREBAY_DEVICE static void init_barrier([[maybe_unused]] std::uint64_t& word,
                                          [[maybe_unused]] std::uint32_t arrivals) {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(&word)), "r"(arrivals) : "memory");
    // The unit that completes bulk copies sees the barrier only after these.
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
  }

  /// The current phase does not end before `bytes` more bytes have arrived.
  template <bool Used = true>
  FOREBAY_DEVICE static void expect_bytes([[maybe_unused]] std::uint64_t& word, [[maybe_unused]] std::uint32_t bytes) {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(&word)), "r"(bytes)
                 : "memory");
#endif
  }

  /// A release, which pairs with the acquire of `barrier_passed`.
  template <bool Used = true>
  FOREBAY_DEVICE static void arrive_at_barrier([[maybe_unused]] std::uint64_t& word) {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" : : "r"(shared_address(&word)) : "memory");
#endif
  }

  /// Whether the phase of `parity` (0 for the first, then alternating) has ended. An acquire: pairs with the release of
  /// `arrive_at_barrier`, and with the end of the bulk copies. The thread may rest a while before it says no.
  template <bool Used = true>
  [[nodiscard]] FOREBAY_DEVICE static bool barrier_passed([[maybe_unused]] std::uint64_t& word,
                                                          [[maybe_unused]] std::uint32_t parity) {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    std::uint32_t passed;
    asm volatile(
        "{\n"
        "  .reg .pred passed;\n"
        "  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 passed, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, passed;\n"
        "}"
        : "=r"(passed)
        : "r"(shared_address(&word)), "r"(parity)
        : "memory");
    return passed != 0;
#else
    return false;
#endif
  }

  /// Starts to copy `bytes` bytes of global memory into shared memory, which then arrive at the barrier. The addresses
  /// and `bytes` are multiples of 16.
  template <bool Used = true>
  FOREBAY_DEVICE static void copy_bulk([[maybe_unused]] void* to, [[maybe_unused]] void const* from,
                                       [[maybe_unused]] std::uint32_t bytes, [[maybe_unused]] std::uint64_t& word) {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&word))
                 : "memory");
#endif
  }

  /// Orders the caller's own accesses to shared memory before bulk copies into it that start after a barrier. They come
  /// through another proxy (PTX ISA, "Async proxy"), which barriers alone do not order.
  template <bool Used = true>
  FOREBAY_DEVICE static void fence_before_bulk_copies() {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
  }

  /// Starts to copy `bytes` bytes of shared memory to global memory. The addresses and `bytes` are multiples of 16.
  template <bool Used = true>
  FOREBAY_DEVICE static void store_bulk([[maybe_unused]] void* to, [[maybe_unused]] void const* from,
                                        [[maybe_unused]] std::uint32_t bytes) {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
#endif
  }
  /// Returns when what the caller's `store_bulk` calls read may be overwritten.
  template <bool Used = true>
  FOREBAY_DEVICE static void wait_bulk_reads() {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
#endif
  }
  /// Returns when what the caller's `store_bulk` calls wrote is there.
  template <bool Used = true>
  FOREBAY_DEVICE static void wait_bulk_stores() {
    require_bulk_copies<Used>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
#endif
  }

 private:
  template <bool Used>
  FOREBAY_DEVICE static void require_bulk_copies() {
#if defined(__CUDA_ARCH__)
    static_assert(!Used || has_bulk_copies,
                  "bulk copies need compute capability 9.0: compile for sm_90 or newer, or stage with async16");
#else
    std::abort();
#endif
  }
#if defined(__CUDA_ARCH__)
  FOREBAY_DEVICE static std::uint32_t shared_address(void const* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
  }
#endif
};

}  // namespace forebay::simt::detail
