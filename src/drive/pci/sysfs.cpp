// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../free_stretches.hpp"
#include "access.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/error.hpp"
#include "gpu_addresses.hpp"
#include "gpu_dma_space.hpp"
#include "quirks.hpp"

namespace forebay::drive::pci {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;

/// The physical address of a page that is in memory (Documentation/admin-guide/mm/pagemap.rst of Linux: 64 bits for
/// each page, of which 55 are the number of the frame, and bit 63 says that it is there).
std::uint64_t physical_address(void const* at) {
  open_file const map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::uint64_t entry = 0;
  auto const number = reinterpret_cast<std::uintptr_t>(at) / page;
  bool const read = map && ::pread(map.get(), &entry, sizeof entry, static_cast<off_t>(number * sizeof entry)) ==
                               static_cast<ssize_t>(sizeof entry);
  std::uint64_t const frame = entry & ((std::uint64_t{1} << 55) - 1);
  if (read && entry >> 63 != 0 && frame != 0) {
    if (frame * page > most_bus_address) {
      throw operation_failed(
          fmt::format("the address {:#x} of memory is above those that all drives reach", frame * page));
    }
    return frame * page;
  }
  throw refused_input("access", "sysfs", "the system does not tell physical addresses: run as root (CAP_SYS_ADMIN)");
}

[[noreturn]] void refuse_pages(std::size_t count) {
  throw refused_input("access", "sysfs",
                      fmt::format("the system has no {} huge pages of 2 MiB to give ({}): write a larger number to "
                                  "/proc/sys/vm/nr_hugepages, or use access=vfio",
                                  count, std::strerror(errno)));
}

/// Huge pages, which the system moves only if it is asked to take memory out of use. They follow each other in this
/// process, and may lie anywhere in memory. All functions of the process reach them, at the same addresses, so one
/// storage can have several drives. Thread-safe.
class huge_memory final : public driver::dma_space {
 public:
  /// The one of the process. It ends with the last function that uses it.
  static std::shared_ptr<huge_memory> of_process() {
    static std::mutex mutex;
    static std::weak_ptr<huge_memory> one;
    std::lock_guard const lock(mutex);
    auto found = one.lock();
    if (!found) one = found = std::make_shared<huge_memory>();
    return found;
  }

  huge_memory() = default;
  huge_memory(huge_memory const&) = delete;
  huge_memory& operator=(huge_memory const&) = delete;
  ~huge_memory() override {
    for (auto const& [first, its] : blocks_) {
      if (its.locked) memory::unlock_pages(reinterpret_cast<void*>(first));
      if (its.own) ::munmap(reinterpret_cast<void*>(first), its.frames.size() * huge_page);
    }
  }

  /// From now on a function can reach the memory, until `leave`: its guard keeps all of it.
  void join(takeover& keeper) {
    std::lock_guard const lock(mutex_);
    keepers_.push_back(&keeper);
    try {
      for (auto& [first, its] : blocks_) its.kept[&keeper] = keeper.keep(its.file.get());
    } catch (...) {
      leave_locked(keeper);
      throw;
    }
  }
  void leave(takeover& keeper) {
    std::lock_guard const lock(mutex_);
    leave_locked(keeper);
  }
  /// From now on GPUs reach it too, what was allocated before included. What it throws half way changes nothing for
  /// the functions.
  void let_gpus_reach() {
    std::lock_guard const lock(mutex_);
    for (auto& [first, its] : blocks_) {
      if (!its.own || its.locked) continue;
      memory::lock_pages(reinterpret_cast<void*>(first), its.frames.size() * huge_page);
      its.locked = true;
    }
    gpus_reach_ = true;
  }

  void* allocate(std::size_t bytes) override {
    std::size_t const whole = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
    std::lock_guard const lock(mutex_);
    // What is not larger than a huge page lies within one, so that it is contiguous for the function too.
    std::size_t const alignment = std::min(ceiling_of(whole), huge_page);
    auto found = whole < bytes ? std::nullopt : free_.take(whole, alignment);
    if (!found && whole >= bytes) {
      add(whole);
      found = free_.take(whole, alignment);
    }
    if (!found) throw operation_failed(fmt::format("cannot allocate {} bytes of memory", bytes));
    return reinterpret_cast<void*>(*found);
  }
  void deallocate(void* address) noexcept override {
    std::lock_guard const lock(mutex_);
    auto const first = reinterpret_cast<std::uint64_t>(address);
    if (std::uint64_t const bytes = free_.used_bytes(first); bytes != 0) {
      std::memset(address, 0, bytes);  // as the next one expects it
      free_.give_back(first);
    }
  }
  void map(void* address, std::size_t bytes) override {
    std::lock_guard const lock(mutex_);
    auto const* const in = block_of(address);
    auto const first = reinterpret_cast<std::uint64_t>(address);
    if (in != nullptr && bytes <= in->second.frames.size() * huge_page - (first - in->first)) return;
    if (gpus_reach_) require_host_memory(address);
    throw refused_input(
        "mapped memory", fmt::format("{}+{}", first, bytes),
        "with access=sysfs the drive reaches only memory of allocate_buffer(): use that, or access=vfio");
  }
  void map_shared(void* address, std::size_t bytes, int file) override {
    auto const first = reinterpret_cast<std::uint64_t>(address);
    std::lock_guard const lock(mutex_);
    if (auto const found = blocks_.find(first); found != blocks_.end()) {
      ++found->second.uses;
      return;
    }
    open_file copy(::fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (!copy) throw operation_failed(fmt::format("cannot keep a file open: {}", std::strerror(errno)));
    add_block(first, bytes / huge_page, std::move(copy), false, false);
  }
  std::size_t shared_page_bytes() const override { return huge_page; }
  void unmap(void* address, std::size_t) override {
    std::lock_guard const lock(mutex_);
    auto const found = blocks_.find(reinterpret_cast<std::uint64_t>(address));
    if (found == blocks_.end() || found->second.own || --found->second.uses != 0) return;
    for (auto const& [keeper, id] : found->second.kept) {
      keeper->let_go(id, found->second.frames.size() * huge_page);
    }
    blocks_.erase(found);
  }
  std::uint64_t bus_address(void const* address) const override {
    std::lock_guard const lock(mutex_);
    auto const at = reinterpret_cast<std::uint64_t>(address);
    if (auto const* const in = block_of(address)) {
      return in->second.frames[(at - in->first) / huge_page] + (at - in->first) % huge_page;
    }
    throw refused_input(
        "mapped memory", std::to_string(at),
        "with access=sysfs the drive reaches only memory of allocate_buffer(): use that, or access=vfio");
  }
  std::size_t page_bytes() const override { return page; }

 private:
  struct block {
    open_file file;
    std::vector<std::uint64_t> frames;  ///< the physical address of each huge page
    bool own = true;                    ///< made here; else by somebody that has it mapped
    bool locked = false;                ///< for GPUs
    std::uint32_t uses = 1;
    std::map<takeover*, std::uint64_t> kept;  ///< where each guard has it
  };

  static std::size_t ceiling_of(std::size_t bytes) {
    std::size_t power = page;
    while (power < bytes && power < huge_page) power *= 2;
    return power;
  }
  std::pair<std::uint64_t const, block> const* block_of(void const* address) const {
    auto const at = reinterpret_cast<std::uint64_t>(address);
    auto const after = blocks_.upper_bound(at);
    if (after == blocks_.begin()) return nullptr;
    auto const& found = *std::prev(after);
    return at - found.first < found.second.frames.size() * huge_page ? &found : nullptr;
  }

  /// Takes huge pages from the system. The caller holds the mutex.
  void add(std::size_t bytes) {
    std::size_t const count = (bytes + huge_page - 1) / huge_page;
    open_file file(::memfd_create("forebay-drive", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB));
    bool const sized = file && ::ftruncate(file.get(), static_cast<off_t>(count * huge_page)) == 0;
    void* const mapped =
        !sized ? MAP_FAILED
               : ::mmap(nullptr, count * huge_page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (mapped == MAP_FAILED) refuse_pages(count);
    bool locked = false;
    try {
      if (gpus_reach_) memory::lock_pages(mapped, count * huge_page);
      locked = gpus_reach_;
      add_block(reinterpret_cast<std::uint64_t>(mapped), count, std::move(file), true, locked);
    } catch (...) {
      if (locked) memory::unlock_pages(mapped);
      ::munmap(mapped, count * huge_page);
      throw;
    }
    free_.add(reinterpret_cast<std::uint64_t>(mapped), count * huge_page);
  }

  void leave_locked(takeover& keeper) noexcept {
    std::erase(keepers_, &keeper);
    for (auto& [first, its] : blocks_) its.kept.erase(&keeper);
  }
  /// Huge pages that are mapped at `first`. The caller holds the mutex.
  void add_block(std::uint64_t first, std::size_t count, open_file file, bool own, bool locked) {
    block made;
    made.file = std::move(file);
    made.own = own;
    made.locked = locked;
    // Before any function can write there: if this process dies, its pages must not become somebody else's.
    try {
      for (takeover* const keeper : keepers_) made.kept[keeper] = keeper->keep(made.file.get());
      for (std::size_t i = 0; i < count; ++i) {
        made.frames.push_back(physical_address(reinterpret_cast<void const*>(first + i * huge_page)));
      }
    } catch (...) {
      for (auto const& [keeper, id] : made.kept) keeper->let_go(id, count * huge_page);
      throw;
    }
    blocks_.emplace(first, std::move(made));
  }

  mutable std::mutex mutex_;  ///< of what follows
  bool gpus_reach_ = false;
  std::vector<takeover*> keepers_;
  free_stretches free_;
  std::map<std::uint64_t, block> blocks_;
};

/// Memory of a GPU that functions of the process reach, each at the same addresses.
class reached_gpu {
 public:
  /// The one of the process for a GPU. It ends with the last function that uses it.
  static std::shared_ptr<reached_gpu> of_process(std::shared_ptr<huge_memory> const& host, int ordinal,
                                                 std::string const& folder) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<reached_gpu>> all;
    std::lock_guard const lock(mutex);
    auto found = all[ordinal].lock();
    if (!found) all[ordinal] = found = std::make_shared<reached_gpu>(host, ordinal, folder);
    return found;
  }
  reached_gpu(std::shared_ptr<huge_memory> host, int ordinal, std::string const& folder)
      : host_(std::move(host)),
        space_(*host_, std::make_unique<untranslated_addresses>(windows_of(folder)), gpu_memory::of(ordinal)) {}

  gpu_dma_space& space() { return space_; }

 private:
  std::shared_ptr<huge_memory> const host_;
  gpu_dma_space space_;
};

class sysfs_access final : public access {
 public:
  sysfs_access(function const& of, takeover& taken, memory::resource& client_memory)
      : dma_(huge_memory::of_process()), taken_(taken), bytes_(of.bar0_bytes()) {
    open_file const file(::open((of.folder() + "/resource0").c_str(), O_RDWR | O_CLOEXEC));
    void* const mapped =
        !file || bytes_ == 0 ? MAP_FAILED : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) {
      if (bytes_ == 0) errno = ENODEV;
      throw refused_input("access", "sysfs",
                          fmt::format("cannot map the registers of {}: {}; run as root, and without kernel lockdown",
                                      of.at().text(), std::strerror(errno)));
    }
    ::madvise(mapped, bytes_, MADV_DONTFORK);  // a child has no use for them
    registers_ = static_cast<std::byte volatile*>(mapped);
    try {
      if (client_memory.kind() == memory::kind::pinned) dma_->let_gpus_reach();
      dma_->join(taken_);
    } catch (...) {
      ::munmap(mapped, bytes_);
      throw;
    }
  }
  ~sysfs_access() override {
    if (gpu_) gpu_->space().leave(this);
    dma_->leave(taken_);
    ::munmap(const_cast<std::byte*>(registers_), bytes_);
  }
  driver::dma_space& dma() override {
    if (gpu_) return gpu_->space();
    return *dma_;
  }
  std::byte volatile* registers() override { return registers_; }
  std::size_t registers_bytes() const override { return bytes_; }
  char const* name() const override { return "sysfs"; }
  void reach_gpu(int ordinal, std::string const& folder) override {
    auto gpu = reached_gpu::of_process(dma_, ordinal, folder);
    gpu->space().join(this, {.begin = [this](int file) { return taken_.keep(file); },
                             .end = [this](std::uint64_t id, std::size_t bytes) { taken_.let_go(id, bytes); }});
    gpu_ = std::move(gpu);
  }

 private:
  std::shared_ptr<huge_memory> const dma_;
  std::shared_ptr<reached_gpu> gpu_;  ///< before `taken_` ends
  takeover& taken_;
  std::size_t const bytes_;
  std::byte volatile* registers_ = nullptr;
};

}  // namespace

void require_sysfs() {
  int const here = 0;
  physical_address(&here);
  void* const page = ::mmap(nullptr, huge_page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
  if (page == MAP_FAILED) refuse_pages(1);
  ::munmap(page, huge_page);
}

std::unique_ptr<access> open_by_sysfs(function const& of, takeover& taken, memory::resource& client_memory) {
  return std::make_unique<sysfs_access>(of, taken, client_memory);
}

}  // namespace forebay::drive::pci
