// SPDX-License-Identifier: Apache-2.0
#include "mapped_file_guard.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>

#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

struct guarded {
  std::atomic<std::uintptr_t> begin{0};  ///< 0: nobody's
  std::uintptr_t end = 0;
  int protection = 0;
  lost_pages* lost = nullptr;
};

std::array<guarded, mapped_file_guard::most> all;
std::mutex changes;
std::uintptr_t page_of_host;
struct sigaction before;

/// Calls nothing that a handler may not call.
bool replace(std::uintptr_t address) {
  for (guarded& g : all) {
    // Acquire: pairs with the release in the constructor; the other members are there.
    std::uintptr_t const begin = g.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= g.end) continue;
    std::uintptr_t const page = address & ~(page_of_host - 1);
    for (std::uintptr_t at = page; at < page + page_of_host; at += lost_pages::page_bytes) {
      std::uint64_t const bit = (at - begin) / lost_pages::page_bytes;
      // Relaxed: the release below publishes it.
      simt::atomic<native, simt::scope::system>(g.lost->bits[bit / 64])
          .fetch_or(std::uint64_t{1} << bit % 64, simt::order::relaxed);
    }
    // Release: pairs with the acquire in `media::lost`, of a thread that finds the zeros that are mapped next.
    simt::atomic<native, simt::scope::system>(g.lost->any).store(1, simt::order::release);
    return ::mmap(reinterpret_cast<void*>(page), page_of_host, g.protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                  -1, 0) != MAP_FAILED;
  }
  return false;
}

void handle(int number, siginfo_t* about, void* context) {
  int const error = errno;
  bool const ours = replace(reinterpret_cast<std::uintptr_t>(about->si_addr));
  errno = error;
  if (ours) return;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, about, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  // The thread makes the access again, and that ends the program as it would have without this handler.
  ::signal(SIGBUS, SIG_DFL);
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_of_host = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, &action, &before);
  });
}

}  // namespace

mapped_file_guard::mapped_file_guard(void* begin, std::size_t bytes, int protection)
    : bits_(memory::host(), (bytes / lost_pages::page_bytes / 64 + 2) * sizeof(std::uint64_t), 64) {
  install();
  lost_.bits = bits_.as<std::uint64_t>();
  std::lock_guard const lock(changes);
  for (slot_ = 0; slot_ < most; ++slot_) {
    // Relaxed: the lock orders it.
    if (all[slot_].begin.load(std::memory_order_relaxed) == 0) break;
  }
  if (slot_ == most) {
    throw operation_failed("this process has " + std::to_string(most) +
                           " drives in files open, which is all that it may");
  }
  guarded& mine = all[slot_];
  auto const first = reinterpret_cast<std::uintptr_t>(begin);
  // The host's page at the end may be longer than the file.
  mine.end = (first + bytes + page_of_host - 1) & ~(page_of_host - 1);
  mine.protection = protection;
  mine.lost = &lost_;
  // Release: pairs with the acquire in the handler.
  mine.begin.store(first, std::memory_order_release);
}

mapped_file_guard::~mapped_file_guard() {
  std::lock_guard const lock(changes);
  // Relaxed: no thread touches the mapping any more, so no handler looks for it.
  all[slot_].begin.store(0, std::memory_order_relaxed);
}

bool mapped_file_guard::any_lost() const {
  auto& word = const_cast<std::uint32_t&>(lost_.any);
  // Acquire: pairs with the release of the handler; the pages that it noted before are visible.
  return simt::atomic<native, simt::scope::system>(word).load(simt::order::acquire) != 0;
}

}  // namespace forebay::emulator
