// SPDX-License-Identifier: Apache-2.0
#include "checks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "access.hpp"
#include "emulator/block_device.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "quirks.hpp"

namespace forebay::drive::pci {
namespace {

constexpr std::uint64_t patience_ns = 10'000'000'000;
constexpr int looks = 5;
constexpr std::chrono::milliseconds between_looks{20};

/// Waits until the system's driver has brought up all namespaces, and returns them: it does that in the background, and
/// what it has not found yet may be in use. With `manner::look` it does not wait.
std::vector<block_node> settled_nodes(function const& of, std::uint32_t nsid, manner how) {
  auto const has = [&](std::vector<block_node> const& nodes) {
    return nsid == 0 ||
           std::any_of(nodes.begin(), nodes.end(), [&](block_node const& node) { return node.nsid == nsid; });
  };
  std::vector<block_node> nodes;
  int unchanged = 0;
  bool const settled = simt::native::wait_until(
      [&] {
        std::vector<block_node> now = of.block_nodes();
        bool const good = of.is_live() && has(now);
        unchanged = good && now.size() == nodes.size() ? unchanged + 1 : 0;
        nodes = std::move(now);
        if (how == manner::look) unchanged = good ? looks : 0;
        if (unchanged < looks) std::this_thread::sleep_for(between_looks);
        return unchanged >= looks;
      },
      simt::native::clock_ns() + (how == manner::hold ? patience_ns : 0));
  if (settled) return nodes;
  refuse(of, of.is_live() ? fmt::format("its driver finds no namespace {} in it; nvme list shows those there are", nsid)
                          : "its driver has not brought it up; see the kernel's messages (dmesg)");
}

/// What lies on its namespaces; nothing if none of them has anything that is known.
std::string first_contents(std::vector<block_node> const& nodes, std::vector<open_file> const& files) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::string const found = contents_of(nodes[i], files[i]);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

void refuse(function const& of, std::string const& remedy) {
  throw refused_input("drive", "pci:" + of.at().text(), remedy);
}

void refuse_serial(function const& of, std::string const& allowed, std::string const& serial) {
  throw refused_input(
      "allow_destroy", allowed,
      fmt::format("the serial number of pci:{} is {}; is it the drive that you mean?", of.at().text(), serial));
}

void require_nvme(function const& of) {
  if (!of.is_nvme()) {
    refuse(of, "it is not an NVMe controller; lspci lists those as Non-Volatile memory controller");
  }
  if (std::string const why = why_undrivable(of.vendor(), of.device()); !why.empty()) refuse(of, why);
}

way way_of(std::optional<std::string> const& given, function const& of) {
  std::string const asked = given.value_or(of.is_translated() ? "vfio" : "sysfs");
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

void require_own_group(function const& of) {
  for (std::string const& name : of.group_members()) {
    if (name == of.at().text()) continue;
    std::string const driver = function(address::parse(name), of.where()).driver();
    if (driver.empty() || driver == vfio_driver) continue;
    refuse(of, fmt::format("{} is in the same IOMMU group {}, and the driver {} has it: unbind that too", name,
                           of.iommu_group(), driver));
  }
}

open_file open_unused(function const& of, block_node const& node, manner how) {
  std::string const path = of.where().nodes + "/" + node.name;
  if (std::string const user = emulator::user_of_device(node.number, of.where().system); !user.empty()) {
    refuse(of, fmt::format("the system uses {}: {}; stop that first, or use another drive", path, user));
  }
  // Also if a device mapper, a file system on several devices, or a program has it.
  int const to_itself = how == manner::hold ? O_EXCL : 0;
  open_file file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | to_itself));
  struct stat about{};
  if (!file && errno == EBUSY) {
    refuse(of,
           path + " is in use, perhaps by a file system of another container; stop that first, or use another drive");
  }
  if (!file || ::fstat(file.get(), &about) != 0 || about.st_rdev != node.number) {
    refuse(of, fmt::format("{} cannot be looked at ({})", path, file ? "it is another device" : std::strerror(errno)));
  }
  return file;
}

std::string contents_of(block_node const& node, open_file const& device) {
  try {
    auto const found = emulator::signatures_on(device.get());
    return found.empty() ? "" : fmt::format("/dev/{} has a {}", node.name, found.front());
  } catch (operation_failed const& failed) {
    return fmt::format("/dev/{}: {}", node.name, failed.what());
  }
}

std::vector<open_file> check_use(function const& of, wanted_use const& use, manner how) {
  std::string const driver = of.driver();
  if (!driver.empty() && driver != "nvme" && !(driver == vfio_driver && use.how == way::vfio)) {
    refuse(of, fmt::format("the driver {} has it, so another program may use it; give it back to nvme first{}", driver,
                           driver == vfio_driver ? ", or use access=vfio" : ""));
  }
  std::vector<open_file> files;
  std::string found = "no driver of the system looks at it, so nobody knows what lies on it", name = "SERIAL";
  if (driver == "nvme") {
    std::vector<block_node> const nodes = settled_nodes(of, use.nsid, how);
    for (block_node const& node : nodes) files.push_back(open_unused(of, node, how));
    name = of.serial();
    if (!use.read_only && !use.allowed_serial.empty() && use.allowed_serial != name)
      refuse_serial(of, use.allowed_serial, name);
    found = use.read_only || !use.allowed_serial.empty() ? "" : first_contents(nodes, files);
  }
  if (!use.read_only && use.allowed_serial.empty() && !found.empty()) {
    refuse(of,
           fmt::format("{}, and a drive would overwrite it; to allow that, add allow_destroy={} to the URI, or open it "
                       "to read only",
                       found, name));
  }
  return files;
}

}  // namespace forebay::drive::pci
