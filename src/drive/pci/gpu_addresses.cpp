// SPDX-License-Identifier: Apache-2.0
#include "gpu_addresses.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "forebay/error.hpp"
#include "quirks.hpp"

namespace forebay::drive::pci {
namespace {

constexpr std::uint64_t page = 4096;

/// The arguments of `dmabuf_import`. It takes them as they lie in memory.
struct attach_argument {
  std::int32_t file;
  std::uint32_t count;  ///< of the stretches, which it tells
};
struct map_argument {
  std::int32_t file;
  std::uint32_t count;  ///< as many stretches follow
};
constexpr unsigned long attach_request = _IOWR('u', 0x47, attach_argument);
constexpr unsigned long detach_request = _IOW('u', 0x48, int);
constexpr unsigned long map_request = _IOWR('u', 0x49, map_argument);

/// Those of `iommu_map_pa`.
struct iommu_map_argument {
  char function[16];
  std::int32_t file;
  std::uint32_t page_bytes;
  std::uint32_t pages;
  std::uint32_t access;
  std::uint32_t reserved[2];
  std::uint64_t first;      ///< the address that the function is to use
  std::uint64_t addresses;  ///< where in this process the address of each page lies
  std::uint64_t handle;     ///< which it tells
};
static_assert(sizeof(iommu_map_argument) == 64);
struct iommu_unmap_argument {
  std::uint64_t handle;
};
constexpr unsigned long iommu_unmap_request = _IOW('u', 2, iommu_unmap_argument);
constexpr unsigned long iommu_map_request = _IOWR('u', 3, iommu_map_argument);
constexpr std::uint32_t read_and_write = 3;
constexpr std::size_t most_pages = 1 << 19;  ///< in one call

[[noreturn]] void fail(char const* what) {
  throw operation_failed(fmt::format("memory of a GPU: {}: {}", what, std::strerror(errno)));
}

open_file open_module(std::string const& device, char const* module) {
  open_file opened(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  if (opened) return opened;
  throw refused_input("placement", "2 or 3",
                      fmt::format("cannot open {}: {}; load the kernel module {} of uPCIe and run as root, or use "
                                  "placement=1",
                                  device, std::strerror(errno), module));
}
open_file open_import_module(std::string const& device) {
  return open_module(device, "dmabuf_import");
}
open_file open_iommu_module(std::string const& device) {
  return open_module(device, "iommu_map_pa");
}

bool lies_in(bus_stretch const& inner, bus_stretch const& outer) {
  return inner.first >= outer.first && inner.bytes <= outer.bytes &&
         inner.first - outer.first <= outer.bytes - inner.bytes;
}

}  // namespace

device_call system_call() {
  return [](int file, unsigned long request, void* argument) { return ::ioctl(file, request, argument); };
}

std::vector<bus_stretch> windows_of(std::string const& folder) {
  std::ifstream file(folder + "/resource");
  std::vector<bus_stretch> found;
  std::string line;
  // The lines after the sixth are a ROM and windows of bridges.
  for (int i = 0; i < 6 && std::getline(file, line); ++i) {
    std::istringstream numbers(line);
    std::uint64_t first = 0, last = 0, flags = 0;
    constexpr std::uint64_t memory_to_prefetch = 0x2200;  // IORESOURCE_MEM and IORESOURCE_PREFETCH of Linux
    if (numbers >> std::hex >> first >> last >> flags && (flags & memory_to_prefetch) == memory_to_prefetch &&
        last > first) {
      found.push_back({first, last - first + 1});
    }
  }
  if (found.empty()) throw operation_failed("memory of a GPU: " + folder + "/resource lists no window onto it");
  return found;
}

void require_import_module() {
  open_import_module(import_module);
}
void require_iommu_module() {
  open_iommu_module(iommu_module);
}

untranslated_addresses::untranslated_addresses(std::vector<bus_stretch> windows, std::string const& device,
                                               device_call call)
    : windows_(std::move(windows)), call_(std::move(call)), device_(open_import_module(device)) {}

std::vector<bus_stretch> untranslated_addresses::find(int file, std::uint64_t bytes) {
  attach_argument attached{.file = file, .count = 0};
  if (call_(device_.get(), attach_request, &attached) != 0) fail("dmabuf_import does not take it");
  try {
    if (attached.count == 0 || attached.count > bytes / page) {
      throw operation_failed(
          fmt::format("memory of a GPU: dmabuf_import tells of {} stretches in {} bytes", attached.count, bytes));
    }
    // Version 0.1.0 of its predecessor wrote one more than it said.
    std::vector<std::uint64_t> answer(1 + 2 * (std::size_t{attached.count} + 1));
    map_argument const wanted{.file = file, .count = attached.count};
    std::memcpy(answer.data(), &wanted, sizeof wanted);
    if (call_(device_.get(), map_request, answer.data()) != 0) fail("dmabuf_import does not tell its addresses");
    std::vector<bus_stretch> found;
    std::uint64_t left = bytes;
    for (std::uint32_t i = 0; i < attached.count && left != 0; ++i) {
      bus_stretch one{answer[1 + 2 * i], answer[2 + 2 * i]};
      bool const whole = one.bytes != 0 && one.first % page == 0 && one.bytes % page == 0;
      bool const inside = std::any_of(windows_.begin(), windows_.end(), [&](auto const& w) { return lies_in(one, w); });
      if (!whole || !inside || one.first + one.bytes - 1 > most_bus_address) {
        throw operation_failed(
            fmt::format("memory of a GPU: dmabuf_import tells of {} bytes at {:#x}, which is no memory of this GPU",
                        one.bytes, one.first));
      }
      // The last one may go beyond the memory.
      one.bytes = std::min(one.bytes, left);
      left -= one.bytes;
      found.push_back(one);
    }
    if (left != 0) {
      throw operation_failed(
          fmt::format("memory of a GPU: dmabuf_import tells of {} bytes too few in {}", left, bytes));
    }
    return found;
  } catch (...) {
    forget(file);
    throw;
  }
}

bool untranslated_addresses::forget(int file) noexcept {
  return call_(device_.get(), detach_request, &file) == 0;
}

translated_addresses::translated_addresses(std::unique_ptr<gpu_addresses> untranslated, translated_space space,
                                           address const& function, std::string const& device, device_call call)
    : untranslated_(std::move(untranslated)),
      space_(std::move(space)),
      function_(function.text()),
      call_(std::move(call)),
      device_(open_iommu_module(device)) {}

std::vector<bus_stretch> translated_addresses::find(int file, std::uint64_t bytes) {
  auto const where = untranslated_->find(file, bytes);
  std::lock_guard const lock(mutex_);
  try {
    std::vector<std::uint64_t> pages;
    pages.reserve(bytes / page);
    for (bus_stretch const& one : where) {
      for (std::uint64_t at = 0; at < one.bytes; at += page) pages.push_back(one.first + at);
    }
    mapping& made = mappings_[file];
    made.handles.reserve(pages.size() / most_pages + 1);
    std::vector<bus_stretch> found{{space_.take(bytes), bytes}};
    made.first = found.front().first;
    map(file, pages, made);
    return found;
  } catch (...) {
    // What could not be unmapped is still reached.
    if (mappings_[file].handles.empty()) {
      mappings_.erase(file);
      untranslated_->forget(file);
    }
    throw;
  }
}

void translated_addresses::map(int file, std::vector<std::uint64_t> const& pages, mapping& made) {
  for (std::size_t begin = 0; begin < pages.size(); begin += most_pages) {
    iommu_map_argument wanted{};
    function_.copy(wanted.function, sizeof wanted.function - 1);
    wanted.file = file;
    wanted.page_bytes = page;
    wanted.pages = static_cast<std::uint32_t>(std::min(pages.size() - begin, most_pages));
    wanted.access = read_and_write;
    wanted.first = made.first + begin * page;
    wanted.addresses = reinterpret_cast<std::uint64_t>(pages.data() + begin);
    if (call_(device_.get(), iommu_map_request, &wanted) != 0) {
      int const error = errno;
      unmap(made);
      errno = error;
      fail("iommu_map_pa does not map it");
    }
    made.handles.push_back(wanted.handle);
  }
}

/// False: the function still reaches a part of it, so the addresses are never used again.
bool translated_addresses::unmap(mapping& ended) noexcept {
  std::erase_if(ended.handles, [&](std::uint64_t handle) {
    iommu_unmap_argument argument{handle};
    return call_(device_.get(), iommu_unmap_request, &argument) == 0;
  });
  if (!ended.handles.empty()) return false;
  space_.give_back(ended.first);
  return true;
}

bool translated_addresses::forget(int file) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = mappings_.find(file);
  if (found == mappings_.end() || !unmap(found->second)) return false;
  mappings_.erase(found);
  return untranslated_->forget(file);
}

}  // namespace forebay::drive::pci
