// SPDX-License-Identifier: Apache-2.0
#include "support/shared_memory.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "forebay/error.hpp"

namespace forebay::test {

namespace {
[[noreturn]] void throw_errno(char const* what) {
  throw std::system_error(errno, std::generic_category(), what);
}
}  // namespace

shared_memory::shared_memory(std::uint64_t bytes, std::uint64_t first_usable, std::uint64_t seed, page_locks locks)
    : fd_(memfd_create("forebay-guest-ram", MFD_CLOEXEC)), bytes_(bytes), locks_(std::move(locks)), random_(seed) {
  if (fd_ < 0) throw_errno("memfd_create");
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw_errno("ftruncate");
  for (std::uint64_t page = first_usable; page < bytes; page += page_size) {
    free_.insert(free_.end(), page);
    shuffled_.push_back(page);
  }
  std::shuffle(shuffled_.begin(), shuffled_.end(), random_);
}

shared_memory::~shared_memory() {
  return_kept();
  for (auto const& [address, held] : areas_) return_area(address, held);
  close(fd_);
}

void* shared_memory::allocate(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  return hand_out(bytes, false);
}

void* shared_memory::allocate_contiguous(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  return hand_out(bytes, true);
}

void* shared_memory::hand_out(std::size_t bytes, bool contiguous) {
  std::size_t const count = (bytes + page_size - 1) / page_size;
  if (void* const kept = take_kept(count * page_size, contiguous)) return kept;
  auto const take = [&] { return contiguous ? take_run(count) : take_shuffled(count); };
  std::vector<std::uint64_t> pages = take();
  if (pages.empty()) {
    return_kept();
    pages = take();
  }
  if (pages.empty()) throw std::bad_alloc();
  return map_pages(std::move(pages), contiguous);
}

std::vector<std::uint64_t> shared_memory::take_shuffled(std::size_t count) {
  std::vector<std::uint64_t> pages;
  while (pages.size() < count) {
    if (shuffled_.empty()) {
      shuffled_.assign(free_.begin(), free_.end());
      std::shuffle(shuffled_.begin(), shuffled_.end(), random_);
      if (shuffled_.empty()) {
        free_.insert(pages.begin(), pages.end());
        return {};
      }
    }
    std::uint64_t const page = shuffled_.back();
    shuffled_.pop_back();
    if (free_.erase(page) == 0) continue;
    pages.push_back(page);
    // Each run is a mapping of its own, which takes the system a while.
    std::size_t const run = count > many_pages ? std::min(longest_run, count + 1 - pages.size()) : 1;
    for (std::size_t i = 1; i < run && free_.erase(page + i * page_size) != 0; ++i)
      pages.push_back(page + i * page_size);
  }
  return pages;
}

std::vector<std::uint64_t> shared_memory::take_run(std::size_t count) {
  std::uint64_t const start = std::uniform_int_distribution<std::uint64_t>(0, bytes_)(random_);
  for (auto from : {free_.lower_bound(start), free_.begin()}) {
    std::vector<std::uint64_t> run;
    for (; from != free_.end() && run.size() < count; ++from) {
      if (!run.empty() && *from != run.back() + page_size) run.clear();
      run.push_back(*from);
    }
    if (run.size() < count) continue;
    for (std::uint64_t const page : run) free_.erase(page);
    return run;
  }
  return {};
}

std::size_t shared_memory::run_at(std::vector<std::uint64_t> const& pages, std::size_t first) {
  std::size_t run = 1;
  while (first + run < pages.size() && pages[first + run] == pages[first] + run * page_size) ++run;
  return run;
}

void* shared_memory::map_pages(std::vector<std::uint64_t> pages, bool contiguous) {
  std::size_t const bytes = pages.size() * page_size;
  void* const address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw_errno("mmap");
  auto* const start = static_cast<std::byte*>(address);
  for (std::size_t i = 0; i < pages.size();) {
    std::size_t const run = run_at(pages, i);
    if (mmap(start + i * page_size, run * page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
             static_cast<off_t>(pages[i])) == MAP_FAILED) {
      throw_errno("mmap of pages");
    }
    i += run;
  }
  if (locks_.lock) {
    try {
      locks_.lock(start, bytes);
    } catch (...) {
      munmap(start, bytes);
      free_.insert(pages.begin(), pages.end());
      throw;
    }
  }
  areas_.emplace(start, area{bytes, contiguous, std::move(pages)});
  return start;
}

void shared_memory::deallocate(void* address) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = areas_.find(static_cast<std::byte*>(address));
  if (found == areas_.end()) return;
  if (locks_.lock) {
    std::memset(address, 0, found->second.bytes);
    kept_.emplace(found->second.bytes, std::pair(found->first, std::move(found->second)));
  } else {
    return_area(found->first, found->second);
  }
  areas_.erase(found);
}

void* shared_memory::take_kept(std::size_t bytes, bool contiguous) {
  auto const [first, last] = kept_.equal_range(bytes);
  auto const found = std::find_if(first, last, [&](auto const& k) { return k.second.second.contiguous == contiguous; });
  if (found == last) return nullptr;
  auto* const start = const_cast<std::byte*>(found->second.first);
  std::memset(start, 0, bytes);  // a device may have written there meanwhile
  areas_.insert(std::move(found->second));
  kept_.erase(found);
  return start;
}

void shared_memory::return_kept() {
  for (auto const& [bytes, held] : kept_) return_area(held.first, held.second);
  kept_.clear();
}

void shared_memory::return_area(std::byte const* address, area const& held) {
  auto* const start = const_cast<std::byte*>(address);
  if (locks_.unlock) locks_.unlock(start);
  munmap(start, held.bytes);
  for (std::size_t i = 0; i < held.pages.size();) {
    std::size_t const run = run_at(held.pages, i);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(held.pages[i]),
              static_cast<off_t>(run * page_size));
    i += run;
  }
  free_.insert(held.pages.begin(), held.pages.end());
}

void shared_memory::map(void* address, std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  auto const* const byte = static_cast<std::byte*>(address);
  auto const after = areas_.upper_bound(byte);
  if (after != areas_.begin()) {
    auto const& [start, held] = *std::prev(after);
    auto const offset = static_cast<std::size_t>(byte - start);
    if (offset < held.bytes && bytes <= held.bytes - offset) return;
  }
  throw refused_input("buffer", std::to_string(bytes) + " bytes",
                      "a virtual machine reaches only its own RAM: use memory that the drive allocated");
}

void shared_memory::unmap(void*, std::size_t) {}

std::uint64_t shared_memory::bus_address(void const* address) const {
  std::lock_guard const lock(mutex_);
  auto const* const byte = static_cast<std::byte const*>(address);
  auto found = areas_.upper_bound(byte);
  if (found == areas_.begin()) throw std::logic_error("address is not from this dma_space");
  --found;
  auto const offset = static_cast<std::size_t>(byte - found->first);
  if (offset >= found->second.bytes) throw std::logic_error("address is not from this dma_space");
  return found->second.pages[offset / page_size] + offset % page_size;
}

std::vector<std::uint64_t> shared_memory::touched_pages() const {
  std::vector<std::uint64_t> pages;
  for (off_t at = 0;;) {
    off_t const data = lseek(fd_, at, SEEK_DATA);
    if (data < 0) {
      if (errno == ENXIO) return pages;
      throw_errno("lseek");
    }
    off_t const hole = lseek(fd_, data, SEEK_HOLE);
    for (auto page = static_cast<std::uint64_t>(data); page < static_cast<std::uint64_t>(hole); page += page_size) {
      pages.push_back(page);
    }
    at = hole;
  }
}

void shared_memory::accept_touched_pages() {
  std::lock_guard const lock(mutex_);
  for (std::uint64_t const page : touched_pages()) accepted_.insert(page);
}

std::vector<std::uint64_t> shared_memory::stray_pages() const {
  std::lock_guard const lock(mutex_);
  std::set<std::uint64_t> given;
  for (auto const& [address, held] : areas_) given.insert(held.pages.begin(), held.pages.end());
  std::vector<std::uint64_t> strays;
  for (auto const& [bytes, kept] : kept_) {
    auto const& [address, held] = kept;
    for (std::size_t i = 0; i < held.pages.size(); ++i) {
      std::byte const* const page = address + i * page_size;
      bool const zero = std::all_of(page, page + page_size, [](std::byte b) { return b == std::byte{0}; });
      if (!zero) strays.push_back(held.pages[i]);
    }
    given.insert(held.pages.begin(), held.pages.end());
  }
  for (std::uint64_t const page : touched_pages()) {
    if (!given.contains(page) && !accepted_.contains(page)) strays.push_back(page);
  }
  return strays;
}

}  // namespace forebay::test
