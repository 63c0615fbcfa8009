// SPDX-License-Identifier: Apache-2.0
#include "gpu_addresses.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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

/// The arguments of `udmabuf_import`. It takes them as they lie in memory.
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

/// Those of `upcie_iommu_map`.
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
constexpr std::uint32_t most_pages = 1 << 19;

[[noreturn]] void fail(char const* what) {
  throw operation_failed(fmt::format("memory of a GPU: {}: {}", what, std::strerror(errno)));
}

open_file open_module(std::string const& device, char const* module) {
  open_file opened(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  if (opened) return opened;
  throw refused_input("placement", "2 or 3",
                      fmt::format("cannot open {}: {}; the module {} tells where a drive finds a GPU's memory: load "
                                  "it and run as root, or use placement=1",
                                  device, std::strerror(errno), module));
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
    constexpr std::uint64_t is_memory = 0x200;  // IORESOURCE_MEM of Linux
    if (numbers >> std::hex >> first >> last >> flags && (flags & is_memory) != 0 && last > first) {
      found.push_back({first, last - first + 1});
    }
  }
  if (found.empty()) throw operation_failed("memory of a GPU: " + folder + "/resource lists no window onto it");
  return found;
}

untranslated_addresses::untranslated_addresses(std::vector<bus_stretch> windows, std::string const& device,
                                               device_call call)
    : windows_(std::move(windows)), call_(std::move(call)), device_(open_module(device, "udmabuf_import")) {
  if (::flock(device_.get(), LOCK_EX | LOCK_NB) == 0) return;
  throw refused_input("placement", "2 or 3",
                      "another process asks the module udmabuf_import for addresses, and it mixes up two: end that "
                      "process, or use placement=1");
}

std::vector<bus_stretch> untranslated_addresses::find(int file, std::uint64_t bytes) {
  // What a process that was killed has left under this number would be taken for this memory.
  forget(file);
  attach_argument attached{.file = file, .count = 0};
  if (call_(device_.get(), attach_request, &attached) != 0) fail("udmabuf_import does not take it");
  try {
    if (attached.count == 0 || attached.count > bytes / page) {
      throw operation_failed(
          fmt::format("memory of a GPU: udmabuf_import tells of {} stretches in {} bytes", attached.count, bytes));
    }
    // One more than it says: version 0.1.0 may write that many.
    std::vector<std::uint64_t> answer(1 + 2 * (std::size_t{attached.count} + 1));
    map_argument const wanted{.file = file, .count = attached.count};
    std::memcpy(answer.data(), &wanted, sizeof wanted);
    if (call_(device_.get(), map_request, answer.data()) != 0) fail("udmabuf_import does not tell its addresses");
    std::vector<bus_stretch> found;
    std::uint64_t left = bytes;
    for (std::uint32_t i = 0; i < attached.count && left != 0; ++i) {
      bus_stretch one{answer[1 + 2 * i], answer[2 + 2 * i]};
      bool const whole = one.bytes != 0 && one.first % page == 0 && one.bytes % page == 0;
      bool const inside = std::any_of(windows_.begin(), windows_.end(), [&](auto const& w) { return lies_in(one, w); });
      if (!whole || !inside || one.first + one.bytes - 1 > most_bus_address) {
        throw operation_failed(
            fmt::format("memory of a GPU: udmabuf_import tells of {} bytes at {:#x}, which is no memory of this GPU",
                        one.bytes, one.first));
      }
      // The last one may go beyond the memory.
      one.bytes = std::min(one.bytes, left);
      left -= one.bytes;
      found.push_back(one);
    }
    if (left != 0) {
      throw operation_failed(
          fmt::format("memory of a GPU: udmabuf_import tells of {} bytes too few in {}", left, bytes));
    }
    return found;
  } catch (...) {
    forget(file);
    throw;
  }
}

void untranslated_addresses::forget(int file) noexcept {
  call_(device_.get(), detach_request, &file);
}

std::shared_ptr<gpu_addresses> untranslated_addresses_of(std::string const& gpu_folder) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<gpu_addresses>> all;
  std::lock_guard const lock(mutex);
  auto& known = all[gpu_folder];
  auto found = known.lock();
  if (!found) known = found = std::make_shared<untranslated_addresses>(windows_of(gpu_folder));
  return found;
}

void require_translated_addresses() {
  open_module(iommu_module, "upcie_iommu_map");
}

translated_addresses::translated_addresses(std::shared_ptr<gpu_addresses> untranslated, translated_space space,
                                           address const& function, std::string const& device, device_call call)
    : untranslated_(std::move(untranslated)),
      space_(std::move(space)),
      function_(function.text()),
      call_(std::move(call)),
      device_(open_module(device, "upcie_iommu_map")) {}

std::vector<bus_stretch> translated_addresses::find(int file, std::uint64_t bytes) {
  if (bytes / page > most_pages) {
    throw refused_input("buffer", fmt::format("{} bytes", bytes),
                        fmt::format("upcie_iommu_map takes at most {} bytes of a GPU at once", most_pages * page));
  }
  pages of;
  for (bus_stretch const& one : untranslated_->find(file, bytes)) {
    for (std::uint64_t at = 0; at < one.bytes; at += page) of.push_back(one.first + at);
  }
  std::lock_guard const lock(mutex_);
  try {
    auto const [found, is_new] = mappings_.try_emplace(of);
    if (is_new) {
      try {
        found->second.first = space_.take(bytes);
        found->second.handle = map(file, of, found->second.first);
      } catch (...) {
        mappings_.erase(found);
        throw;
      }
    }
    pages_of_[file] = std::move(of);
    ++found->second.files;
    return {{found->second.first, bytes}};
  } catch (...) {
    untranslated_->forget(file);
    throw;
  }
}

/// Returns the module's number for it. Gives the address back if it throws.
std::uint64_t translated_addresses::map(int file, pages const& of, std::uint64_t first) {
  iommu_map_argument wanted{};
  function_.copy(wanted.function, sizeof wanted.function - 1);
  wanted.file = file;
  wanted.page_bytes = page;
  wanted.pages = static_cast<std::uint32_t>(of.size());
  wanted.access = read_and_write;
  wanted.first = first;
  wanted.addresses = reinterpret_cast<std::uint64_t>(of.data());
  if (call_(device_.get(), iommu_map_request, &wanted) == 0) return wanted.handle;
  int const error = errno;
  space_.give_back(first);
  errno = error;
  fail("upcie_iommu_map does not map it");
}

void translated_addresses::forget(int file) noexcept {
  std::lock_guard const lock(mutex_);
  auto const its = pages_of_.find(file);
  if (its == pages_of_.end()) return;
  if (auto const found = mappings_.find(its->second); --found->second.files == 0) {
    iommu_unmap_argument ended{found->second.handle};
    // If it fails, the function still reaches the memory there, so the address is never used again.
    if (call_(device_.get(), iommu_unmap_request, &ended) == 0) space_.give_back(found->second.first);
    mappings_.erase(found);
  }
  pages_of_.erase(its);
  untranslated_->forget(file);
}

}  // namespace forebay::drive::pci
