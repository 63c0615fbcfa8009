// SPDX-License-Identifier: Apache-2.0
#include "function.hpp"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "forebay/error.hpp"

namespace forebay::drive::pci {
namespace {

namespace fs = std::filesystem;

/// The last part of what a link names; empty where there is none.
std::string target_of(fs::path const& link) {
  std::error_code none;
  return fs::read_symlink(link, none).filename().string();
}

/// The names in a folder, sorted; none where it is missing.
std::vector<std::string> names_in(fs::path const& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (auto const& entry : fs::directory_iterator(folder, none)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string first_line(fs::path const& file) {
  std::ifstream from(file);
  std::string line;
  std::getline(from, line);
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

/// `nvme0c1n2`, a hidden path to a namespace, is `nvme0n2` for its users.
std::string visible_name(std::string const& name) {
  std::size_t const c = name.find('c');
  std::size_t const n = name.rfind('n');
  return c == std::string::npos ? name : name.substr(0, c) + name.substr(n);
}

constexpr std::uint32_t bridge_class = 0x06;

}  // namespace

places places::below(std::string const& root) {
  places moved;
  for (std::string* const place : {&moved.buses, &moved.blocks, &moved.nodes, &moved.locks, &moved.system.mounts,
                                   &moved.system.swaps, &moved.system.devices, &moved.system.names}) {
    *place = root + *place;
  }
  return moved;
}

function::function(address const& at, places where)
    : at_(at), where_(std::move(where)), folder_(where_.buses + "/devices/" + at.text()) {
  std::error_code none;
  if (fs::is_directory(folder_, none)) return;
  throw refused_input("drive", "pci:" + at_.text(),
                      "there is no PCI device at this address; lspci -D lists those there are");
}

std::string function::line(std::string const& file) const {
  return first_line(folder_ + "/" + file);
}

std::uint32_t function::number(std::string const& file) const {
  std::string const text = line(file);
  std::uint32_t value = 0;
  if (text.starts_with("0x")) std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  return value;
}

std::string function::driver() const {
  return target_of(folder_ + "/driver");
}

std::string function::iommu_group() const {
  return target_of(folder_ + "/iommu_group");
}

std::vector<std::string> function::group_members() const {
  std::vector<std::string> members = names_in(folder_ + "/iommu_group/devices");
  std::erase_if(members, [this](std::string const& name) {
    std::string const text = first_line(where_.buses + "/devices/" + name + "/class");
    std::uint32_t code = 0;
    if (text.starts_with("0x")) std::from_chars(text.data() + 2, text.data() + text.size(), code, 16);
    return code >> 16 == bridge_class;
  });
  return members;
}

bool function::is_translated() const {
  return !iommu_group().empty() && line("iommu_group/type") != "identity";
}

std::uint64_t function::bar0_bytes() const {
  std::uint64_t first = 0, last = 0;
  if (std::sscanf(line("resource").c_str(), "%lx %lx", &first, &last) != 2 || last <= first) return 0;
  return last - first + 1;
}

std::vector<std::string> function::controllers() const {
  return names_in(folder_ + "/nvme");
}

std::string function::controller_line(std::string const& file) const {
  for (std::string const& name : controllers()) return line("nvme/" + name + "/" + file);
  return {};
}

std::vector<block_node> function::block_nodes() const {
  std::vector<block_node> nodes;
  for (std::string const& controller : controllers()) {
    for (std::string const& name : names_in(folder_ + "/nvme/" + controller)) {
      if (!name.starts_with("nvme")) continue;
      std::string const visible = visible_name(name);
      unsigned major = 0, minor = 0;
      std::string const number = first_line(where_.blocks + "/" + visible + "/dev");
      if (std::sscanf(number.c_str(), "%u:%u", &major, &minor) == 2) {
        std::uint32_t nsid = 0;
        std::string const id = first_line(where_.blocks + "/" + visible + "/nsid");
        std::from_chars(id.data(), id.data() + id.size(), nsid);
        nodes.push_back({visible, makedev(major, minor), nsid});
      }
    }
  }
  return nodes;
}

std::vector<std::string> function::path() const {
  std::error_code none;
  std::vector<std::string> names;
  for (fs::path const& part : fs::canonical(folder_, none)) {
    std::string const name = part.string();
    bool const is_host_bridge = name.starts_with("pci") && name.find(':') != std::string::npos;
    if (is_host_bridge || !names.empty()) names.push_back(name);
  }
  if (!names.empty()) names.pop_back();  // itself
  return names;
}

}  // namespace forebay::drive::pci
