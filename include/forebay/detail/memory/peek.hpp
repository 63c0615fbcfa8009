// SPDX-License-Identifier: Apache-2.0
//! \file
//! Reads memory that threads are writing, and writes words that they read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "forebay/detail/simt/host_atomic.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/memory.hpp"

namespace forebay::memory {

/// Copies memory of `where` out while threads write there, also those of a GPU's running kernels. It copies word by
/// word. Each word is whole if it is aligned, and two words may show different moments. Both addresses and `bytes` are
/// multiples of 4.
inline void peek(resource& where, void* to, void const* from, std::size_t bytes) {
  if (where.kind() == kind::device) return where.copy_out(to, from, bytes);
  auto* out = static_cast<std::byte*>(to);
  auto const* in = static_cast<std::byte const*>(from);
  auto const word = [&](auto value) {
    value = simt::detail::host_load_racy(reinterpret_cast<decltype(value) const*>(in));
    __builtin_memcpy(out, &value, sizeof value);
    out += sizeof value;
    in += sizeof value;
    bytes -= sizeof value;
  };
  while (bytes >= 8) {
    if (reinterpret_cast<std::uintptr_t>(in) % 8 != 0) {
      word(std::uint32_t{});
    } else {
      word(std::uint64_t{});
    }
  }
  if (bytes >= 4) word(std::uint32_t{});
}

template <class T>
  requires std::is_trivially_copyable_v<T>
T peek(resource& where, T const* from) {
  T value;
  peek(where, &value, from, sizeof value);
  return value;
}

template <class T>
  requires std::is_trivially_copyable_v<T>
std::vector<T> peek(resource& where, T const* from, std::size_t count) {
  std::vector<T> values(count);
  if (count != 0) peek(where, values.data(), from, count * sizeof(T));
  return values;
}

/// Stores to a word that threads read meanwhile, also those of a GPU's running kernels. What the caller wrote before is
/// visible to a thread that reads the new value with acquire.
template <simt::word T>
void poke(resource& where, T* to, T value) {
  if (where.kind() == kind::device) return where.copy_in(to, &value, sizeof value);
  // Release pairs with the acquire of those threads.
  simt::detail::host_store(to, value, simt::order::release);
}

}  // namespace forebay::memory
