// SPDX-License-Identifier: Apache-2.0
#include "storage/gpu_registrations.hpp"

#include <algorithm>

#include "forebay/error.hpp"
#include "storage/options.hpp"

namespace forebay::detail {

std::shared_ptr<registered_memory const> gpu_registrations::covering(gpu_access& cuda, memory_place const& place,
                                                                     void const* address, std::uint64_t bytes) {
  if (gpu_ < 0 || place.gpu != gpu_ || place.managed || place.by_pieces) return nullptr;
  std::lock_guard const lock(mutex_);
  auto found = std::find_if(known_.begin(), known_.end(), [&](entry const& e) {
    return e.place.id == place.id && e.place.first == place.first && e.place.bytes == place.bytes;
  });
  if (found == known_.end()) {
    drop_gone_locked(cuda, place);
    known_.push_back({place, register_now(place)});
    found = std::prev(known_.end());
  }
  if (found->memory == nullptr) return nullptr;
  auto const first = reinterpret_cast<std::uintptr_t>(found->memory->data());
  auto const at = reinterpret_cast<std::uintptr_t>(address);
  bool const inside =
      at >= first && bytes <= found->memory->size_bytes() && at - first <= found->memory->size_bytes() - bytes;
  return inside ? found->memory : nullptr;
}

std::size_t gpu_registrations::count() const {
  std::lock_guard const lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(known_.begin(), known_.end(), [](entry const& e) { return e.memory != nullptr; }));
}

/// Registers the whole pages of the allocation.
std::shared_ptr<registered_memory const> gpu_registrations::register_now(memory_place const& place) const {
  std::uintptr_t const first = (place.first + page_bytes - 1) / page_bytes * page_bytes;
  std::uintptr_t const end = (place.first + place.bytes) / page_bytes * page_bytes;
  if (end <= first) return nullptr;
  try {
    return buffers_.register_pages(reinterpret_cast<void*>(first), end - first);
  } catch (refused_input const&) {
    return nullptr;  // a drive that is served reaches other memory
  } catch (operation_failed const&) {
    return nullptr;  // no drive has room for another registration
  }
}

void gpu_registrations::drop_gone_locked(gpu_access& cuda, memory_place const& by) {
  std::erase_if(known_, [&](entry const& e) {
    bool const overlaps = e.place.first < by.first + by.bytes && by.first < e.place.first + e.place.bytes;
    return overlaps || cuda.place_of(reinterpret_cast<void const*>(e.place.first)).id != e.place.id;
  });
}

}  // namespace forebay::detail
