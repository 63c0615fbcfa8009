// SPDX-License-Identifier: Apache-2.0
#include "support/qemu_scheme.hpp"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/scheme.hpp"
#include "forebay/error.hpp"

namespace forebay::test {

namespace {

std::vector<std::string> split(std::string const& text, char at) {
  std::vector<std::string> parts(1);
  for (char const c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// `WHAT[@SECTOR]:ERRNO[:once]`, joined by `+`.
std::vector<injected_error> parse_errors(std::string const& text) {
  std::vector<injected_error> all;
  for (std::string const& rule : split(text, '+')) {
    std::vector<std::string> const parts = split(rule, ':');
    if (parts.size() < 2 || parts.size() > 3 || (parts.size() == 3 && parts[2] != "once")) {
      throw refused_input("fail", rule, "give WHAT[@SECTOR]:ERRNO[:once], as in read@2048:5:once");
    }
    std::vector<std::string> const what = split(parts[0], '@');
    injected_error error{.iotype = what[0], .once = parts.size() == 3};
    if (what.size() > 1) error.sector = drive::parse_count("fail", what[1], 0, ~std::uint64_t{0});
    error.error = static_cast<int>(drive::parse_count("fail", parts[1], 1, 133));
    all.push_back(std::move(error));
  }
  return all;
}

qemu_options options_of(drive::uri const& from) {
  // Drives of one storage must differ in their serial numbers.
  static std::atomic<int> opened{0};
  qemu_options o;
  o.serial += "-" + std::to_string(++opened);
  auto const count = [&](char const* key, std::uint32_t least, std::uint32_t most, std::uint32_t& to) {
    if (auto const value = from.value(key))
      to = static_cast<std::uint32_t>(drive::parse_count(key, *value, least, most));
  };
  count("lba_bytes", 512, 4096, o.block_bytes);
  count("mdts", 0, 12, o.mdts);
  count("nsid", 1, 2, o.nsid);
  count("queues", 1, 255, o.io_queue_pairs);
  o.queue_entries_max = 64;
  count("depth", 2, 64, o.queue_entries_max);
  count("to", 1, 255, o.ready_timeout);
  if (auto const value = from.value("size")) o.drive_bytes = drive::parse_bytes("size", *value);
  if (o.block_bytes != 512 && o.block_bytes != 4096) {
    throw refused_input("lba_bytes", std::to_string(o.block_bytes), "give 512 or 4096");
  }
  if (o.drive_bytes == 0 || o.drive_bytes % o.block_bytes != 0) {
    throw refused_input("size", std::to_string(o.drive_bytes),
                        "give whole blocks of " + std::to_string(o.block_bytes) + " bytes");
  }
  if (auto const value = from.value("fail")) o.errors = parse_errors(*value);
  if (auto const value = from.value("hold")) o.breakpoints = drive::parse_count("hold", *value, 0, 1) == 1;
  return o;
}

/// What the drives of a process have in common. Thread-safe.
class open_machines {
 public:
  /// One RAM for all machines that are there at a time, so that memory of one drive has the same bus addresses for the
  /// others.
  std::shared_ptr<shared_memory> ram(qemu_options const& options) {
    std::lock_guard const lock(mutex_);
    auto ram = ram_.lock();
    if (!ram) ram_ = ram = qemu_nvme::make_ram(options);
    return ram;
  }
  void add(std::string const& name, qemu_nvme& machine) {
    std::lock_guard const lock(mutex_);
    if (!named_.emplace(name, &machine).second) {
      throw refused_input("as", name, "a drive that is open has this name; give another");
    }
  }
  void remove(std::string const& name) {
    std::lock_guard const lock(mutex_);
    named_.erase(name);
  }
  qemu_nvme& at(std::string const& name) const {
    std::lock_guard const lock(mutex_);
    return *named_.at(name);
  }

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<shared_memory> ram_;
  std::map<std::string, qemu_nvme*> named_;
};

open_machines& machines() {
  static open_machines all;
  return all;
}

class qemu_drive final : public drive::device {
 public:
  explicit qemu_drive(drive::uri const& from)
      : uri_(from.text()), name_(from.value("as").value_or("")), machine_(options_of(from), machines().ram({})) {
    if (!name_.empty()) machines().add(name_, machine_);
  }
  ~qemu_drive() override {
    if (!name_.empty()) machines().remove(name_);
  }

  driver::register_space& registers() override { return machine_.registers(); }
  driver::dma_space& dma() override { return machine_.dma(); }
  std::uint32_t nsid() const override { return machine_.options().nsid; }
  std::uint32_t most_queue_pairs() const override { return machine_.options().io_queue_pairs; }
  nlohmann::json report() override {
    std::lock_guard const lock(mutex_);
    qemu_traffic const now = last_traffic();
    return {{"uri", uri_},
            {"residency", "qemu " + machine_.version()},
            {"size_bytes", machine_.options().drive_bytes},
            {"lba_bytes", machine_.options().block_bytes},
            {"statistics",
             {{"read_commands", now.read_commands - before_.read_commands},
              {"write_commands", now.write_commands - before_.write_commands},
              {"bytes_read", now.bytes_read - before_.bytes_read},
              {"bytes_written", now.bytes_written - before_.bytes_written}}}};
  }
  void reset_statistics() override {
    std::lock_guard const lock(mutex_);
    before_ = last_traffic();
  }

 private:
  /// What QEMU counts, or what it counted before it was stopped or killed.
  qemu_traffic const& last_traffic() {
    if (machine_.answers()) last_ = machine_.traffic();
    return last_;
  }

  std::string const uri_;
  std::string const name_;
  qemu_nvme machine_;
  std::mutex mutex_;  ///< guards all below
  qemu_traffic before_;
  qemu_traffic last_;
};

}  // namespace

void add_qemu_scheme() {
  static std::once_flag once;
  std::call_once(once, [] {
    drive::add_scheme(
        "qemu", [](drive::uri const& from, drive::open_options const&) { return std::make_unique<qemu_drive>(from); },
        {.name = {}, .keys = {"size", "lba_bytes", "mdts", "nsid", "queues", "depth", "to", "fail", "hold", "as"}});
  });
}

qemu_nvme& opened_qemu(std::string const& name) {
  return machines().at(name);
}

std::string qemu_instead_of(std::string const& emulated, std::string const& keys) {
  constexpr std::string_view scheme = "emulated:";
  constexpr std::array<std::string_view, 6> of_speed = {
      "latency_us=", "iops=", "channels=", "threads=", "profile=", "seed="};
  if (!emulated.starts_with(scheme)) {
    throw refused_input("drive", emulated, "give the URI of an emulated drive");
  }
  add_qemu_scheme();
  std::string uri = "qemu:";
  for (std::string const& part : split(emulated.substr(scheme.size()), ',')) {
    bool kept = !part.empty();
    for (std::string_view const key : of_speed) kept = kept && !part.starts_with(key);
    if (kept) uri += (uri.back() == ':' ? "" : ",") + part;
  }
  if (uri.back() == ':' && !keys.empty()) return uri + keys.substr(1);
  return uri + keys;
}

}  // namespace forebay::test
