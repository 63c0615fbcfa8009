// SPDX-License-Identifier: Apache-2.0
#include "chunks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "forebay/detail/memory/machine.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::served {
namespace {

constexpr std::size_t usual_chunk_bytes = std::size_t{64} << 20;  // pages that nobody touches cost nothing
constexpr std::size_t first_chunk_bytes = std::size_t{2} << 20;

[[noreturn]] void fail(std::size_t bytes) {
  throw operation_failed(fmt::format("cannot share {} bytes of memory: {}", bytes, std::strerror(errno)));
}

/// A random key, so that nobody can guess it.
std::uint64_t random_key() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

constexpr std::uintptr_t up(std::uintptr_t address, std::size_t alignment_bytes) {
  return (address + alignment_bytes - 1) & ~(static_cast<std::uintptr_t>(alignment_bytes) - 1);
}

}  // namespace

chunk::chunk(std::size_t bytes, chunk_place const& where) : bytes_(bytes), where_(where), key_(random_key()) {
  if (where.kind == memory::kind::device) {
    on_gpu_ = std::make_unique<memory::shared_device_memory>(where.gpu, bytes);
    file_ = open_file(on_gpu_->file());
    data_ = static_cast<std::byte*>(on_gpu_->data());
    return;
  }
  unsigned const kind_of_page = huge() ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
  file_ = open_file(::memfd_create("forebay", MFD_CLOEXEC | MFD_ALLOW_SEALING | kind_of_page));
  if (!file_ || bytes > static_cast<std::size_t>(PTRDIFF_MAX) ||
      ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) {
    fail(bytes);
  }
  // Truncating a file would kill every process that has mapped it.
  ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  map();
}

chunk::chunk(open_file made, std::size_t bytes, chunk_place const& where)
    : file_(std::move(made)), bytes_(bytes), where_(where), key_(random_key()) {
  if (where.kind == memory::kind::device) {
    on_gpu_ = std::make_unique<memory::shared_device_memory>(where.gpu, file_.get(), bytes);
    data_ = static_cast<std::byte*>(on_gpu_->data());
    return;
  }
  map();
}

chunk::~chunk() {
  if (on_gpu_) return;
  if (where_.kind == memory::kind::pinned) memory::unlock_pages(data_);
  ::munmap(data_ - where_.page_bytes, bytes_ + 2 * where_.page_bytes);
}

void chunk::map() {
  std::size_t const page = where_.page_bytes;
  if (bytes_ > SIZE_MAX - 3 * page) fail(bytes_);
  std::size_t const all = bytes_ + 2 * page;
  // Larger by a page, of which the ends are given back, so that it begins on a page of that size.
  auto const taken = reinterpret_cast<std::uintptr_t>(
      ::mmap(nullptr, all + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (taken == reinterpret_cast<std::uintptr_t>(MAP_FAILED)) fail(bytes_);
  std::uintptr_t const first = up(taken, page);
  void* const guarded = reinterpret_cast<void*>(first);
  if (first != taken) ::munmap(reinterpret_cast<void*>(taken), first - taken);
  if (first - taken != page) ::munmap(reinterpret_cast<void*>(first + all), page - (first - taken));
  data_ = static_cast<std::byte*>(guarded) + page;
  // Huge pages are all there from the beginning, or none: one that is missing later would end the process.
  int const kind_of_mapping = huge() ? MAP_POPULATE : MAP_NORESERVE;
  if (::mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | kind_of_mapping, file_.get(), 0) ==
      MAP_FAILED) {
    int const error = errno;
    // The system may have taken out what was between the guards, and another thread may have something there by now.
    ::munmap(guarded, page);
    ::munmap(data_ + bytes_, page);
    errno = error;
    fail(bytes_);
  }
  if (where_.kind != memory::kind::pinned) return;
  try {
    memory::lock_pages(data_, bytes_);
  } catch (...) {
    ::munmap(guarded, all);
    throw;
  }
}

void chunk::renew_key() {
  key_ = random_key();
}

void chunk::drop(std::byte* from, std::size_t bytes) noexcept {
  if (where_.kind == memory::kind::device) {
    memory::clear_device(where_.gpu, from, bytes);
    return;
  }
  // A hole punched into page-locked memory would leave the GPU, or the real drive, with the old pages.
  if (where_.kind == memory::kind::pinned || where_.locked_there ||
      ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from - data_, static_cast<off_t>(bytes)) !=
          0) {
    std::memset(from, 0, bytes);
  }
}

chunk_register::chunk_register(client_limits const& limits) : limits_(limits) {
  if (limits_.bytes == 0) limits_.bytes = memory::machine_bytes() / 2;
  if (limits_.all_bytes == 0) limits_.all_bytes = memory::machine_bytes() / 4 * 3;
}

std::shared_ptr<chunk> chunk_register::make(std::size_t bytes, chunk_place const& where) {
  std::unique_ptr<chunk> taken;
  bool const counts = where.kind != memory::kind::device;
  {
    std::lock_guard const lock(mutex_);
    std::erase_if(chunks_, [](std::weak_ptr<chunk> const& c) { return c.expired(); });
    auto const spare = std::find_if(spare_.begin(), spare_.end(),
                                    [&](auto const& c) { return c->size_bytes() == bytes && c->where() == where; });
    if (spare != spare_.end()) {
      taken = std::move(*spare);
      spare_.erase(spare);
    } else if (counts && (bytes > limits_.all_bytes || host_bytes_ > limits_.all_bytes - bytes)) {
      throw operation_failed(
          fmt::format("drive daemon: {} bytes of memory are more than is left of the {} that all of "
                      "its clients may have together",
                      bytes, limits_.all_bytes));
    } else if (counts) {
      host_bytes_ += bytes;
    }
  }
  if (taken) {
    taken->drop(taken->data(), bytes);
    taken->renew_key();
  } else {
    try {
      taken = std::make_unique<chunk>(bytes, where);
    } catch (...) {
      std::lock_guard const lock(mutex_);
      if (counts) host_bytes_ -= bytes;
      throw;
    }
  }
  std::shared_ptr<chunk> made(taken.release(), [this](chunk* c) {
    std::unique_ptr<chunk> owned(c);
    std::lock_guard const lock(mutex_);
    if (c->where().kind != memory::kind::host) {
      spare_.push_back(std::move(owned));  // its pages stay locked, and counted
    } else {
      host_bytes_ -= c->size_bytes();
    }
  });
  std::lock_guard const lock(mutex_);
  chunks_.push_back(made);
  return made;
}

std::shared_ptr<chunk> chunk_register::find(std::uint64_t address, std::uint64_t bytes, std::uint64_t key) {
  // Released after the lock: an owner may leave meanwhile, and the last holder of a chunk takes the lock to return it.
  std::vector<std::shared_ptr<chunk>> looked_at;
  std::lock_guard const lock(mutex_);
  for (std::weak_ptr<chunk> const& c : chunks_) {
    auto const& held = looked_at.emplace_back(c.lock());
    if (held && held->key() == key && held->contains(address, bytes)) return held;
  }
  return nullptr;
}

void client_share::require_one_more_chunk(client_limits const& limits) const {
  if (chunks < limits.chunks) return;
  throw operation_failed(
      fmt::format("drive daemon: a client may have {} stretches of memory; ask for fewer and larger ones, or close the "
                  "storage, which gives back those that are no longer registered",
                  limits.chunks));
}

void* chunk_arena::take(std::size_t bytes, std::size_t alignment_bytes) {
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    auto const [first, length] = *at;
    std::uintptr_t const start = up(first, alignment_bytes);
    if (start - first > length || length - (start - first) < bytes) continue;
    free_.erase(at);
    if (start != first) free_.emplace(first, start - first);
    if (std::uintptr_t const end = start + bytes; end != first + length) free_.emplace(end, first + length - end);
    used_.emplace(start, bytes);
    return reinterpret_cast<void*>(start);
  }
  return nullptr;
}

void* chunk_arena::allocate(std::size_t bytes, std::size_t alignment_bytes) {
  std::size_t const alignment = std::max(alignment_bytes, page_bytes);
  std::size_t const whole = up(std::max<std::size_t>(bytes, 1), page_bytes);
  if (whole < bytes) fail(bytes);
  std::lock_guard const lock(mutex_);
  if (void* const found = take(whole, alignment)) return found;
  std::size_t const usual = usual_bytes();
  std::size_t const least = std::max(usual, whole + (alignment - std::min(alignment, where_.page_bytes)));
  auto made = make_chunk(up(least, least > usual ? usual : where_.page_bytes));
  free_.emplace(reinterpret_cast<std::uintptr_t>(made->data()), made->size_bytes());
  chunks_.push_back(std::move(made));
  return take(whole, alignment);
}

/// What a real drive reaches is there from the beginning. So a chunk is small against what there is so far, and yet a
/// client needs few of them.
std::size_t chunk_arena::usual_bytes() const {
  if (!made_) return usual_chunk_bytes;
  std::size_t so_far = 0;
  for (auto const& c : chunks_) so_far += c->size_bytes();
  return std::clamp(up(so_far / 4, where_.page_bytes), first_chunk_bytes, usual_chunk_bytes);
}

std::shared_ptr<chunk> chunk_arena::make_chunk(std::size_t bytes) {
  client_limits const& limits = all_.limits();
  bool const counts = where_.kind != memory::kind::device;
  if (counts && (bytes > limits.bytes || share_.host_bytes > limits.bytes - bytes)) {
    throw operation_failed(
        fmt::format("drive daemon: {} bytes of memory are more than is left of the {} that one client may have", bytes,
                    limits.bytes));
  }
  share_.require_one_more_chunk(limits);
  auto made = all_.make(bytes, where_);
  if (made_) made_(made);
  ++share_.chunks;
  if (counts) share_.host_bytes += bytes;
  return made;
}

void chunk_arena::deallocate(void* address) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = used_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == used_.end()) return;
  auto [first, length] = *found;
  used_.erase(found);
  auto const in =
      std::find_if(chunks_.begin(), chunks_.end(), [first = first](auto const& c) { return c->contains(first, 1); });
  (*in)->drop(static_cast<std::byte*>(address), length);
  // Neighbours grow together, within a chunk.
  auto const next = free_.upper_bound(first);
  if (next != free_.end() && next->first == first + length && (*in)->contains(next->first, 1)) {
    length += next->second;
    free_.erase(next);
  }
  auto const after = free_.lower_bound(first);
  if (after != free_.begin()) {
    auto const before = std::prev(after);
    if (before->first + before->second == first && (*in)->contains(before->first, 1)) {
      before->second += length;
      return;
    }
  }
  free_.emplace(first, length);
}

void chunk_arena::copy_in(void* to, void const* from_host, std::size_t bytes) {
  if (where_.kind == memory::kind::device) return memory::device(where_.gpu).copy_in(to, from_host, bytes);
  std::memcpy(to, from_host, bytes);
}

void chunk_arena::copy_out(void* to_host, void const* from, std::size_t bytes) {
  if (where_.kind == memory::kind::device) return memory::device(where_.gpu).copy_out(to_host, from, bytes);
  std::memcpy(to_host, from, bytes);
}

std::vector<std::shared_ptr<chunk>> chunk_arena::take_new() {
  std::lock_guard const lock(mutex_);
  std::vector<std::shared_ptr<chunk>> fresh(chunks_.begin() + static_cast<std::ptrdiff_t>(told_), chunks_.end());
  told_ = chunks_.size();
  return fresh;
}

}  // namespace forebay::drive::served
