// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/profile.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#include "forebay/detail/drive/uri.hpp"
#include "forebay/error.hpp"
#include "profile_folders.hpp"

namespace forebay::drive {
namespace {

/// Each dot may nest what follows it a level deeper. The parser's stack grows with the levels, and so does the stack of
/// the code that walks its result. A profile of this library has 34 dots in 3 KiB.
constexpr std::size_t most_dots = 1000;
constexpr std::size_t most_bytes = 64 << 10;

std::string bounded_text(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    throw refused_input("profile", path, "cannot be read; give a file that this user can read");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most_bytes) {
    throw refused_input(
        "profile", path,
        fmt::format("is larger than {} bytes, the most that a profile may have; give a profile", most_bytes));
  }
  auto const dots = static_cast<std::size_t>(std::count(text.begin(), text.end(), '.'));
  if (dots > most_dots) {
    throw refused_input("profile", path,
                        fmt::format("has {} dots, and a profile may have at most {}; give a profile", dots, most_dots));
  }
  return text;
}

/// One profile file, read key by key; every refusal names the file and the line.
class reader {
 public:
  explicit reader(std::string const& path) : path_(path) {
    std::string const text = bounded_text(path);
    try {
      root_ = toml::parse(text, path);
    } catch (toml::parse_error const& error) {
      throw refused_input("profile", fmt::format("{}:{}", path, error.source().begin.line),
                          fmt::format("not valid TOML: {}", error.description()));
    }
  }

  toml::table const& root() const { return root_; }

  toml::table const& table(std::string_view name) const {
    toml::node const* const node = root_.get(name);
    if (node == nullptr) refuse(root_, fmt::format("add the table [{}]", name));
    if (!node->is_table()) refuse(*node, fmt::format("{} must be a table", name));
    return *node->as_table();
  }

  std::string text(toml::table const& from, std::string_view key) const {
    toml::node const* const node = from.get(key);
    if (node == nullptr) refuse(from, fmt::format("add {} = \"...\"", key));
    auto const value = node->value_exact<std::string>();
    if (!value || value->empty()) refuse(*node, fmt::format("{} must be a string that is not empty", key));
    return *value;
  }

  /// A `{ value = number, source = "..." }` from `least` to `most`.
  double number(std::string_view table_name, std::string_view key, double least, double most, profile& into) const {
    toml::table const& from = table(table_name);
    toml::node const* const node = from.get(key);
    if (node == nullptr)
      refuse(from, fmt::format("add {} = {{ value = ..., source = \"...\" }} to [{}]", key, table_name));
    if (!node->is_table())
      refuse(*node,
             fmt::format("{0} must have a value and its source; write {0} = {{ value = ..., source = \"...\" }}", key));
    toml::table const& entry = *node->as_table();
    only(entry, {"value", "source"});
    toml::node const* const value = entry.get("value");
    if (value == nullptr || !value->is_number()) refuse(entry, fmt::format("{} needs a value that is a number", key));
    // An integer that no double equals is refused: it has no value as a double.
    double const found =
        value->is_integer() ? static_cast<double>(value->as_integer()->get()) : *value->value<double>();
    if (!(found >= least && found <= most)) {
      refuse(*value, fmt::format("{} must lie between {} and {}", key, least, most));
    }
    into.sources.emplace_back(fmt::format("{}.{}", table_name, key), text(entry, "source"));
    return found;
  }

  std::uint32_t whole(std::string_view table_name, std::string_view key, double least, double most,
                      profile& into) const {
    double const found = number(table_name, key, least, most, into);
    if (found != std::floor(found)) refuse(*table(table_name).get(key), fmt::format("{} must be a whole number", key));
    return static_cast<std::uint32_t>(found);
  }

  /// Refuses any key of `table` that is not in `known`.
  void only(toml::table const& table, std::initializer_list<std::string_view> known) const {
    for (auto const& [key, node] : table) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      refuse(node, fmt::format("unknown key {}; did you mean {}?", key.str(), nearest(key.str(), known)));
    }
  }

  [[noreturn]] void refuse(toml::node const& where, std::string const& remedy) const {
    throw refused_input("profile", fmt::format("{}:{}", path_, std::max(where.source().begin.line, 1u)), remedy);
  }

 private:
  std::string path_;
  toml::table root_;
};

emulator::operation_cost read_cost(reader const& file, std::string_view table, profile& into) {
  emulator::operation_cost cost;
  cost.per_command_ps =
      static_cast<std::uint64_t>(std::llround(file.number(table, "per_command_ns", 0, 1e9, into) * 1e3));
  if (table != "other") {
    file.only(file.table(table), {"per_command_ns", "per_byte_ns", "granule_bytes", "latency_min_us"});
    cost.per_byte_fs = static_cast<std::uint64_t>(std::llround(file.number(table, "per_byte_ns", 0, 1e6, into) * 1e6));
    cost.granule_bytes = file.whole(table, "granule_bytes", 1, 1 << 20, into);
  } else {
    file.only(file.table(table), {"per_command_ns", "latency_min_us"});
  }
  cost.latency_min_ps =
      static_cast<std::uint64_t>(std::llround(file.number(table, "latency_min_us", 0, 3.6e9, into) * 1e6));
  return cost;
}

emulator::flash_parameters read_flash(reader const& file, profile& into) {
  toml::table const& table = file.table("flash");
  file.only(table, {"channels", "dies_per_channel", "page_bytes", "read_bytes", "program_bytes", "block_bytes",
                    "read_us", "program_us", "erase_us", "per_byte_ns", "buffer_bytes", "spare_percent"});
  auto const whole = [&](std::string_view key, double least, double most) {
    return file.whole("flash", key, least, most, into);
  };
  auto const scaled = [&](std::string_view key, double least, double most, double scale) {
    return static_cast<std::uint64_t>(std::llround(file.number("flash", key, least, most, into) * scale));
  };
  emulator::flash_parameters flash;
  flash.channels = whole("channels", 1, 64);
  flash.dies_per_channel = whole("dies_per_channel", 1, 64);
  flash.page_bytes = whole("page_bytes", 512, 1 << 20);
  flash.read_bytes = whole("read_bytes", 512, 1 << 24);
  flash.program_bytes = whole("program_bytes", 512, 1 << 24);
  flash.block_bytes = whole("block_bytes", 1024, 1 << 30);
  flash.read_ps = scaled("read_us", 0, 1e6, 1e6);
  flash.program_ps = scaled("program_us", 0, 1e6, 1e6);
  flash.erase_ps = scaled("erase_us", 0, 1e6, 1e6);
  flash.channel_byte_fs = scaled("per_byte_ns", 0, 1e3, 1e6);
  flash.buffer_bytes = whole("buffer_bytes", 512, 0xffff'ffff);
  flash.spare_ppm = static_cast<std::uint32_t>(scaled("spare_percent", 1, 400, 1e4));
  auto const multiple = [&](char const* key, std::uint64_t value, std::uint64_t of, std::string const& what) {
    if (value % of != 0) file.refuse(*table.get(key), fmt::format("{} must be a multiple of {}", key, what));
  };
  multiple("read_bytes", flash.read_bytes, flash.page_bytes, "page_bytes");
  multiple("program_bytes", flash.program_bytes, flash.read_bytes, "read_bytes");
  multiple("block_bytes", flash.block_bytes, flash.program_bytes, "program_bytes");
  if (flash.block_bytes / flash.program_bytes < 2) {
    file.refuse(*table.get("block_bytes"), "block_bytes must be at least twice program_bytes");
  }
  std::uint64_t const least = std::uint64_t{flash.channels} * flash.dies_per_channel * flash.program_bytes;
  if (flash.buffer_bytes < least) {
    file.refuse(*table.get("buffer_bytes"),
                fmt::format("buffer_bytes must hold a program of each die, which takes {}", least));
  }
  return flash;
}

}  // namespace

profile load_profile(std::string const& path) {
  reader const file(path);
  file.only(file.root(), {"name", "description", "read", "write", "other", "geometry", "flash"});
  profile result;
  result.name = file.text(file.root(), "name");
  result.description = file.text(file.root(), "description");
  result.timing.read = read_cost(file, "read", result);
  result.timing.write = read_cost(file, "write", result);
  result.timing.other = read_cost(file, "other", result);
  toml::table const& geometry = file.table("geometry");
  file.only(geometry, {"channels", "channel_stride_bytes", "lba_bytes", "jitter_us"});
  result.timing.channels = file.whole("geometry", "channels", 1, emulator::timing_parameters::max_channels, result);
  result.timing.channel_stride_bytes = file.whole("geometry", "channel_stride_bytes", 512, 1 << 30, result);
  result.lba_bytes = file.whole("geometry", "lba_bytes", 512, 4096, result);
  if (!std::has_single_bit(result.lba_bytes))
    file.refuse(*geometry.get("lba_bytes"), "lba_bytes must be a power of two");
  if (geometry.contains("jitter_us")) {
    result.timing.jitter_ps =
        static_cast<std::uint64_t>(std::llround(file.number("geometry", "jitter_us", 0, 1e6, result) * 1e6));
  }
  if (file.root().contains("flash")) result.timing.flash = read_flash(file, result);
  return result;
}

std::vector<std::string> profile_folders() {
  std::vector<std::string> folders;
  if (char const* const folder = std::getenv("FOREBAY_PROFILE_DIR"); folder != nullptr && *folder != '\0') {
    folders.emplace_back(folder);
  }
  for (char const* const* folder = known_profile_folders; *folder != nullptr; ++folder) folders.emplace_back(*folder);
  return folders;
}

profile find_profile(std::string const& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (name.find('/') != std::string::npos || name.ends_with(".toml")) {
    if (!fs::is_regular_file(name, error))
      throw refused_input("profile", name, "there is no such file; give a path to a .toml file");
    return load_profile(name);
  }
  std::vector<std::string> known;
  for (std::string const& folder : profile_folders()) {
    fs::path const candidate = fs::path(folder) / (name + ".toml");
    if (!name.empty() && fs::is_regular_file(candidate, error)) return load_profile(candidate.string());
    for (auto const& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".toml") known.push_back(entry.path().stem().string());
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  throw refused_input("profile", name,
                      known.empty()
                          ? fmt::format("found no profiles in {}", fmt::join(profile_folders(), ", "))
                          : fmt::format("there are {}; a path to a .toml file will do too", fmt::join(known, ", ")));
}

}  // namespace forebay::drive
