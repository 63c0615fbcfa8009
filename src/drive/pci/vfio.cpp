// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "../free_stretches.hpp"
#include "../open_file.hpp"
#include "access.hpp"
#include "forebay/error.hpp"
#include "gpu_addresses.hpp"
#include "gpu_dma_space.hpp"
#include "mapped_areas.hpp"
#include "quirks.hpp"

namespace forebay::drive::pci {
namespace {

constexpr std::size_t page = 4096;
constexpr std::uint64_t first_iova =
    1 << 20;  // address 0 never is a buffer's, so that a pointer to nothing is found out
constexpr std::uint32_t command_register = 4;
constexpr std::uint16_t bus_master = 0x4;
constexpr std::uint16_t memory_and_bus_master = 0x2 | bus_master;

[[noreturn]] void fail(std::string const& what) {
  throw operation_failed(fmt::format("VFIO: {}: {}", what, std::strerror(errno)));
}

[[noreturn]] void refuse_container() {
  throw refused_input("access", "vfio",
                      fmt::format("cannot open /dev/vfio/vfio: {}; load the module vfio-pci, and run as root or get "
                                  "the permission for that file",
                                  std::strerror(errno)));
}

[[noreturn]] void refuse_group(std::string const& group) {
  throw refused_input("access", "vfio",
                      fmt::format("cannot open /dev/vfio/{}: {}; {}", group, std::strerror(errno),
                                  errno == EBUSY ? "something else uses a function of this IOMMU group"
                                                 : "run as root, or get the permission for that file"));
}

/// The addresses that functions use, and what is behind each. Thread-safe.
class container {
 public:
  container() : file_(::open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC)) {
    if (!file_) refuse_container();
    if (::ioctl(file_.get(), VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
        ::ioctl(file_.get(), VFIO_CHECK_EXTENSION, VFIO_TYPE1_IOMMU) != 1) {
      throw refused_input("access", "vfio",
                          "this kernel's VFIO has no IOMMU of type 1: load the module vfio_iommu_type1, and boot with "
                          "an IOMMU (intel_iommu=on)");
    }
  }

  /// Adds the group of a function.
  void add(open_file const& group) {
    int const number = file_.get();
    if (::ioctl(group.get(), VFIO_GROUP_SET_CONTAINER, &number) != 0) fail("cannot use the IOMMU group");
    std::lock_guard const lock(mutex_);
    if (has_iommu_) return;
    if (::ioctl(number, VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) != 0) {
      int const error = errno;
      ::ioctl(group.get(), VFIO_GROUP_UNSET_CONTAINER);
      errno = error;
      if (error != EPERM) fail("cannot use the IOMMU");
      throw refused_input("access", "vfio",
                          "the kernel refuses an IOMMU that does not remap interrupts: turn remapping on, or load "
                          "vfio_iommu_type1 with allow_unsafe_interrupts=1");
    }
    has_iommu_ = true;
    learn_ranges();
  }

  /// Addresses behind which somebody else puts memory.
  std::uint64_t take(std::uint64_t bytes) {
    std::lock_guard const lock(mutex_);
    return take_locked(bytes);
  }
  void give_back(std::uint64_t iova) {
    std::lock_guard const lock(mutex_);
    iovas_.give_back(iova);
  }
  /// Lets the functions reach memory, and returns the address that they use for it.
  std::uint64_t map(void* address, std::uint64_t bytes) {
    std::lock_guard const lock(mutex_);
    std::uint64_t const iova = take_locked(bytes);
    vfio_iommu_type1_dma_map request{};
    request.argsz = sizeof request;
    request.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
    request.vaddr = reinterpret_cast<std::uint64_t>(address);
    request.iova = iova;
    request.size = bytes;
    if (::ioctl(file_.get(), VFIO_IOMMU_MAP_DMA, &request) == 0) return iova;
    int const error = errno;
    iovas_.give_back(iova);
    if (error == ENOMEM) {
      throw operation_failed(
          fmt::format("VFIO: cannot lock {} bytes of memory: raise the limit (ulimit -l), or the number of mappings "
                      "(dma_entry_limit of vfio_iommu_type1)",
                      bytes));
    }
    if (error == EFAULT) {
      throw refused_input("buffer", fmt::format("{} bytes", bytes),
                          "the system cannot lock this memory: it must be ordinary memory that may be written");
    }
    errno = error;
    fail(fmt::format("cannot map {} bytes", bytes));
  }
  /// False: the functions still reach the memory.
  bool unmap(std::uint64_t iova) noexcept {
    std::lock_guard const lock(mutex_);
    vfio_iommu_type1_dma_unmap request{};
    request.argsz = sizeof request;
    request.iova = iova;
    request.size = iovas_.used_bytes(iova);
    // If it fails, the address is never used again.
    if (::ioctl(file_.get(), VFIO_IOMMU_UNMAP_DMA, &request) != 0) return false;
    iovas_.give_back(iova);
    return true;
  }

 private:
  std::uint64_t take_locked(std::uint64_t bytes) {
    if (auto const iova = iovas_.take(bytes, page)) return *iova;
    throw operation_failed(fmt::format("VFIO: the IOMMU has no room for {} bytes more", bytes));
  }
  /// The addresses that the IOMMU translates: not those of interrupts, and only as wide as it is.
  void learn_ranges() {
    vfio_iommu_type1_info sizes{};
    sizes.argsz = sizeof sizes;
    if (::ioctl(file_.get(), VFIO_IOMMU_GET_INFO, &sizes) != 0) fail("cannot ask what the IOMMU translates");
    std::vector<std::byte> bytes(std::max<std::size_t>(sizes.argsz, sizeof sizes));
    auto* const info = reinterpret_cast<vfio_iommu_type1_info*>(bytes.data());
    info->argsz = static_cast<std::uint32_t>(bytes.size());
    if (::ioctl(file_.get(), VFIO_IOMMU_GET_INFO, info) != 0) fail("cannot ask what the IOMMU translates");
    bool any = false;
    std::uint32_t at = (info->flags & VFIO_IOMMU_INFO_CAPS) != 0 ? info->cap_offset : 0;
    while (at != 0 && at + sizeof(vfio_info_cap_header) <= bytes.size()) {
      auto const* const header = reinterpret_cast<vfio_info_cap_header const*>(bytes.data() + at);
      if (header->id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
        auto const* const ranges = reinterpret_cast<vfio_iommu_type1_info_cap_iova_range const*>(header);
        for (std::uint32_t i = 0; i < ranges->nr_iovas; ++i) {
          std::uint64_t const first = std::max<std::uint64_t>(ranges->iova_ranges[i].start, first_iova);
          std::uint64_t const last = std::min<std::uint64_t>(ranges->iova_ranges[i].end, most_bus_address);
          if (last <= first) continue;
          iovas_.add(first, (last - first) / page * page);
          any = true;
        }
      }
      at = header->next;
    }
    // A kernel before 5.4 does not say. Every IOMMU translates 39 bits; interrupts have 1 MiB at 0xfee00000.
    if (any) return;
    iovas_.add(first_iova, 0xfee0'0000 - first_iova);
    iovas_.add(0x1'0000'0000, (std::uint64_t{1} << 39) - 0x1'0000'0000);
  }

  open_file file_;
  std::mutex mutex_;  ///< of what follows
  bool has_iommu_ = false;
  free_stretches iovas_;
};

/// Memory that is mapped for the functions of the container. Thread-safe.
class vfio_dma_space final : public driver::dma_space {
 public:
  explicit vfio_dma_space(container& in) : in_(in) {}
  ~vfio_dma_space() override {
    areas_.each([&](areas::area const& one) { end(one); });
  }
  /// From now on what it allocates is page-locked, so that GPUs reach it too.
  void let_gpus_reach(memory::resource& page_locked) {
    std::lock_guard const lock(mutex_);
    page_locked_ = &page_locked;
  }

  void* allocate(std::size_t bytes) override {
    std::size_t const whole = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
    if (whole < bytes) throw operation_failed(fmt::format("cannot allocate {} bytes of memory", bytes));
    memory::resource* from;
    {
      std::lock_guard const lock(mutex_);
      from = page_locked_;
    }
    void* const made = take(from, whole);
    try {
      std::lock_guard const lock(mutex_);
      areas_.add_own(made, whole, [&] { return mapping{in_.map(made, whole), from}; });
    } catch (...) {
      give(from, made, whole);
      throw;
    }
    return made;
  }
  void deallocate(void* address) noexcept override {
    std::lock_guard const lock(mutex_);
    if (auto const unused = areas_.remove_own(address)) end(*unused);
  }
  void map(void* address, std::size_t bytes) override {
    std::lock_guard const lock(mutex_);
    if (page_locked_ != nullptr) require_host_memory(address);
    areas_.map(address, bytes, [&] { return mapping{in_.map(address, bytes), nullptr}; });
  }
  void unmap(void* address, std::size_t bytes) override {
    std::lock_guard const lock(mutex_);
    if (auto const unused = areas_.unmap(address, bytes)) end(*unused);
  }
  std::uint64_t bus_address(void const* address) const override {
    std::lock_guard const lock(mutex_);
    if (auto const* const found = areas_.find(address)) {
      return found->its.iova + static_cast<std::uint64_t>(static_cast<std::byte const*>(address) - found->first);
    }
    throw refused_input("mapped memory", std::to_string(reinterpret_cast<std::uintptr_t>(address)),
                        "the drive reaches only memory from allocate_buffer() and register_buffer()");
  }
  std::size_t page_bytes() const override { return page; }

 private:
  struct mapping {
    std::uint64_t iova = 0;
    memory::resource* from = nullptr;  ///< of memory that is its own; null: the system
  };
  using areas = mapped_areas<mapping>;

  /// Whole pages, zeroed, of a resource or of the system.
  static void* take(memory::resource* from, std::size_t bytes) {
    void* const made = from != nullptr
                           ? from->allocate(bytes, page)
                           : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw operation_failed(fmt::format("cannot allocate {} bytes of memory", bytes));
    // After a fork the first write to a page would move it, and the function would go on with the old one.
    ::madvise(made, bytes, MADV_DONTFORK);
    return made;
  }
  static void give(memory::resource* from, void* address, std::size_t bytes) noexcept {
    if (from == nullptr) {
      ::munmap(address, bytes);
      return;
    }
    ::madvise(address, bytes, MADV_DOFORK);
    from->deallocate(address);
  }

  void end(areas::area const& one) noexcept {
    bool const unreachable = in_.unmap(one.its.iova);
    // What the system unmaps is nobody's memory any more. A resource would give it to somebody.
    if (one.own && (unreachable || one.its.from == nullptr)) give(one.its.from, one.first, one.bytes);
  }

  container& in_;
  mutable std::mutex mutex_;                 ///< of what follows
  memory::resource* page_locked_ = nullptr;  ///< where memory comes from once GPUs are to reach it
  areas areas_;
};

/// What the functions of this process reach: all of them the same memory, at the same addresses. So one storage can
/// have several drives.
class reach {
 public:
  /// The one of the process. It ends with the last function that uses it.
  static std::shared_ptr<reach> of_process() {
    static std::mutex mutex;
    static std::weak_ptr<reach> one;
    std::lock_guard const lock(mutex);
    auto found = one.lock();
    if (!found) one = found = std::make_shared<reach>();
    return found;
  }

  void add(open_file const& group) { container_.add(group); }
  vfio_dma_space& dma() { return dma_; }
  translated_space space() {
    return {.take = [this](std::uint64_t bytes) { return container_.take(bytes); },
            .give_back = [this](std::uint64_t iova) { container_.give_back(iova); }};
  }
  /// One function at a time reaches memory of GPUs: the module puts it behind the IOMMU for one by name.
  // Acquire and release pair with each other: the next function begins after the last one has unmapped all.
  bool take_gpus() { return !has_gpus_.exchange(true, std::memory_order_acquire); }
  void give_gpus() { has_gpus_.store(false, std::memory_order_release); }

 private:
  container container_;
  vfio_dma_space dma_{container_};
  std::atomic<bool> has_gpus_ = false;
};

class vfio_access final : public access {
 public:
  vfio_access(function const& of, memory::resource& client_memory)
      : at_(of.at()), reach_(reach::of_process()), group_(open_group(of)) {
    vfio_group_status status{};
    status.argsz = sizeof status;
    if (::ioctl(group_.get(), VFIO_GROUP_GET_STATUS, &status) != 0) fail("cannot ask for the IOMMU group");
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
      throw refused_input("drive", "pci:" + of.at().text(),
                          fmt::format("drivers of the system still have others of its IOMMU group {}: unbind those too",
                                      of.iommu_group()));
    }
    reach_->add(group_);
    device_ = open_file(::ioctl(group_.get(), VFIO_GROUP_GET_DEVICE_FD, of.at().text().c_str()));
    if (!device_) fail("cannot open " + of.at().text());
    // Whatever it did before. Not all functions can be reset so; the driver disables the controller in any case.
    ::ioctl(device_.get(), VFIO_DEVICE_RESET);
    map_registers();
    try {
      command(memory_and_bus_master, 0);
    } catch (...) {
      ::munmap(const_cast<std::byte*>(registers_), bytes_);
      throw;
    }
    if (client_memory.kind() == memory::kind::pinned) reach_->dma().let_gpus_reach(client_memory);
  }
  ~vfio_access() override {
    try {
      command(0, bus_master);
    } catch (operation_failed const&) {
      // It has left the bus.
    }
    ::munmap(const_cast<std::byte*>(registers_), bytes_);
    if (!gpu_) return;
    gpu_.reset();
    reach_->give_gpus();
  }
  driver::dma_space& dma() override {
    if (gpu_) return *gpu_;
    return reach_->dma();
  }
  std::byte volatile* registers() override { return registers_; }
  std::size_t registers_bytes() const override { return bytes_; }
  char const* name() const override { return "vfio"; }
  void reach_gpu(int ordinal, std::string const& folder) override {
    if (!reach_->take_gpus()) {
      throw refused_input("placement", "2 or 3",
                          "with access=vfio one drive of a program can reach a GPU's memory, and another does: use "
                          "placement=1 for this one");
    }
    try {
      auto addresses = std::make_unique<translated_addresses>(
          std::make_unique<untranslated_addresses>(windows_of(folder)), reach_->space(), at_);
      gpu_.emplace(reach_->dma(), std::move(addresses), gpu_memory::of(ordinal));
    } catch (...) {
      reach_->give_gpus();
      throw;
    }
  }

  /// Throws `refused_input` if something else has it.
  static open_file open_group(function const& of) {
    std::string const group = of.iommu_group();
    open_file opened(::open(("/dev/vfio/" + group).c_str(), O_RDWR | O_CLOEXEC));
    if (opened) return opened;
    refuse_group(group);
  }

 private:
  vfio_region_info region(std::uint32_t index) const {
    vfio_region_info info{};
    info.argsz = sizeof info;
    info.index = index;
    if (::ioctl(device_.get(), VFIO_DEVICE_GET_REGION_INFO, &info) != 0) fail("cannot ask for a region");
    return info;
  }
  void map_registers() {
    vfio_region_info const bar = region(VFIO_PCI_BAR0_REGION_INDEX);
    void* const mapped = (bar.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0
                             ? MAP_FAILED
                             : ::mmap(nullptr, bar.size, PROT_READ | PROT_WRITE, MAP_SHARED, device_.get(),
                                      static_cast<off_t>(bar.offset));
    if (mapped == MAP_FAILED) fail("cannot map the registers");
    // A child that has them too would keep the function from being given back.
    ::madvise(mapped, bar.size, MADV_DONTFORK);
    registers_ = static_cast<std::byte volatile*>(mapped);
    bytes_ = bar.size;
  }
  /// Sets and clears bits of the command register.
  void command(std::uint16_t set, std::uint16_t clear) const {
    vfio_region_info const config = region(VFIO_PCI_CONFIG_REGION_INDEX);
    auto const at = static_cast<off_t>(config.offset + command_register);
    std::uint16_t value = 0;
    if (::pread(device_.get(), &value, sizeof value, at) != sizeof value) fail("cannot read the command register");
    value = static_cast<std::uint16_t>((value | set) & ~clear);
    if (::pwrite(device_.get(), &value, sizeof value, at) != sizeof value) fail("cannot write the command register");
  }

  address const at_;
  std::shared_ptr<reach> reach_;
  open_file group_;
  open_file device_;
  std::byte volatile* registers_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<gpu_dma_space> gpu_;  ///< when this process ends, the module keeps the memory until the IOMMU bars it
};

void require_vfio_driver(function const& of) {
  std::error_code none;
  if (std::filesystem::is_directory(of.where().buses + "/drivers/" + vfio_driver, none)) return;
  throw refused_input("access", "vfio", "the driver vfio-pci is not there: load it (modprobe vfio-pci)");
}

}  // namespace

void look_for_vfio(function const& of, bool in_use) {
  auto const may = [&](std::string const& name) {
    return ::access((of.where().nodes + "/vfio/" + name).c_str(), R_OK | W_OK) == 0;
  };
  if (!may("vfio")) refuse_container();
  require_vfio_driver(of);
  if (of.driver() != vfio_driver) return;
  if (!may(of.iommu_group())) refuse_group(of.iommu_group());
  if (!in_use) return;
  errno = EBUSY;
  refuse_group(of.iommu_group());
}

void require_vfio(function const& of) {
  reach::of_process();
  require_vfio_driver(of);
  // Else its group has no file yet.
  if (of.driver() == vfio_driver) vfio_access::open_group(of);
}

std::unique_ptr<access> open_by_vfio(function const& of, memory::resource& client_memory) {
  return std::make_unique<vfio_access>(of, client_memory);
}

}  // namespace forebay::drive::pci
