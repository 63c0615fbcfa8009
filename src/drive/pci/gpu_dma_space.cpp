// SPDX-License-Identifier: Apache-2.0
#include "gpu_dma_space.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "forebay/detail/memory/shared.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::pci {
namespace {

/// Of a GPU: what its driver pins at once (CUDA's documentation of GPUDirect RDMA).
constexpr std::size_t gpu_page = 65536;

}  // namespace

gpu_memory gpu_memory::of(int ordinal) {
  return {
      .from = &memory::device(ordinal),
      .has = [ordinal](void const* address) { return memory::is_of_gpu(ordinal, address); },
      .share = [ordinal](void* address,
                         std::size_t bytes) { return open_file(memory::share_device_memory(ordinal, address, bytes)); },
      .clear = [ordinal](void* address, std::size_t bytes) { memory::clear_device(ordinal, address, bytes); }};
}

gpu_dma_space::gpu_dma_space(driver::dma_space& host, std::unique_ptr<gpu_addresses> addresses, gpu_memory gpu)
    : host_(host), gpu_(std::move(gpu)), addresses_(*addresses) {
  its_->addresses = std::move(addresses);
}

gpu_dma_space::~gpu_dma_space() {
  if (areas_.empty()) return;
  static std::mutex mutex;
  static auto* const left = new std::unique_ptr<memory_of_functions>;  // never destroyed
  std::lock_guard const lock(mutex);
  its_->next = std::move(*left);
  *left = std::move(its_);
}

void gpu_dma_space::join(void const* who, keeper whose) {
  std::lock_guard const lock(mutex_);
  whose.begin(addresses_.keeper());
  try {
    areas_.each([&](areas::area& one) { keep(one.its, who, whose); });
    keepers_[who] = std::move(whose);
  } catch (...) {
    areas_.each([&](areas::area& one) { one.its.kept.erase(who); });
    throw;
  }
}

void gpu_dma_space::leave(void const* who) noexcept {
  std::lock_guard const lock(mutex_);
  keepers_.erase(who);
  areas_.each([&](areas::area& one) { one.its.kept.erase(who); });
}

void* gpu_dma_space::allocate_for_gpu(std::size_t bytes) {
  std::size_t const whole = (std::max<std::size_t>(bytes, 1) + gpu_page - 1) / gpu_page * gpu_page;
  if (whole < bytes) throw operation_failed("cannot allocate " + std::to_string(bytes) + " bytes of a GPU's memory");
  void* const made = gpu_.from->allocate(whole, gpu_page);
  try {
    std::lock_guard const lock(mutex_);
    areas_.add_own(made, whole, [&] { return reach(made, whole); });
  } catch (...) {
    gpu_.from->deallocate(made);
    throw;
  }
  return made;
}

void gpu_dma_space::deallocate(void* address) noexcept {
  if (!has(address)) return host_.deallocate(address);
  std::lock_guard const lock(mutex_);
  if (auto unused = areas_.remove_own(address)) end(*unused);
}

void gpu_dma_space::clear(void* address, std::size_t bytes) {
  if (has(address)) {
    gpu_.clear(address, bytes);
  } else {
    host_.clear(address, bytes);
  }
}

void gpu_dma_space::map(void* address, std::size_t bytes) {
  if (!gpu_.has(address)) return host_.map(address, bytes);
  std::lock_guard const lock(mutex_);
  areas_.map(address, bytes, [&] { return reach(address, bytes); });
}

void gpu_dma_space::unmap(void* address, std::size_t bytes) {
  if (!has(address)) return host_.unmap(address, bytes);
  std::lock_guard const lock(mutex_);
  if (auto unused = areas_.unmap(address, bytes)) end(*unused);
}

std::uint64_t gpu_dma_space::bus_address(void const* address) const {
  {
    std::lock_guard const lock(mutex_);
    if (auto const* const found = areas_.find(address)) {
      auto const offset = static_cast<std::size_t>(static_cast<std::byte const*>(address) - found->first);
      auto const& parts = found->its.parts;
      auto const after = std::upper_bound(parts.begin(), parts.end(), offset,
                                          [](std::size_t at, part const& p) { return at < p.offset_bytes; });
      part const& its = *std::prev(after);
      return its.first + (offset - its.offset_bytes);
    }
  }
  return host_.bus_address(address);
}

/// Whether it is in an area. CUDA does not know memory any more that its user has freed already.
bool gpu_dma_space::has(void const* address) const {
  std::lock_guard const lock(mutex_);
  return areas_.find(address) != nullptr;
}

/// The caller holds the mutex.
gpu_dma_space::reached gpu_dma_space::reach(void* address, std::size_t bytes) {
  reached made{gpu_.share(address, bytes), {}, {}};
  // Before any function can write there: if this process dies, the memory must not become another program's.
  try {
    for (auto const& [who, whose] : keepers_) keep(made, who, whose);
    made.parts.reserve(bytes / host_.page_bytes() + 1);
    std::size_t offset = 0;
    for (bus_stretch const& one : addresses_.find(made.file.get(), bytes)) {
      made.parts.push_back({offset, one.first});
      offset += one.bytes;
    }
    made.parts.shrink_to_fit();
  } catch (...) {
    let_go(made, bytes);
    throw;
  }
  return made;
}

void gpu_dma_space::keep(reached& its, void const* who, keeper const& whose) {
  its.kept[who] = whose.begin(its.file.get());
}

void gpu_dma_space::let_go(reached& its, std::size_t bytes) noexcept {
  for (auto const& [who, id] : its.kept) keepers_.at(who).end(id, bytes);
}

void gpu_dma_space::end(areas::area& one) noexcept {
  if (!addresses_.forget(one.its.file.get())) {
    // Functions still reach it: its file stays open, and it is never freed.
    static_cast<void>(one.its.file.release());
    return;
  }
  let_go(one.its, one.bytes);
  if (one.own) gpu_.from->deallocate(one.first);
}

}  // namespace forebay::drive::pci
