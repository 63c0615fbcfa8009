// SPDX-License-Identifier: Apache-2.0
#include "block_device.hpp"

#include <blkid/blkid.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>

#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

namespace fs = std::filesystem;

std::string number_of(dev_t device) {
  return std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

/// The first line of a file, without the spaces at its end; empty where there is none.
std::string line_of(fs::path const& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

/// What a folder holds; nothing where it is missing.
std::vector<fs::path> entries_of(fs::path const& folder) {
  std::error_code error;
  std::vector<fs::path> all;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    all.push_back(at->path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// The system's tables write a space, a tab, a line's end and a backslash as three octal digits.
std::string unescaped(std::string const& text) {
  std::string plain;
  auto const is_octal = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && is_octal(i + 1) && is_octal(i + 2) && is_octal(i + 3)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// A device and where the system tells of it.
struct known_device {
  std::string number;
  fs::path folder;
};

/// The device, its partitions, and the device that it is a partition of: exclusive use of one excludes the others.
std::vector<known_device> kin_of(dev_t device, device_places const& places) {
  std::string const number = number_of(device);
  std::vector<known_device> all = {{number, fs::path(places.devices) / number}};
  std::error_code error;
  fs::path const folder = fs::canonical(all[0].folder, error);
  if (error) return all;
  if (fs::exists(folder / "partition", error)) {
    fs::path const whole = folder.parent_path();
    all.push_back({line_of(whole / "dev"), whole});
  }
  for (fs::path const& below : entries_of(folder)) {
    if (fs::exists(below / "partition", error)) all.push_back({line_of(below / "dev"), below});
  }
  return all;
}

/// Whether `file` is one of the devices.
bool is_one_of(std::string const& file, std::vector<known_device> const& devices) {
  struct stat about{};
  if (::stat(file.c_str(), &about) != 0 || !S_ISBLK(about.st_mode)) return false;
  std::string const number = number_of(about.st_rdev);
  return std::any_of(devices.begin(), devices.end(), [&](known_device const& d) { return d.number == number; });
}

std::string mount_point_of(std::vector<known_device> const& devices, std::string const& table) {
  std::ifstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, parent, number, root, point, word, type, source;
    words >> id >> parent >> number >> root >> point;
    while (words >> word && word != "-") {
    }
    words >> type >> source;
    bool const same =
        std::any_of(devices.begin(), devices.end(), [&](known_device const& d) { return d.number == number; });
    // A file system over several devices has a number of its own.
    if (same || is_one_of(unescaped(source), devices)) return unescaped(point);
  }
  return {};
}

bool is_swap(std::vector<known_device> const& devices, std::string const& table) {
  std::ifstream lines(table);
  std::string line;
  std::getline(lines, line);  // the heads of the columns
  while (std::getline(lines, line)) {
    if (is_one_of(unescaped(line.substr(0, line.find_first_of(" \t"))), devices)) return true;
  }
  return false;
}

std::string holder_of(std::vector<known_device> const& devices) {
  for (known_device const& d : devices) {
    for (fs::path const& holder : entries_of(d.folder / "holders")) {
      std::string const name = line_of(holder / "dm" / "name");
      return holder.filename().string() + (name.empty() ? "" : " (" + name + ")");
    }
  }
  return {};
}

std::string value_of(blkid_probe probe, char const* name) {
  char const* value = nullptr;
  return blkid_probe_lookup_value(probe, name, &value, nullptr) == 0 && value != nullptr ? value : "";
}

std::string describe(blkid_probe probe) {
  if (std::string const table = value_of(probe, "PTTYPE"); !table.empty()) return table + " partition table";
  std::string const type = value_of(probe, "TYPE"), usage = value_of(probe, "USAGE");
  if (usage == "filesystem") return type + " file system";
  if (usage == "crypto") return type + " encrypted volume";
  if (usage == "raid") return type + " part of a larger volume";
  return type.empty() ? "something of an unknown kind" : type;
}

}  // namespace

bool is_block_device(std::string const& path) {
  struct stat about{};
  return ::stat(path.c_str(), &about) == 0 && S_ISBLK(about.st_mode);
}

device_shape shape_of_device(int fd) {
  device_shape shape;
  int block_bytes = 0, is_protected = 0;
  if (::ioctl(fd, BLKGETSIZE64, &shape.bytes) != 0 || ::ioctl(fd, BLKSSZGET, &block_bytes) != 0 ||
      ::ioctl(fd, BLKROGET, &is_protected) != 0) {
    throw operation_failed(std::string("the size of a block device cannot be found out: ") + std::strerror(errno));
  }
  shape.block_bytes = static_cast<std::uint32_t>(block_bytes);
  shape.is_protected = is_protected != 0;
  return shape;
}

std::string user_of_device(dev_t device, device_places const& places) {
  std::vector<known_device> const all = kin_of(device, places);
  if (std::string const point = mount_point_of(all, places.mounts); !point.empty()) return "it is mounted at " + point;
  if (is_swap(all, places.swaps)) return "it is swap space";
  if (std::string const holder = holder_of(all); !holder.empty()) return "it is held by " + holder;
  return {};
}

std::vector<std::string> signatures_on(int fd) {
  std::unique_ptr<blkid_struct_probe, decltype(&blkid_free_probe)> const owned(blkid_new_probe(), &blkid_free_probe);
  blkid_probe const probe = owned.get();
  auto const require = [](bool good) {
    if (!good) throw operation_failed("parts of it cannot be read");
  };
  require(probe != nullptr && blkid_probe_set_device(probe, fd, 0, 0) == 0);
  // What is damaged counts too: its owner may still want to repair it.
  blkid_probe_enable_superblocks(probe, 1);
  blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_BADCSUM);
  blkid_probe_enable_partitions(probe, 1);
  blkid_probe_set_partitions_flags(probe, BLKID_PARTS_FORCE_GPT);
  std::vector<std::string> found;
  int result = 0;
  while ((result = blkid_do_probe(probe)) == 0) {
    std::string const what = describe(probe);
    if (std::find(found.begin(), found.end(), what) == found.end()) found.push_back(what);
  }
  require(result > 0);
  return found;
}

bool device_has_name(dev_t device, std::string const& name, device_places const& places) {
  if (name.empty()) return false;
  std::string const number = number_of(device);
  fs::path const folder = fs::path(places.devices) / number;
  for (char const* file : {"serial", "wwid", "device/serial", "device/wwid"}) {
    if (line_of(folder / file) == name) return true;
  }
  if (name.find('/') != std::string::npos) return false;
  std::vector<known_device> const only = {{number, folder}};
  fs::path const links = places.names;
  return is_one_of(links / name, only) || is_one_of(links / ("wwn-" + name), only);
}

}  // namespace forebay::emulator
