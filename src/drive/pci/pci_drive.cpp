// SPDX-License-Identifier: Apache-2.0
#include "pci_drive.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "access.hpp"
#include "emulator/block_device.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {
namespace {

/// Registers that are mapped into this process. Thread-safe.
class mapped_registers final : public driver::register_space {
 public:
  mapped_registers(std::byte volatile* first, std::size_t bytes) : first_(first), bytes_(bytes) {}

  std::uint32_t read32(std::uint32_t offset_bytes) override { return *at(offset_bytes); }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override { *at(offset_bytes) = value; }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return const_cast<std::uint32_t*>(at(offset_bytes)); }

 private:
  std::uint32_t volatile* at(std::uint32_t offset_bytes) const {
    if (offset_bytes % 4 != 0 || offset_bytes > bytes_ - 4) {
      throw operation_failed(
          fmt::format("the controller has no register at {}: its window has {} bytes", offset_bytes, bytes_));
    }
    return reinterpret_cast<std::uint32_t volatile*>(first_ + offset_bytes);
  }

  std::byte volatile* const first_;
  std::size_t const bytes_;
};

class pci_drive final : public device {
 public:
  pci_drive(uri const& from, function const& of, way how, std::uint32_t nsid, std::uint32_t queues)
      : uri_(from.text()),
        nsid_(nsid),
        queues_(queues),
        taken_(of, how),
        access_(how == way::vfio ? open_by_vfio(of) : open_by_sysfs(of, taken_)),
        registers_(access_->registers(), access_->registers_bytes()) {}

  driver::register_space& registers() override { return registers_; }
  driver::dma_space& dma() override { return access_->dma(); }
  std::uint32_t nsid() const override { return nsid_; }
  std::uint32_t most_queue_pairs() const override { return queues_; }
  nlohmann::json report() override {
    return {{"uri", uri_}, {"residency", "hardware"}, {"access", access_->name()}, {"doorbells", "direct"}};
  }
  void reset_statistics() override {}

 private:
  std::string const uri_;
  std::uint32_t const nsid_;
  std::uint32_t const queues_;
  takeover taken_;  ///< before what uses the function
  std::unique_ptr<access> access_;
  mapped_registers registers_;
};

[[noreturn]] void refuse(function const& of, std::string const& remedy) {
  throw refused_input("drive", "pci:" + of.at().text(), remedy);
}

/// What nobody may take away: the system uses it now.
void require_unused(function const& of) {
  for (block_node const& node : of.block_nodes()) {
    if (std::string const user = emulator::user_of_device(node.number); !user.empty()) {
      refuse(of, fmt::format("the system uses /dev/{}: {}; stop that first, or use another drive", node.name, user));
    }
  }
}

/// What lies on its namespaces; nothing if none of them has anything that is known.
std::string contents_of(function const& of) {
  for (block_node const& node : of.block_nodes()) {
    open_file const file(::open(("/dev/" + node.name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return fmt::format("/dev/{} cannot be read ({})", node.name, std::strerror(errno));
    try {
      auto const found = emulator::signatures_on(file.get());
      if (!found.empty()) return fmt::format("/dev/{} has a {}", node.name, found.front());
    } catch (operation_failed const& failed) {
      return fmt::format("/dev/{}: {}", node.name, failed.what());
    }
  }
  return {};
}

void require_destructible(function const& of, std::string const& allowed) {
  std::string const serial = of.serial();
  if (!allowed.empty()) {
    if (serial.empty() || allowed == serial) return;
    throw refused_input(
        "allow_destroy", allowed,
        fmt::format("the serial number of pci:{} is {}; is it the drive that you mean?", of.at().text(), serial));
  }
  std::string const found =
      serial.empty() ? "no driver of the system has it, so nobody knows what lies on it" : contents_of(of);
  if (found.empty()) return;
  refuse(of,
         fmt::format("{}, which a drive would overwrite; to allow that, add allow_destroy={} to the URI, or open it to "
                     "read only",
                     found, serial.empty() ? "and its serial number" : serial));
}

/// All functions of a group can reach each other's memory, so VFIO wants the system's drivers off all of them.
void require_own_group(function const& of) {
  for (std::string const& name : of.group_members()) {
    if (name == of.at().text()) continue;
    std::string const driver = function(address::parse(name), of.where()).driver();
    if (driver.empty() || driver == "vfio-pci") continue;
    refuse(of,
           fmt::format("{} is in the same IOMMU group {}, and the driver {} has it: detach it too, or use access=sysfs",
                       name, of.iommu_group(), driver));
  }
}

way way_of(uri const& from, function const& of) {
  auto const asked = from.value("access");
  if (!asked) return of.iommu_group().empty() ? way::sysfs : way::vfio;
  if (*asked == "sysfs") return way::sysfs;
  if (*asked != "vfio") throw refused_input("access", *asked, "give vfio or sysfs");
  if (of.iommu_group().empty()) {
    throw refused_input(
        "access", *asked,
        fmt::format("no IOMMU translates for {}: boot with one (intel_iommu=on), or use access=sysfs", of.at().text()));
  }
  return way::vfio;
}

}  // namespace

scheme_syntax syntax() {
  return {.name = "a bus address such as 0000:01:00.0", .keys = {"nsid", "queues", "access", "allow_destroy"}};
}

std::unique_ptr<device> open(uri const& from, open_options const& options) {
  function const of(address::parse(from.name()));
  auto const count = [&](char const* key, std::uint32_t usual, std::uint64_t most) {
    auto const value = from.value(key);
    return value ? static_cast<std::uint32_t>(parse_count(key, *value, 1, most)) : usual;
  };
  std::uint32_t const nsid = count("nsid", 1, 0xffff'fffe);
  std::uint32_t const queues = count("queues", 1024, 65534);
  if (!of.is_nvme()) refuse(of, "it is not an NVMe controller; lspci lists those as Non-Volatile memory controller");
  way const how = way_of(from, of);
  if (options.client_memory->kind() != memory::kind::host) {
    refuse(of, "threads of a GPU cannot use a real drive yet; open the storage with device cpu");
  }
  if (how == way::vfio) require_own_group(of);
  require_unused(of);
  std::string const allowed = from.value("allow_destroy").value_or("");
  if (!options.read_only) require_destructible(of, allowed);
  auto opened = std::make_unique<pci_drive>(from, of, how, nsid, queues);
  if (!options.read_only && !allowed.empty()) {
    // Where no driver of the system had it, only the controller itself tells what it is called.
    std::string const serial = driver::controller(opened->registers(), opened->dma()).identity().serial;
    if (serial != allowed) {
      throw refused_input(
          "allow_destroy", allowed,
          fmt::format("the serial number of pci:{} is {}; is it the drive that you mean?", of.at().text(), serial));
    }
  }
  return opened;
}

}  // namespace forebay::drive::pci
