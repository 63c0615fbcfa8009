// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a lane of `simt::fiber` requires of the executor that runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "forebay/detail/simt/host_atomic.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt::detail {

#ifdef __cpp_lib_source_location
using location = std::source_location;
#else
/// The part of std::source_location that is used here, for clang before 16, which has none. It builds the fuzzers.
class location {
 public:
  static constexpr location current(char const* file = __builtin_FILE(), char const* function = __builtin_FUNCTION(),
                                    std::uint_least32_t line = __builtin_LINE(),
                                    std::uint_least32_t column = __builtin_COLUMN()) noexcept {
    location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    here.column_ = column;
    return here;
  }
  constexpr char const* file_name() const noexcept { return file_; }
  constexpr char const* function_name() const noexcept { return function_; }
  constexpr std::uint_least32_t line() const noexcept { return line_; }
  constexpr std::uint_least32_t column() const noexcept { return column_; }

 private:
  char const* file_ = "";
  char const* function_ = "";
  std::uint_least32_t line_ = 0;
  std::uint_least32_t column_ = 0;
};
#endif

enum class collective : std::uint8_t { sync, any, all, ballot, shuffle, match };

/// Runs lanes. Every member is called by the lane that runs on this OS thread.
class executor {
 public:
  // Only in scheduled runs (`lane_hooks::scheduled`).
  /// A scheduling point: another lane may run before this returns.
  virtual void point(location where) = 0;
  /// The predicate of a wait saw that the `bytes` bytes at `address` hold `value`.
  virtual void seen(void const* address, std::uint32_t bytes, std::uint64_t value) = 0;
  /// The `bytes` bytes at `address` changed; lanes that wait for them are to look again.
  virtual void wrote(void const* address, std::uint32_t bytes) = 0;
  /// The lane stored data. If it did so in the predicate of a wait, the predicate does more than look.
  virtual void worked() = 0;
  virtual void wait_begin() = 0;
  virtual void wait_end() = 0;

  // Only under a weak memory model (`lane_hooks::weak`). `bytes` is at most 8 in one naturally aligned granule of 8.
  virtual std::uint64_t load(void const* address, std::uint32_t bytes, order o, scope s, location where) = 0;
  virtual void store(void* address, std::uint32_t bytes, std::uint64_t value, order o, scope s, location where) = 0;
  virtual void modify_begin(void* address, std::uint32_t bytes, order o, scope s, location where) = 0;
  virtual void modify_end(void* address, std::uint32_t bytes, std::uint64_t value, bool stored, order o, scope s) = 0;
  virtual std::uint64_t plain_load(void const* address, std::uint32_t bytes, location where) = 0;
  virtual std::uint64_t speculative_load(void const* address, std::uint32_t bytes) = 0;
  virtual void plain_store(void* address, std::uint32_t bytes, std::uint64_t value, location where) = 0;
  virtual void fence(order o, scope s) = 0;

  // In every mode.
  virtual std::uint64_t clock_ns() = 0;
  /// The predicate was false for the `misses`-th time after the first. False: `deadline_ns` has come.
  virtual bool wait_sleep(std::uint64_t deadline_ns, std::uint32_t misses, location where) = 0;
  virtual std::uint64_t collect(collective kind, std::uint32_t mask, std::uint64_t operand, std::uint32_t source,
                                location where) = 0;
  virtual std::uint32_t converged(location where) = 0;
  virtual void block_sync(location where) = 0;
  virtual std::uint32_t choose(std::uint32_t n) = 0;
  virtual bool stopping() = 0;
  virtual void copy_async(void* to, void const* from, std::uint32_t bytes, location where) = 0;
  virtual void commit_copies() = 0;
  virtual void wait_copies(std::uint32_t newest, location where) = 0;
  /// `barrier` is a `barrier_word`.
  virtual void copy_bulk(void* to, void const* from, std::uint32_t bytes, std::uint64_t* barrier, location where) = 0;
  /// The lane is about to read `barrier` to see whether bulk copies have arrived.
  virtual void look_for_bulk_copies(std::uint64_t* barrier) = 0;
  [[noreturn]] virtual void check_failed(char const* what, location where) = 0;

 protected:
  ~executor() = default;
};

/// The part of a lane that the inline accesses of `simt::fiber` read.
struct lane_hooks {
  executor* owner = nullptr;
  bool scheduled = false;  ///< accesses are scheduling points of a deterministic run
  bool weak = false;       ///< a memory model holds the values
  bool watching = false;   ///< inside the predicate of a wait
  std::uint32_t block = 0;
  std::uint32_t thread = 0;  ///< rank in the block
  std::uint32_t threads_per_block = 1;
  std::uint32_t blocks = 1;
  std::uint32_t grid = 0;  ///< of the launch
  std::byte* shared = nullptr;
  std::size_t shared_bytes = 0;
  fence_shadow fences;  ///< ThreadSanitizer builds only
};

/// The lane that runs on this OS thread; null outside any executor.
inline constinit thread_local lane_hooks* current = nullptr;

}  // namespace forebay::simt::detail
