// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that GPUs share, in a build without CUDA.
#include <stdexcept>
#include <string>

#include "forebay/detail/memory/shared.hpp"

namespace forebay::memory {
namespace {

[[noreturn]] void not_built_in(char const* what) {
  throw std::runtime_error(std::string(what) + ": CUDA is not built in; configure with -DFOREBAY_CUDA=ON");
}

}  // namespace

shared_device_memory::shared_device_memory(int ordinal, std::size_t bytes) : ordinal_(ordinal), bytes_(bytes) {
  not_built_in("shared GPU memory");
}
shared_device_memory::shared_device_memory(int ordinal, int, std::size_t bytes)
    : shared_device_memory(ordinal, bytes) {}
shared_device_memory::~shared_device_memory() = default;

std::optional<lendable_allocation> lendable(void const*) {
  return std::nullopt;
}
borrowed_device_memory::borrowed_device_memory(int ordinal, allocation_handle const&) : ordinal_(ordinal) {
  not_built_in("memory of a GPU");
}
borrowed_device_memory::~borrowed_device_memory() = default;

void prepare_to_clear_device(int) {
  not_built_in("GPU memory");
}
void clear_device(int, void*, std::size_t) {
  not_built_in("GPU memory");
}
void lock_pages(void*, std::size_t) {
  not_built_in("page-locked memory");
}
void unlock_pages(void*) noexcept {}
bool is_managed(void const*) {
  return false;
}
std::byte* lock_registers(int, void*, std::size_t) {
  not_built_in("registers for a GPU");
}
void unlock_registers(void*) noexcept {}
int share_device_memory(int, void*, std::size_t) {
  not_built_in("memory of a GPU");
}
std::string why_devices_cannot_reach(int) {
  not_built_in("memory of a GPU");
}
bool is_of_gpu(int, void const*) {
  return false;
}
void order_remote_writes(int) {
  not_built_in("memory of a GPU");
}
std::string bus_address_of_gpu(int) {
  not_built_in("a GPU");
}

}  // namespace forebay::memory
