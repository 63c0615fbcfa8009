// SPDX-License-Identifier: Apache-2.0
#include "inspection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "../open_file.hpp"
#include "access.hpp"
#include "checks.hpp"
#include "forebay/error.hpp"
#include "quirks.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint32_t display_class = 0x03, nvidia = 0x10de;
constexpr std::uint32_t sector_bytes = 512;  // in which the system counts the size of every block device

/// Text, or null where the system says nothing.
json text_or_null(std::string const& text) {
  return text.empty() ? json() : json(text);
}

/// What `call` is refused for; null if it is not.
template <class Call>
json refusal_of(Call const& call) {
  try {
    call();
    return nullptr;
  } catch (refused_input const& refused) {
    return refused.what();
  } catch (operation_failed const& failed) {
    return failed.what();
  }
}

/// The number at the beginning of a text, as in `8.0 GT/s PCIe`.
json number_in(std::string const& text) {
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? json(value) : json();
}

json link_of(function const& of) {
  return {{"speed_gt_s", number_in(of.line("current_link_speed"))},
          {"speed_max_gt_s", number_in(of.line("max_link_speed"))},
          {"width", number_in(of.line("current_link_width"))},
          {"width_max", number_in(of.line("max_link_width"))}};
}

/// PCI Express Base Specification 6.0, sections 7.6.3 and 7.7.11.
namespace extended_configuration {
constexpr std::size_t first = 0x100, bytes = 0x1000;
constexpr std::uint32_t access_control = 0x0d;
constexpr std::size_t control_offset = 6;
constexpr std::uint32_t redirect_requests = 1u << 2, redirect_completions = 1u << 3;
}  // namespace extended_configuration

/// Whether a bridge sends what one device below it writes to another up to the processor instead (Access Control
/// Services): `on`, `off`, `none`, or `unknown` where this process may not read that.
std::string access_control_of(function const& bridge) {
  using namespace extended_configuration;
  // To read it would wake the bridge.
  if (bridge.line("power/runtime_status") == "suspended") return "unknown";
  std::array<unsigned char, bytes> all{};
  open_file const file(::open((bridge.folder() + "/config").c_str(), O_RDONLY | O_CLOEXEC));
  ssize_t const read = file ? ::pread(file.get(), all.data(), all.size(), 0) : -1;
  // The system hides what lies behind the first 64 bytes from all but root. A device of PCI has no more than 256.
  if (read < static_cast<ssize_t>(first)) return "unknown";
  if (read < static_cast<ssize_t>(bytes)) return "none";
  auto const at = [&](std::size_t offset, std::size_t count) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value |= static_cast<std::uint32_t>(all[offset + i]) << (8 * i);
    return value;
  };
  // Each has four bytes at least, so more steps than that are a loop.
  std::size_t offset = first;
  for (std::size_t steps = 0; offset >= first && offset + 8 <= bytes && steps < bytes / 4; ++steps) {
    std::uint32_t const header = at(offset, 4);
    if ((header & 0xffff) == access_control) {
      return (at(offset + control_offset, 2) & (redirect_requests | redirect_completions)) != 0 ? "on" : "off";
    }
    offset = header >> 20;
  }
  return "none";
}

/// The bridges above a function, from the processor down.
json bridges_of(function const& of) {
  json all = json::array();
  std::vector<std::string> const path = of.path();
  for (std::size_t i = 1; i < path.size(); ++i) {
    json one = {{"address", path[i]}, {"access_control", "unknown"}};
    try {
      one["access_control"] = access_control_of(function(address::parse(path[i]), of.where()));
    } catch (refused_input const&) {
      // A bridge without an address on the bus.
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<function> functions(places const& where) {
  std::vector<std::string> names;
  std::error_code none;
  for (auto const& entry : fs::directory_iterator(where.buses + "/devices", none)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<function> all;
  for (std::string const& name : names) all.emplace_back(address::parse(name), where);
  return all;
}

std::vector<function> gpus(places const& where) {
  std::vector<function> all;
  for (function const& one : functions(where)) {
    if (one.vendor() == nvidia && one.number("class") >> 16 == display_class) all.push_back(one);
  }
  return all;
}

/// What two functions have in common on their way to the processor. `switch`: data between them need not go further
/// than the switch below `at`. `root port`: both are below one. `host bridge`: below different ports of one. `nothing`.
json common_of(function const& of, function const& other) {
  std::vector<std::string> const one = of.path(), two = other.path();
  std::size_t same = 0;
  while (same < one.size() && same < two.size() && one[same] == two[same]) ++same;
  constexpr std::array<char const*, 3> kinds = {"nothing", "host bridge", "root port"};
  return {{"gpu", other.at().text()},
          {"common", same < kinds.size() ? kinds[same] : "switch"},
          {"at", same == 0 ? json() : json(one[same - 1])}};
}

json group_of(function const& of) {
  json members = json::array();
  for (std::string const& name : of.group_members()) {
    if (name == of.at().text()) continue;
    members.push_back(
        {{"address", name}, {"driver", text_or_null(function(address::parse(name), of.where()).driver())}});
  }
  return {{"group", text_or_null(of.iommu_group())},
          {"type", text_or_null(of.line("iommu_group/type"))},
          {"translated", of.is_translated()},
          {"others", std::move(members)}};
}

/// Of a number that a file of the system has as text.
std::uint64_t count_in(fs::path const& file) {
  std::ifstream from(file);
  std::uint64_t value = 0;
  from >> value;
  return value;
}

json namespace_of(function const& of, block_node const& node) {
  fs::path const folder = fs::path(of.where().blocks) / node.name;
  json one = {{"device", "/dev/" + node.name},
              {"nsid", node.nsid},
              {"size_bytes", count_in(folder / "size") * sector_bytes},
              {"block_bytes", count_in(folder / "queue/logical_block_size")},
              {"used_by", text_or_null(emulator::user_of_device(node.number, of.where().system))},
              {"contents", nullptr},
              {"contents_unknown", nullptr}};
  open_file const device(::open((of.where().nodes + "/" + node.name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!device) {
    int const error = errno;
    one["contents_unknown"] =
        fmt::format("{}{}", std::strerror(error), error == EACCES ? "; run as root to look for data" : "");
    return one;
  }
  try {
    one["contents"] = emulator::signatures_on(device.get());
  } catch (operation_failed const& failed) {
    one["contents_unknown"] = failed.what();
  }
  return one;
}

json power_of(function const& of) {
  std::string const allowed = of.line("d3cold_allowed");
  return {{"state", text_or_null(of.line("power_state"))},
          {"runtime_status", text_or_null(of.line("power/runtime_status"))},
          {"control", text_or_null(of.line("power/control"))},
          {"d3cold_allowed", allowed.empty() ? json() : json(allowed == "1")}};
}

/// Whether a process has taken the function, which it shows by a lock on its configuration. To try the lock would keep
/// others from it for a moment.
bool is_locked(function const& of) {
  struct stat about{};
  if (::stat((of.folder() + "/config").c_str(), &about) != 0) return false;
  std::string const id = fmt::format(" {:02x}:{:02x}:{} ", major(about.st_dev), minor(about.st_dev), about.st_ino);
  std::ifstream locks(of.where().locks);
  for (std::string line; std::getline(locks, line);) {
    if (line.find("FLOCK") != std::string::npos && line.find(id) != std::string::npos) return true;
  }
  return false;
}

/// The checks of `open`, in its order, as far as they change nothing.
void look(uri const& from, function const& of, bool read_only) {
  way const how = way_of(from.value("access"), of);
  bool const locked = is_locked(of);
  if (how == way::vfio) {
    require_own_group(of);
    look_for_vfio(of, locked);
  } else {
    require_sysfs();
  }
  if (locked) refuse_taken(of);
  auto const nsid = from.value("nsid");
  (void)check_use(of,
                  {.nsid = nsid ? static_cast<std::uint32_t>(parse_count("nsid", *nsid, 1, 0xffff'fffe)) : 1,
                   .read_only = read_only,
                   .allowed_serial = from.value("allow_destroy").value_or(""),
                   .how = how},
                  manner::look);
}

json inspect(uri const& from, function const& of, std::span<function const> with) {
  json namespaces = json::array(), near = json::array();
  for (block_node const& node : of.block_nodes()) namespaces.push_back(namespace_of(of, node));
  for (function const& gpu : with) near.push_back(common_of(of, gpu));
  json access;
  (void)refusal_of([&] { access = way_of(from.value("access"), of) == way::vfio ? "vfio" : "sysfs"; });
  std::string const node = of.line("numa_node");
  return {
      {"uri", from.text()},
      {"address", of.at().text()},
      {"vendor", fmt::format("{:#06x}", of.vendor())},
      {"device", fmt::format("{:#06x}", of.device())},
      {"quirks", describe(quirks_of(of.vendor(), of.device()))},
      {"driver", text_or_null(of.driver())},
      {"driver_override", of.line("driver_override") == "(null)" ? json() : text_or_null(of.line("driver_override"))},
      {"serial", text_or_null(of.serial())},
      {"model", text_or_null(of.controller_line("model"))},
      {"firmware", text_or_null(of.controller_line("firmware_rev"))},
      {"state", text_or_null(of.controller_line("state"))},
      {"namespaces", std::move(namespaces)},
      {"numa_node", node.empty() || node == "-1" ? json() : number_in(node)},
      {"link", link_of(of)},
      {"iommu", group_of(of)},
      {"power", power_of(of)},
      {"bridges", bridges_of(of)},
      {"gpus", std::move(near)},
      {"access", std::move(access)},
      {"refused",
       {{"read", refusal_of([&] { look(from, of, true); })}, {"write", refusal_of([&] { look(from, of, false); })}}}};
}

}  // namespace

json inspect(uri const& from, places const& where) {
  function const of(address::parse(from.name()), where);
  require_nvme(of);
  return inspect(from, of, gpus(where));
}

json inspect_all(places const& where) {
  json drives = json::array(), others = json::array();
  std::vector<function> const displays = gpus(where);
  for (function const& one : functions(where)) {
    if (one.is_nvme()) drives.push_back(inspect(uri::parse("pci:" + one.at().text()), one, displays));
  }
  for (function const& gpu : displays) {
    others.push_back({{"address", gpu.at().text()},
                      {"vendor", fmt::format("{:#06x}", gpu.vendor())},
                      {"driver", text_or_null(gpu.driver())},
                      {"link", link_of(gpu)},
                      {"bridges", bridges_of(gpu)}});
  }
  return {{"drives", std::move(drives)}, {"gpus", std::move(others)}};
}

}  // namespace forebay::drive::pci
