// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where PCI functions find the memory of a GPU. The kernel tells a program through modules that do not come with it:
//! - `udmabuf_import` (github.com/xnvme/udmabuf-import) tells which addresses of the bus are behind a dma-buf.
//! - `upcie_iommu_map` (of uPCIe, github.com/xnvme/upcie) lets functions behind an IOMMU reach such addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../open_file.hpp"
#include "address.hpp"

namespace forebay::drive::pci {

/// A part of the bus.
struct bus_stretch {
  std::uint64_t first;
  std::uint64_t bytes;
};

/// How a module of the kernel is called: ioctl(2). A test brings another kernel.
using device_call = std::function<int(int file, unsigned long request, void* argument)>;
device_call system_call();

/// Tells functions of this process where they find memory of GPUs. Thread-safe.
class gpu_addresses {
 public:
  virtual ~gpu_addresses() = default;
  /// Where functions find the `bytes` behind a dma-buf, in their order, until `forget` of the same file, which has to
  /// stay open so long. Throws `operation_failed` if the system does not tell.
  virtual std::vector<bus_stretch> find(int file, std::uint64_t bytes) = 0;
  /// No function uses the memory any more.
  virtual void forget(int file) noexcept = 0;
};

/// The part of the bus in which a GPU shows its memory and registers: the windows that `resource` in its folder below
/// /sys lists. Throws `operation_failed` if it lists none.
std::vector<bus_stretch> windows_of(std::string const& folder);

/// For functions that no IOMMU translates for: the module `udmabuf_import` alone. What it tells is believed only if it
/// is as long as the memory, and lies in `windows`: a function could write to anything else as well.
///
/// The module knows dma-bufs by the numbers of their files, of all processes together, and keeps those of a process
/// that was killed (seen in its version 0.1.0). So one object at a time has it, in the whole system; programs that do
/// not lock the module's file must not use it meanwhile.
class untranslated_addresses final : public gpu_addresses {
 public:
  /// Throws `refused_input` if the module is not there or another process uses it.
  explicit untranslated_addresses(std::vector<bus_stretch> windows, std::string const& device = "/dev/udmabuf_import",
                                  device_call call = system_call());

  std::vector<bus_stretch> find(int file, std::uint64_t bytes) override;
  void forget(int file) noexcept override;

 private:
  std::vector<bus_stretch> const windows_;
  device_call const call_;
  open_file const device_;
};

inline constexpr char const* iommu_module = "/dev/upcie-iommu-map";
/// Throws `refused_input` if the module `upcie_iommu_map` is not there.
void require_translated_addresses();

/// Hands out addresses that functions behind an IOMMU use, and takes them back.
struct translated_space {
  std::function<std::uint64_t(std::uint64_t bytes)> take;  ///< whole pages; throws `operation_failed` if none are left
  std::function<void(std::uint64_t first)> give_back;
};

/// Those of the process for the GPU in a folder below /sys. Throws like the constructor and `windows_of`.
std::shared_ptr<gpu_addresses> untranslated_addresses_of(std::string const& gpu_folder);

/// For functions of VFIO: what `untranslated` finds, at addresses of `space`, by the module `upcie_iommu_map`. Memory
/// that several files stand for has one place there.
class translated_addresses final : public gpu_addresses {
 public:
  /// `function` is one that uses the space. Throws `refused_input` if the module is not there.
  translated_addresses(std::shared_ptr<gpu_addresses> untranslated, translated_space space, address const& function,
                       std::string const& device = iommu_module, device_call call = system_call());

  std::vector<bus_stretch> find(int file, std::uint64_t bytes) override;
  void forget(int file) noexcept override;

 private:
  struct mapping {
    std::uint64_t first;
    std::uint64_t handle;  ///< the module's number for it
    std::uint32_t files;
  };
  using pages = std::vector<std::uint64_t>;

  std::uint64_t map(int file, pages const& of, std::uint64_t first);

  std::shared_ptr<gpu_addresses> const untranslated_;
  translated_space const space_;
  std::string const function_;
  device_call const call_;
  open_file const device_;
  std::mutex mutex_;  ///< of what follows
  std::map<pages, mapping> mappings_;
  std::unordered_map<int, pages> pages_of_;
};

}  // namespace forebay::drive::pci
