// SPDX-License-Identifier: Apache-2.0
#include "client_memory.hpp"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "forebay/detail/memory/machine.hpp"

namespace forebay::emulator {
namespace {

constexpr std::uint64_t page_bytes = 4096;

bool may_lock_any_amount() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> rights{};
  return syscall(SYS_capget, &header, rights.data()) == 0 && (rights[0].effective >> CAP_IPC_LOCK & 1) != 0;
}

/// Pages that do not exist yet would be made when a ring pins them, while commands of others wait.
void find_pages(void const* address, std::size_t bytes) {
  auto const first = reinterpret_cast<std::uintptr_t>(address) / page_bytes * page_bytes;
  std::uintptr_t const end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  // Memory of another kind, and Linux before 5.14, refuse; then the pages are made later after all.
  (void)madvise(reinterpret_cast<void*>(first), (end - first + page_bytes - 1) / page_bytes * page_bytes,
                MADV_POPULATE_WRITE);
}

}  // namespace

bool client_memory::add(void const* owner, void const* address, std::size_t bytes) {
  auto const first = reinterpret_cast<std::uint64_t>(address);
  auto const fits = [&] {
    // A page that two ranges have would be pinned twice, and counted twice.
    auto const overlaps = [&](range const& r) { return first < r.address + r.bytes && r.address < first + bytes; };
    if (std::any_of(ranges_.begin(), ranges_.end(), overlaps)) return false;
    std::uint64_t const most_bytes = most_bytes_ / std::max<std::uint64_t>(rings_, 1);
    if (bytes > most_bytes - std::min(bytes_, most_bytes)) {
      note("clients registered more than the " + std::to_string(most_bytes) +
           " bytes that each service thread pins at most, a part of the free memory and of the limit on locked memory; "
           "register less, raise the limit (ulimit -l), or give the drive fewer threads");
      return false;
    }
    if (ranges_.size() == most_ranges) {
      note("clients registered more than " + std::to_string(most_ranges) + " areas; register fewer, larger ones");
      return false;
    }
    return true;
  };
  {
    std::lock_guard const lock(mutex_);
    if (!fits()) return false;
  }
  find_pages(address, bytes);
  std::lock_guard const lock(mutex_);
  if (!fits()) return false;  // others were faster
  ranges_.push_back({first, bytes, ++last_id_, owner});
  bytes_ += bytes;
  changed();
  return true;
}

void client_memory::remove(void const* owner, void const* address, std::size_t bytes) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = std::find_if(ranges_.begin(), ranges_.end(), [&](range const& r) {
    return r.owner == owner && r.address == reinterpret_cast<std::uint64_t>(address) && r.bytes == bytes;
  });
  if (found == ranges_.end()) return;
  ranges_.erase(found);
  bytes_ -= bytes;
  changed();
}

void client_memory::remove_all(void const* owner) noexcept {
  std::lock_guard const lock(mutex_);
  std::erase_if(ranges_, [&](range const& r) {
    if (r.owner != owner) return false;
    bytes_ -= r.bytes;
    return true;
  });
  changed();
}

std::uint64_t registered_bytes_max() {
  // Pinned by one call, while commands wait: about ten milliseconds.
  constexpr std::uint64_t most = std::uint64_t{256} << 20;
  std::uint64_t const of_machine = std::min<std::uint64_t>(most, memory::available_bytes() / 8);
  rlimit limit{};
  if (may_lock_any_amount() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return of_machine;
  }
  // The rest is for the rings, of this drive and of the user's other ones: they count too.
  return std::min<std::uint64_t>(of_machine, limit.rlim_cur / 4);
}

}  // namespace forebay::emulator
