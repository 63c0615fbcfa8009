// SPDX-License-Identifier: Apache-2.0
//! \file
//! Device memory of each kind that the suite compares. Only where CUDA is built in.
//!
//! It comes straight from CUDA: `memory::device` keeps what is freed, and would hide what allocation costs, which the
//! suite measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "apps/transfer/modes.hpp"

struct CUstream_st;  // what a cudaStream_t points to

namespace forebay::transfer {

/// Makes and frees device memory; these calls are what is measured. Thread-safe. Members throw `operation_failed`. What
/// was not freed goes with the object, when the GPU no longer uses it.
class device_memory {
 public:
  virtual ~device_memory() = default;
  /// Memory for work that comes later in `stream`, or in streams that wait for it. Of a pool; the other kinds give it
  /// for any stream.
  virtual std::byte* make(std::uint64_t bytes, CUstream_st* stream) = 0;
  /// Of a pool: when the work so far in `stream` has ended. For the other kinds the caller has waited for all work
  /// that uses it.
  virtual void free(std::byte* address, CUstream_st* stream) = 0;
};

/// Whether GPU `ordinal` has memory of this kind. Throws `operation_failed` if CUDA cannot say. Thread-safe.
bool has_device_memory(allocation_kind kind, int ordinal);

/// Of `make_device_memory`: keeps all that is freed.
inline constexpr std::uint64_t keep_all = ~std::uint64_t{0};

/// Memory of GPU `ordinal`, which must be current. `kept_bytes`: how much of what is freed stays for later calls of
/// `make`. Of a pool it is the release threshold; of chunks, the physical memory that is no longer mapped. `malloc`
/// keeps nothing.
std::unique_ptr<device_memory> make_device_memory(allocation_kind kind, int ordinal, std::uint64_t kept_bytes);

}  // namespace forebay::transfer
