// SPDX-License-Identifier: Apache-2.0
//! \file
//! What both kinds of index check on the host, before anything starts.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "apps/search/index.hpp"
#include "forebay/error.hpp"
#include "forebay/host_memory.hpp"
#include "forebay/machine.hpp"
#include "forebay/memory.hpp"

namespace forebay::search {

inline constexpr std::uint32_t list_size_max = 4096;
inline constexpr std::size_t alignment_bytes = 4096;

template <class Value>
void refuse_unless(bool holds, char const* field, Value const& value, std::string const& remedy) {
  if (!holds) throw refused_input(field, fmt::format("{}", value), remedy);
}

template <class T>
void require_size(char const* field, std::span<T const> values, std::uint64_t size) {
  refuse_unless(values.size() == size, field, values.size(), fmt::format("must have {} elements", size));
}

/// Calls `with(std::type_identity<M>)` for the machine that searches.
template <class With>
auto on_machine([[maybe_unused]] int gpu, With&& with) {
#ifdef FOREBAY_HAS_CUDA
  if (gpu >= 0) return with(std::type_identity<simt::cuda>());
#endif
  return with(std::type_identity<simt::fiber>());
}

inline memory::resource& memory_of(int gpu) {
  return gpu < 0 ? memory::host() : memory::device(gpu);
}

inline memory::resource& memory_for(record_memory const& where) {
  if (where.gpu < 0) {
    refuse_unless(where.place == record_place::host, "memory", "hbm", "needs a GPU: use host");
    return memory::host();
  }
  refuse_unless(where.gpu < memory::device_count(), "device", fmt::format("cuda:{}", where.gpu),
                "must be a GPU that this process can use: see `forebay doctor`");
  return where.place == record_place::hbm ? memory::device(where.gpu) : memory::pinned();
}

inline memory::allocation copied(memory::resource& to, std::span<std::byte const> bytes) {
  memory::allocation copy(to, bytes.size(), alignment_bytes);
  to.copy_in(copy.data(), bytes.data(), bytes.size());
  return copy;
}

inline void validate_queries(query_set const& queries, std::uint32_t vector_words, std::uint32_t slots) {
  std::uint64_t const count = queries.count;
  refuse_unless(count >= 1, "queries", count, "must be at least one");
  require_size("queries", queries.words, count * vector_words);
  require_size("norms", queries.norms, count);
  if (!queries.filter.empty()) require_size("filter", queries.filter, (std::uint64_t{slots} + 31) / 32);
}

/// Of either kind.
template <class Options>
void validate_options(Options const& options) {
  refuse_unless(options.list_size >= 1 && options.list_size <= list_size_max, "itopk_size", options.list_size,
                fmt::format("must be 1 to {}", list_size_max));
  refuse_unless(options.k >= 1 && options.k <= options.list_size, "k", options.k,
                fmt::format("must be 1 to itopk_size, {}", options.list_size));
  refuse_unless(options.concurrency <= 1u << 16, "concurrency", options.concurrency, "must be at most 65536");
  refuse_unless(std::isfinite(options.timeout_s) && options.timeout_s > 0 && options.timeout_s <= 1e6, "timeout_s",
                options.timeout_s, "must be more than 0 and at most 1,000,000 seconds");
}

}  // namespace forebay::search
