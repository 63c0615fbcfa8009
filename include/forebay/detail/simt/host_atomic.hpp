// SPDX-License-Identifier: Apache-2.0
//! \file
//! Atomic accesses of host machines, each with its memory order as a literal.
//!
//! ThreadSanitizer instruments an atomic builtin only if its order is a constant; a switch over literals keeps it one
//! whether or not the caller's argument folds.
#pragma once

#include <type_traits>

#include "forebay/detail/simt/vocabulary.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
#endif

namespace forebay::simt::detail {

/// What a thread's fences require. ThreadSanitizer knows no fences, so after a release fence every access that writes
/// releases, and an acquire fence acquires from the last relaxed accesses before it that read.
struct fence_shadow {
  static constexpr unsigned remembered = 32;
  bool released = false;
  void* loaded[remembered] = {};
  unsigned next = 0;

  void remember(void* address) { loaded[next++ % remembered] = address; }
};

#if defined(__SANITIZE_THREAD__) || defined(FOREBAY_SIMT_TSAN)
inline constinit thread_local fence_shadow native_fences;
inline constinit thread_local fence_shadow* fences = nullptr;  ///< of the current lane; null outside a lane
inline fence_shadow& current_fences() {
  return fences != nullptr ? *fences : native_fences;
}
#endif

/// Called before a relaxed access that reads, for the acquire fence that may follow.
template <class T>
void note_relaxed_read([[maybe_unused]] T const* object, [[maybe_unused]] order o) {
#if defined(__SANITIZE_THREAD__)
  if (o == order::relaxed) current_fences().remember(const_cast<T*>(object));
#endif
}

/// The order of an access that writes, given the fences before it.
inline order after_fences(order o) {
#if defined(__SANITIZE_THREAD__)
  if (current_fences().released) {
    if (o == order::relaxed) return order::release;
    if (o == order::acquire) return order::acq_rel;
  }
#endif
  return o;
}

/// A load that may race with any other access; if it did, the caller discards the value.
template <class T>
__attribute__((no_sanitize_thread)) T host_load_racy(T const* object) {
  T value;
  if constexpr (sizeof(T) == 16) {
    auto const* const words = reinterpret_cast<std::uint64_t const volatile*>(object);
    std::uint64_t const parts[2] = {words[0], words[1]};
    __builtin_memcpy(&value, parts, sizeof value);
  } else {
    using bits =
        std::conditional_t<sizeof(T) == 1, std::uint8_t,
                           std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                              std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
    bits const read = *reinterpret_cast<bits const volatile*>(object);
    __builtin_memcpy(&value, &read, sizeof value);
  }
  return value;
}

template <class T>
T host_load(T const* object, order o) {
  note_relaxed_read(object, o);
  switch (o) {
    case order::relaxed:
      return __atomic_load_n(object, __ATOMIC_RELAXED);
    case order::acquire:
      return __atomic_load_n(object, __ATOMIC_ACQUIRE);
    default:
      return __atomic_load_n(object, __ATOMIC_SEQ_CST);
  }
}

template <class T>
void host_store(T* object, T value, order o) {
  switch (after_fences(o)) {
    case order::relaxed:
      return __atomic_store_n(object, value, __ATOMIC_RELAXED);
    case order::release:
      return __atomic_store_n(object, value, __ATOMIC_RELEASE);
    default:
      return __atomic_store_n(object, value, __ATOMIC_SEQ_CST);
  }
}

/// Calls `operation(order)` with the literal `__ATOMIC_` constant for `o`, as an `std::integral_constant`.
template <class Operation>
auto with_literal(order o, Operation&& operation) {
  switch (o) {
    case order::relaxed:
      return operation(std::integral_constant<int, __ATOMIC_RELAXED>{});
    case order::acquire:
      return operation(std::integral_constant<int, __ATOMIC_ACQUIRE>{});
    case order::release:
      return operation(std::integral_constant<int, __ATOMIC_RELEASE>{});
    case order::acq_rel:
      return operation(std::integral_constant<int, __ATOMIC_ACQ_REL>{});
    case order::seq_cst:
      break;
  }
  return operation(std::integral_constant<int, __ATOMIC_SEQ_CST>{});
}

template <class T>
T host_exchange(T* object, T value, order o) {
  note_relaxed_read(object, o);
  return with_literal(after_fences(o), [&](auto literal) { return __atomic_exchange_n(object, value, literal()); });
}
template <class T>
T host_fetch_add(T* object, T value, order o) {
  note_relaxed_read(object, o);
  return with_literal(after_fences(o), [&](auto literal) { return __atomic_fetch_add(object, value, literal()); });
}
template <class T>
T host_fetch_sub(T* object, T value, order o) {
  note_relaxed_read(object, o);
  return with_literal(after_fences(o), [&](auto literal) { return __atomic_fetch_sub(object, value, literal()); });
}
template <class T>
T host_fetch_or(T* object, T value, order o) {
  note_relaxed_read(object, o);
  return with_literal(after_fences(o), [&](auto literal) { return __atomic_fetch_or(object, value, literal()); });
}
template <class T>
T host_fetch_and(T* object, T value, order o) {
  note_relaxed_read(object, o);
  return with_literal(after_fences(o), [&](auto literal) { return __atomic_fetch_and(object, value, literal()); });
}
/// On failure `expected` receives what was found, read with order relaxed.
template <class T>
bool host_compare_exchange(T* object, T& expected, T desired, order success) {
  note_relaxed_read(object, success);
  return with_literal(after_fences(success), [&](auto literal) {
    return __atomic_compare_exchange_n(object, &expected, desired, false, literal(), __ATOMIC_RELAXED);
  });
}
/// A read-modify-write even if the maximum does not rise, so that its acquire and release always take effect, as on a
/// GPU.
template <class T>
T host_fetch_max(T* object, T value, order o) {
  T seen = __atomic_load_n(object, __ATOMIC_RELAXED);
  while (!host_compare_exchange(object, seen, seen < value ? value : seen, o)) {
  }
  return seen;
}

inline void host_fence(order o) {
#if defined(__SANITIZE_THREAD__)
  auto& shadow = current_fences();
  if (o != order::acquire && o != order::relaxed) shadow.released = true;
  if (o != order::release && o != order::relaxed) {
    for (void* const word : shadow.loaded) {
      if (word != nullptr) __tsan_acquire(word);
    }
  }
  // ThreadSanitizer does not see this fence, and g++ warns so about the standard one; the machine still needs it.
  __sync_synchronize();
#else
  with_literal(o, [](auto literal) { __atomic_thread_fence(literal()); });
#endif
}

}  // namespace forebay::simt::detail
