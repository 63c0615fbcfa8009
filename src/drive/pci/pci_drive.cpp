// SPDX-License-Identifier: Apache-2.0
#include "pci_drive.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "../served/served_device.hpp"
#include "access.hpp"
#include "emulator/block_device.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {
namespace {

constexpr std::uint64_t patience_ns = 10'000'000'000;
constexpr int looks = 5;
constexpr std::chrono::milliseconds between_looks{20};

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
  pci_drive(uri const& from, function const& of, way how, std::uint32_t nsid, std::uint32_t queues,
            takeover::check const& may)
      : uri_(from.text()),
        nsid_(nsid),
        queues_(queues),
        taken_(of, how, may),
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

/// Waits until the system's driver has brought up all namespaces, and returns them: it does that in the background, and
/// what it has not found yet may be in use.
std::vector<block_node> settled_nodes(function const& of, std::uint32_t nsid) {
  auto const has = [&](std::vector<block_node> const& nodes) {
    return std::any_of(nodes.begin(), nodes.end(), [&](block_node const& node) { return node.nsid == nsid; });
  };
  std::vector<block_node> nodes;
  int unchanged = 0;
  bool const settled = simt::native::wait_until(
      [&] {
        std::vector<block_node> now = of.block_nodes();
        unchanged = of.is_live() && has(now) && now.size() == nodes.size() ? unchanged + 1 : 0;
        nodes = std::move(now);
        if (unchanged < looks) std::this_thread::sleep_for(between_looks);
        return unchanged >= looks;
      },
      simt::native::clock_ns() + patience_ns);
  if (settled) return nodes;
  refuse(of, of.is_live() ? fmt::format("its driver finds no namespace {} in it; nvme list shows those there are", nsid)
                          : "its driver has not brought it up; see the kernel's messages (dmesg)");
}

/// Refuses a drive of which the system uses anything. The result keeps the system from beginning to.
std::vector<open_file> hold_unused(function const& of, std::vector<block_node> const& nodes) {
  std::vector<open_file> held;
  for (block_node const& node : nodes) {
    std::string const path = "/dev/" + node.name;
    if (std::string const user = emulator::user_of_device(node.number); !user.empty()) {
      refuse(of, fmt::format("the system uses {}: {}; stop that first, or use another drive", path, user));
    }
    // Also if a device mapper, a file system on several devices, or a program has it.
    open_file file(::open(path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
    struct stat about{};
    if (!file && errno == EBUSY) {
      refuse(of,
             path + " is in use, perhaps by a file system of another container; stop that first, or use another drive");
    }
    if (!file || ::fstat(file.get(), &about) != 0 || about.st_rdev != node.number) {
      refuse(of,
             fmt::format("{} cannot be looked at ({})", path, file ? "it is another device" : std::strerror(errno)));
    }
    held.push_back(std::move(file));
  }
  return held;
}

/// What lies on its namespaces; nothing if none of them has anything that is known.
std::string contents_of(std::vector<block_node> const& nodes, std::vector<open_file> const& files) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    try {
      auto const found = emulator::signatures_on(files[i].get());
      if (!found.empty()) return fmt::format("/dev/{} has a {}", nodes[i].name, found.front());
    } catch (operation_failed const& failed) {
      return fmt::format("/dev/{}: {}", nodes[i].name, failed.what());
    }
  }
  return {};
}

[[noreturn]] void refuse_serial(function const& of, std::string const& allowed, std::string const& serial) {
  throw refused_input(
      "allow_destroy", allowed,
      fmt::format("the serial number of pci:{} is {}; is it the drive that you mean?", of.at().text(), serial));
}

/// With the lock on the function: nothing else of this kind takes it meanwhile.
std::vector<open_file> check_all(function const& of, std::uint32_t nsid, bool read_only, std::string const& allowed,
                                 way how) {
  std::string const driver = of.driver();
  if (!driver.empty() && driver != "nvme" && !(driver == vfio_driver && how == way::vfio)) {
    refuse(of, fmt::format("the driver {} has it, so another program may use it; give it back to nvme first{}", driver,
                           driver == vfio_driver ? ", or use access=vfio" : ""));
  }
  std::vector<open_file> files;
  std::string found = "no driver of the system looks at it, so nobody knows what lies on it", name = "SERIAL";
  if (driver == "nvme") {
    std::vector<block_node> const nodes = settled_nodes(of, nsid);
    files = hold_unused(of, nodes);
    name = of.serial();
    if (!read_only && !allowed.empty() && allowed != name) refuse_serial(of, allowed, name);
    found = read_only || !allowed.empty() ? "" : contents_of(nodes, files);
  }
  if (!read_only && allowed.empty() && !found.empty()) {
    refuse(of,
           fmt::format("{}, and a drive would overwrite it; to allow that, add allow_destroy={} to the URI, or open it "
                       "to read only",
                       found, name));
  }
  return files;
}

/// All functions of a group can reach each other's memory, so VFIO wants the system's drivers off all of them.
void require_own_group(function const& of) {
  for (std::string const& name : of.group_members()) {
    if (name == of.at().text()) continue;
    std::string const driver = function(address::parse(name), of.where()).driver();
    if (driver.empty() || driver == vfio_driver) continue;
    refuse(of, fmt::format("{} is in the same IOMMU group {}, and the driver {} has it: unbind that too", name,
                           of.iommu_group(), driver));
  }
}

way way_of(uri const& from, function const& of) {
  std::string const asked = from.value("access").value_or(of.is_translated() ? "vfio" : "sysfs");
  if (asked != "vfio" && asked != "sysfs") throw refused_input("access", asked, "give vfio or sysfs");
  if (asked == "vfio" && of.iommu_group().empty()) {
    throw refused_input(
        "access", asked,
        fmt::format("there is no IOMMU for {}: boot with one (intel_iommu=on), or use access=sysfs", of.at().text()));
  }
  if (asked == "sysfs" && of.is_translated()) {
    throw refused_input("access", asked,
                        "an IOMMU translates the drive's addresses, which are not physical then: use access=vfio");
  }
  return asked == "vfio" ? way::vfio : way::sysfs;
}

std::uint32_t count_of(uri const& from, char const* key, std::uint32_t usual, std::uint64_t most) {
  auto const value = from.value(key);
  return value ? static_cast<std::uint32_t>(parse_count(key, *value, 1, most)) : usual;
}
std::uint32_t nsid_of(uri const& from) {
  return count_of(from, "nsid", 1, 0xffff'fffe);
}

}  // namespace

scheme_syntax syntax() {
  return {.name = "a bus address such as 0000:01:00.0", .keys = {"nsid", "queues", "access", "allow_destroy", "residency"}};
}

std::unique_ptr<device> open(uri const& from, open_options const& options) {
  std::string const residency = from.value("residency").value_or("");
  if (residency == "served") return served::open(from, options);
  if (!residency.empty()) throw refused_input("residency", residency, "give served, or leave it out");
  return open_here(from, options);
}

std::string name_of(uri const& from) {
  return fmt::format("pci:{},nsid={}", address::parse(from.name()).text(), nsid_of(from));
}

std::unique_ptr<device> open_here(uri const& from, open_options const& options) {
  function const of(address::parse(from.name()));
  std::uint32_t const nsid = nsid_of(from);
  std::uint32_t const queues = count_of(from, "queues", 1024, 65534);
  if (!of.is_nvme()) refuse(of, "it is not an NVMe controller; lspci lists those as Non-Volatile memory controller");
  way const how = way_of(from, of);
  if (options.client_memory->kind() != memory::kind::host) {
    refuse(of, "threads of a GPU cannot use a real drive yet; open the storage with device cpu");
  }
  if (how == way::vfio) {
    require_own_group(of);
    require_vfio(of);
  } else {
    require_sysfs();
  }
  std::string const allowed = from.value("allow_destroy").value_or("");
  auto opened = std::make_unique<pci_drive>(from, of, how, nsid, queues, [&](function const& locked) {
    return check_all(locked, nsid, options.read_only, allowed, how);
  });
  if (!options.read_only && !allowed.empty()) {
    // Where no driver of the system had it, only the controller itself tells its number.
    std::string const serial = driver::controller(opened->registers(), opened->dma(), {.nsid = nsid}).identity().serial;
    if (serial != allowed) refuse_serial(of, allowed, serial);
  }
  return opened;
}

}  // namespace forebay::drive::pci
