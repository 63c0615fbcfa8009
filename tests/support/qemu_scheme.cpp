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
#include "forebay/detail/nvme/command.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

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

/// What fits a page of scattered memory, and what `deep_queue_space` is for.
constexpr std::uint32_t usual_depth = 64, most_depth = 1024;

qemu_options options_of(drive::uri const& from, memory::resource& client_memory) {
  // Drives of one storage must differ in their serial numbers.
  static std::atomic<int> opened{0};
  qemu_options o;
  o.client_memory = &client_memory;
  o.serial += "-" + std::to_string(++opened);
  auto const count = [&](char const* key, std::uint32_t least, std::uint32_t most, std::uint32_t& to) {
    if (auto const value = from.value(key))
      to = static_cast<std::uint32_t>(drive::parse_count(key, *value, least, most));
  };
  count("lba_bytes", 512, 4096, o.block_bytes);
  count("mdts", 0, 12, o.mdts);
  count("nsid", 1, 2, o.nsid);
  count("queues", 1, 255, o.io_queue_pairs);
  o.queue_entries_max = usual_depth;
  count("depth", 2, most_depth, o.queue_entries_max);
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
  /// One RAM for all machines of GPUs that are there at a time, and one for all others, so that memory of one drive has
  /// the same bus addresses for the others of its storage.
  std::shared_ptr<shared_memory> ram(memory::resource& client_memory) {
    std::lock_guard const lock(mutex_);
    std::weak_ptr<shared_memory>& known = ram_[client_memory.kind()];
    auto ram = known.lock();
    if (!ram) known = ram = qemu_nvme::make_ram({.client_memory = &client_memory});
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
  std::map<memory::kind, std::weak_ptr<shared_memory>> ram_;
  std::map<std::string, qemu_nvme*> named_;
};

open_machines& machines() {
  static open_machines all;
  return all;
}

/// The RAM for a drive whose rings may be longer than a page: what may be a ring follows itself on the bus. All else is
/// scattered.
class deep_queue_space final : public driver::dma_space {
 public:
  explicit deep_queue_space(shared_memory& ram) : ram_(ram) {}
  void* allocate(std::size_t bytes) override {
    return bytes <= most_ring_bytes ? ram_.allocate_contiguous(bytes) : ram_.allocate(bytes);
  }
  void deallocate(void* address) noexcept override { ram_.deallocate(address); }
  void map(void* address, std::size_t bytes) override { ram_.map(address, bytes); }
  void unmap(void* address, std::size_t bytes) override { ram_.unmap(address, bytes); }
  std::uint64_t bus_address(void const* address) const override { return ram_.bus_address(address); }
  std::size_t page_bytes() const override { return ram_.page_bytes(); }

 private:
  static constexpr std::size_t most_ring_bytes = most_depth * sizeof(nvme::submission_entry);
  shared_memory& ram_;
};

class qemu_drive final : public drive::device {
 public:
  qemu_drive(drive::uri const& from, memory::resource& client_memory)
      : uri_(from.text()),
        name_(from.value("as").value_or("")),
        machine_(options_of(from, client_memory), machines().ram(client_memory)),
        deep_queues_(machine_.dma()) {
    if (!name_.empty()) machines().add(name_, machine_);
  }
  ~qemu_drive() override {
    if (!name_.empty()) machines().remove(name_);
  }

  driver::register_space& registers() override { return machine_.registers(); }
  driver::dma_space& dma() override {
    if (machine_.options().queue_entries_max > usual_depth) return deep_queues_;
    return machine_.dma();
  }
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
  deep_queue_space deep_queues_;
  std::mutex mutex_;  ///< guards all below
  qemu_traffic before_;
  qemu_traffic last_;
};

}  // namespace

void add_qemu_scheme() {
  static std::once_flag once;
  std::call_once(once, [] {
    drive::add_scheme(
        "qemu",
        [](drive::uri const& from, drive::open_options const& options) {
          return std::make_unique<qemu_drive>(from, *options.client_memory);
        },
        {.name = {}, .keys = {"size", "lba_bytes", "mdts", "nsid", "queues", "depth", "to", "fail", "hold", "as"}});
  });
}

qemu_nvme& opened_qemu(std::string const& name) {
  return machines().at(name);
}

qemu_traffic traffic_in(std::string const& report) {
  nlohmann::json const counted = nlohmann::json::parse(report).at("drives").at(0).at("statistics");
  return {counted.at("read_commands"), counted.at("write_commands"), counted.at("bytes_read"),
          counted.at("bytes_written")};
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
