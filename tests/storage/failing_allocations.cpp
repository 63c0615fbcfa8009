// SPDX-License-Identifier: Apache-2.0
#include "failing_allocations.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

#include "forebay/detail/simt/waiting_work.hpp"

namespace forebay::test {

thread_local std::int64_t allocations_left = -1;
thread_local bool allocation_failed = false;

namespace {

void* allocate(std::size_t bytes, std::size_t alignment) {
  // A drive that the thread serves while it waits is another party, which has no caller to tell.
  if (allocations_left >= 0 && !simt::at_waiting_work() && allocations_left-- == 0) {
    allocation_failed = true;
    throw std::bad_alloc();
  }
  std::size_t const rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const address = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (address == nullptr) throw std::bad_alloc();
  return address;
}

}  // namespace
}  // namespace forebay::test

void* operator new(std::size_t bytes) {
  return forebay::test::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return forebay::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* address) noexcept {
  std::free(address);
}
void operator delete(void* address, std::size_t) noexcept {
  std::free(address);
}
void operator delete(void* address, std::align_val_t) noexcept {
  std::free(address);
}
void operator delete(void* address, std::size_t, std::align_val_t) noexcept {
  std::free(address);
}
