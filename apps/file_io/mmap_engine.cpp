// SPDX-License-Identifier: Apache-2.0
// Copies between memory and a mapping of the file, whose pages come from the page cache.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "apps/file_io/blocking_channel.hpp"
#include "forebay/error.hpp"

namespace forebay::file_io {
namespace {

/// Where the calling thread goes on if a page of a mapping cannot be had; null outside of `copy_mapped`. A thread that
/// faults there has set it, so it exists: the handler allocates nothing. It has no fixed place (`initial-exec`),
/// because a module with such variables does not load where its libraries have many of them, as CUDA's has.
thread_local sigjmp_buf* way_out = nullptr;
struct sigaction before;

void handle(int number, siginfo_t* about, void* context) {
  if (way_out != nullptr) siglongjmp(*way_out, 1);
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, about, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  // The thread makes the access again, and that ends the program as it would have without this handler.
  ::signal(SIGBUS, SIG_DFL);
}

/// For good, since another thread may be in a handler that is taken away.
void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = handle;
    // SA_NODEFER: the jump leaves the handler without the return that would let the signal through again.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigaction(SIGBUS, &action, &before);
  });
}

/// Returns 0, or EIO where a page could not be had: the file was cut shorter, or its disk is full or broken.
int copy_mapped(void* to, void const* from, std::uint64_t bytes) {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    way_out = nullptr;
    return EIO;
  }
  way_out = &here;
  // Sequentially consistent, both: each pairs with the handler on this thread, which must find the way out from the
  // first byte of the copy to the last.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  way_out = nullptr;
  return 0;
}

class mmap_channel final : public host_channel {
 public:
  mmap_channel(std::byte* mapping, bool random, blocks const& memory, gpu_copies* copies)
      : host_channel(memory, copies), mapping_(mapping), announces_(random && memory.block_bytes() > page_bytes) {}

 private:
  static constexpr std::uint64_t page_bytes = 4096;

  int read(std::byte* to, std::uint64_t bytes, std::uint64_t offset_bytes) override {
    // The system reads nothing ahead of random accesses. It would bring the pages of a block in one by one.
    if (announces_) {
      std::uint64_t const within = offset_bytes % page_bytes;
      ::madvise(mapping_ + offset_bytes - within, bytes + within, MADV_WILLNEED);
    }
    return copy_mapped(to, mapping_ + offset_bytes, bytes);
  }
  int write(std::byte const* from, std::uint64_t bytes, std::uint64_t offset_bytes) override {
    return copy_mapped(mapping_ + offset_bytes, from, bytes);
  }

  std::byte* mapping_;
  bool announces_;
};

class mmap_engine final : public engine {
 public:
  mmap_engine(file const& from, blocks const& memory)
      : memory_(memory), random_(from.random()), bytes_(from.size_bytes()) {
    install_handler();
    int const protection = from.writable() ? PROT_READ | PROT_WRITE : PROT_READ;
    mapping_ = ::mmap(nullptr, bytes_, protection, MAP_SHARED, from.descriptor(), 0);
    if (mapping_ == MAP_FAILED) throw operation_failed("cannot map " + from.path() + ": " + std::strerror(errno));
    ::madvise(mapping_, bytes_, random_ ? MADV_RANDOM : MADV_SEQUENTIAL);
  }
  mmap_engine(mmap_engine const&) = delete;
  mmap_engine& operator=(mmap_engine const&) = delete;
  ~mmap_engine() override { ::munmap(mapping_, bytes_); }

  std::unique_ptr<channel> open_channel(apps::in_flight_share, gpu_copies* copies) const override {
    return std::make_unique<mmap_channel>(static_cast<std::byte*>(mapping_), random_, memory_, copies);
  }
  std::string way() const override { return "memcpy from and to a mapping"; }

 private:
  blocks const& memory_;
  bool random_;
  std::uint64_t bytes_;
  void* mapping_ = nullptr;
};

}  // namespace

std::unique_ptr<engine> open_mmap(file const& from, blocks const& memory) {
  return std::make_unique<mmap_engine>(from, memory);
}

}  // namespace forebay::file_io
