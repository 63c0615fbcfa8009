// SPDX-License-Identifier: Apache-2.0
//! \file
//! The ways of moving data that the suite compares.
#pragma once

#include <cstdint>
#include <string_view>

#include "apps/transfer/workload.hpp"

namespace forebay::transfer {

/// How bytes get from host memory to where kernels read them, and back.
enum class transfer_kind : std::uint8_t {
  pageable,                     ///< copies from and to ordinary memory
  pinned,                       ///< copies from and to page-locked memory
  pinned_chunked,               ///< ordinary memory, through page-locked chunks that threads fill while others travel
  managed_fault,                ///< managed memory, which pages move to when kernels and the host touch them
  managed_prefetch,             ///< managed memory that is prefetched, before the kernels start and after they end
  managed_prefetch_overlapped,  ///< the same, in a stream beside the kernels: what has not come yet faults
  mapped,                       ///< page-locked memory that kernels read and write over the link
  system,                       ///< ordinary memory that kernels reach, where the system can (HMM or ATS)
  batch,                        ///< copies from and to page-locked memory, all buffers in one call
};
inline constexpr std::string_view transfer_names[] = {
    "pageable", "pinned", "pinned_chunked", "managed_fault", "managed_prefetch", "managed_prefetch_overlapped",
    "mapped",   "system", "batch"};

/// Where device memory comes from. Managed, mapped and system transfers have none of it but for `scratch` buffers.
enum class allocation_kind : std::uint8_t {
  malloc,   ///< cudaMalloc and cudaFree
  pool,     ///< cudaMallocAsync from a pool that keeps what is freed
  chunked,  ///< an address range, and physical chunks mapped to it (virtual memory management)
};
inline constexpr std::string_view allocation_names[] = {"malloc", "pool", "chunked"};

/// A chunk of `chunked`: a multiple of what GPUs map at a time.
inline constexpr std::uint64_t mapped_chunk_bytes = 64 << 20;

/// How much of a GPU's memory a buffer of `bytes` takes.
constexpr std::uint64_t footprint_bytes(allocation_kind kind, std::uint64_t bytes) {
  std::uint64_t const unit = kind == allocation_kind::chunked ? mapped_chunk_bytes : 2 << 20;
  return (bytes + unit - 1) / unit * unit;
}

struct mode {
  transfer_kind transfer = transfer_kind::pageable;
  allocation_kind allocation = allocation_kind::malloc;
  stage_kind stage = stage_kind::plain;
};

constexpr bool is_managed(transfer_kind how) {
  return how == transfer_kind::managed_fault || how == transfer_kind::managed_prefetch ||
         how == transfer_kind::managed_prefetch_overlapped;
}
/// Whether a buffer's bytes come from the host, and whether they go back.
constexpr bool goes_in(buffer const& b) {
  return b.use == buffer_use::in || b.use == buffer_use::in_out;
}
constexpr bool goes_out(buffer const& b) {
  return b.use == buffer_use::out || b.use == buffer_use::in_out;
}
/// Whether kernels work on the host's own buffers.
constexpr bool is_in_place(transfer_kind how) {
  return is_managed(how) || how == transfer_kind::mapped || how == transfer_kind::system;
}

}  // namespace forebay::transfer
