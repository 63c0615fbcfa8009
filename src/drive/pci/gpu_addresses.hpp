// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where PCI functions find the memory of a GPU. Linux tells a program through modules of uPCIe
//! (github.com/safl/upcie), which do not come with it:
//! - `dmabuf_import` (0.2.0 and newer) tells which addresses of the bus are behind a dma-buf.
//! - `iommu_map_pa` (as uPCIe 0.8.1 has it) lets functions behind an IOMMU reach such addresses.
#pragma once

#include <cstdint>
#include <functional>
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

/// Tells functions of this process where they find memory of a GPU. Thread-safe.
class gpu_addresses {
 public:
  virtual ~gpu_addresses() = default;
  /// Where functions find the `bytes` behind a dma-buf, in their order, until `forget` of the same file, which has to
  /// stay open so long. Throws `operation_failed` if the system does not tell.
  virtual std::vector<bus_stretch> find(int file, std::uint64_t bytes) = 0;
  /// No function uses the memory any more. False: they still reach it, and what is behind it must stay.
  virtual bool forget(int file) noexcept = 0;
  /// A file that must be open as long as a function reaches what was found, in whatever process.
  virtual int keeper() const = 0;
};

/// The part of the bus in which a GPU shows its memory: of the windows that `resource` in its folder below /sys lists,
/// those that a processor may prefetch. Throws `operation_failed` if there is none.
std::vector<bus_stretch> windows_of(std::string const& folder);

inline constexpr char const* import_module = "/dev/dmabuf_import";
inline constexpr char const* iommu_module = "/dev/iommu_map_pa";
/// Throws `refused_input` if a module is not there.
void require_import_module();
void require_iommu_module();

/// For functions that no IOMMU translates for: the module `dmabuf_import` alone. What it tells is believed only if it
/// is as long as the memory, and lies in `windows`: a function could write to anything else as well.
class untranslated_addresses final : public gpu_addresses {
 public:
  /// Throws `refused_input` if the module is not there.
  explicit untranslated_addresses(std::vector<bus_stretch> windows, std::string const& device = import_module,
                                  device_call call = system_call());

  std::vector<bus_stretch> find(int file, std::uint64_t bytes) override;
  bool forget(int file) noexcept override;
  int keeper() const override { return device_.get(); }

 private:
  std::vector<bus_stretch> const windows_;
  device_call const call_;
  open_file const device_;
};

/// Hands out addresses that functions behind an IOMMU use, and takes them back.
struct translated_space {
  std::function<std::uint64_t(std::uint64_t bytes)> take;  ///< whole pages; throws `operation_failed` if none are left
  std::function<void(std::uint64_t first)> give_back;
};

/// For a function of VFIO: what `untranslated` finds, at addresses of `space`, by the module `iommu_map_pa`.
class translated_addresses final : public gpu_addresses {
 public:
  /// `function` uses the space as long as this object lives. Throws `refused_input` if the module is not there.
  translated_addresses(std::unique_ptr<gpu_addresses> untranslated, translated_space space, address const& function,
                       std::string const& device = iommu_module, device_call call = system_call());

  std::vector<bus_stretch> find(int file, std::uint64_t bytes) override;
  bool forget(int file) noexcept override;
  int keeper() const override { return device_.get(); }

 private:
  struct mapping {
    std::uint64_t first = 0;
    std::vector<std::uint64_t> handles;  ///< the module's numbers for its parts
  };

  void map(int file, std::vector<std::uint64_t> const& pages, mapping& made);
  bool unmap(mapping& ended) noexcept;

  std::unique_ptr<gpu_addresses> const untranslated_;
  translated_space const space_;
  std::string const function_;
  device_call const call_;
  open_file const device_;
  std::mutex mutex_;  ///< of what follows
  std::unordered_map<int, mapping> mappings_;
};

}  // namespace forebay::drive::pci
