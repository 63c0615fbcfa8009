// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/drive.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "emulated_drive.hpp"
#include "forebay/detail/drive/profile.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/emulator/link.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/error.hpp"
#include "served/served_device.hpp"

namespace forebay::drive {
namespace {

/// What the keys of an `emulated:` or `file:` URI come to.
struct specification {
  std::string uri;
  profile timing_of;
  std::string backing = "memory";
  std::string path;
  std::uint64_t size_bytes = 0;  ///< 0: the file's
  std::uint32_t lba_bytes = 512;
  std::uint32_t queues = 128;
  std::uint32_t threads = 1;
  std::uint32_t errors_ppm = 0;
  std::uint32_t sms = 0;
  std::optional<emulator::gpu_residency> gpu;
  std::string residency;
  std::string link;
  bool moves_data = true;
};

/// Of an engine on a GPU, where the URI does not say.
constexpr std::uint32_t usual_sms = 32;
/// I/O queue pairs, likewise, and of each multiprocessor.
constexpr std::uint32_t usual_gpu_queues = 1024;
constexpr std::uint32_t usual_queues_of_sm = 128;

constexpr std::pair<char const*, emulator::preconditioning> preconditionings[] = {
    {"fresh", emulator::preconditioning::fresh},
    {"full", emulator::preconditioning::full},
    {"random", emulator::preconditioning::random}};

std::uint32_t small_count(uri const& from, char const* key, std::uint32_t otherwise, std::uint32_t least,
                          std::uint32_t most) {
  auto const value = from.value(key);
  return value ? static_cast<std::uint32_t>(parse_count(key, *value, least, most)) : otherwise;
}

/// Where the engine and the bytes of a drive are, from `backing` and `residency`, which must fit each other.
void place(uri const& from, specification& what, int client_gpu) {
  std::string const& backing = what.backing;
  if (backing == "hbm" || backing == "host") {
    what.gpu = emulator::gpu_residency{.ordinal = client_gpu};
  } else if (backing.starts_with("peer:")) {
    auto const ordinal = static_cast<int>(parse_count("backing", backing.substr(5), 0, 1023));
    what.gpu = emulator::gpu_residency{.ordinal = ordinal, .stays = true};
  } else if (backing == "file" && from.value("residency") == "in_process") {
    what.gpu = emulator::gpu_residency{.ordinal = client_gpu};
  } else if (backing != "memory" && backing != "file") {
    throw refused_input("backing", backing, "use memory, file, hbm, host or peer:N");
  }
  std::string const usual = !what.gpu ? "threads" : what.gpu->stays ? "peer" : "in_process";
  what.residency = from.value("residency").value_or(usual);
  if (what.residency == "served") {
    if (what.gpu) what.gpu->stays = true;
  } else if (what.residency != usual) {
    throw refused_input("residency", what.residency, fmt::format("use {} or served with backing={}", usual, backing));
  }
  if (!what.gpu) {
    if (auto const value = from.value("sms")) {
      throw refused_input("sms", *value, "only an engine on a GPU has SMs; use threads= for one on the CPU");
    }
    return;
  }
  if (auto const value = from.value("threads")) {
    throw refused_input("threads", *value, "an engine on a GPU has none; use sms=");
  }
  int const gpus = memory::device_count();
  if (what.gpu->ordinal >= gpus) {
    throw refused_input("backing", backing,
                        gpus == 0
                            ? "no GPU was found, or CUDA is not built in; `forebay doctor` tells; use backing=memory"
                            : fmt::format("this machine has {} GPUs; give an ordinal below that", gpus));
  }
  try {
    memory::connect_gpus(client_gpu, what.gpu->ordinal);
  } catch (std::runtime_error const& failed) {
    throw refused_input("backing", backing, std::string(failed.what()) + "; use backing=hbm");
  }
  std::uint32_t const all = emulator::multiprocessors(what.gpu->ordinal);
  what.sms = small_count(from, "sms", std::min(usual_sms, all / 4), 1, 1024);
  if (what.sms >= all) {
    throw refused_input("sms", std::to_string(what.sms),
                        fmt::format("GPU {} has {}, and its clients need some; give less", what.gpu->ordinal, all));
  }
}

void override_timing(uri const& from, emulator::timing_parameters& timing) {
  auto const round = [](double x) { return static_cast<std::uint64_t>(std::llround(x)); };
  if (auto const value = from.value("iops")) {
    double const rate = parse_rate("iops", *value);
    for (emulator::operation_cost* cost : {&timing.read, &timing.write}) {
      cost->per_command_ps = round(1e12 / rate);
      cost->per_byte_fs = 0;
    }
  }
  if (auto const value = from.value("bandwidth")) {
    double const rate = parse_rate("bandwidth", *value);
    // Below it the femtoseconds of a long command are more than 64 bits hold.
    if (rate < 1000) throw refused_input("bandwidth", *value, "give at least 1k bytes a second");
    for (emulator::operation_cost* cost : {&timing.read, &timing.write}) cost->per_byte_fs = round(1e15 / rate);
  }
  if (auto const value = from.value("latency_us")) {
    double const latency = parse_microseconds("latency_us", *value);
    for (emulator::operation_cost* cost : {&timing.read, &timing.write, &timing.other}) {
      cost->latency_min_ps = round(latency * 1e6);
    }
  }
  timing.channels = small_count(from, "channels", timing.channels, 1, emulator::timing_parameters::max_channels);
  if (auto const value = from.value("seed")) timing.seed = parse_count("seed", *value, 0, ~std::uint64_t{0});
}

void choose_start(uri const& from, emulator::flash_parameters& flash) {
  auto const value = from.value("precondition");
  if (!value) return;
  if (flash.channels == 0) {
    throw refused_input("precondition", *value,
                        "only flash has a state to begin in; use a profile with a [flash] table, such as 970-pro");
  }
  for (auto const& [name, start] : preconditionings) {
    if (*value == name) {
      flash.start = start;
      return;
    }
  }
  throw refused_input("precondition", *value, "use fresh, full or random");
}

specification specify(uri const& from, int client_gpu) {
  specification what;
  what.uri = from.text();
  if (from.scheme() == "file") {
    what.backing = "file";
    what.path = from.name();
  } else {
    if (auto const name = from.value("profile")) what.timing_of = find_profile(*name);
    what.backing = from.value("backing").value_or("memory");
    what.path = from.value("path").value_or("");
    if (what.backing == "file" && what.path.empty()) {
      throw refused_input("path", what.path, "backing=file needs path=FILE");
    }
    if (what.backing != "file" && from.value("path")) {
      throw refused_input("path", what.path, "only backing=file has a path; add backing=file");
    }
  }
  if (auto const value = from.value("link")) what.link = emulator::find_link_speed(*value).name;
  place(from, what, client_gpu);
  override_timing(from, what.timing_of.timing);
  choose_start(from, what.timing_of.timing.flash);
  what.lba_bytes = small_count(from, "lba_bytes", what.timing_of.lba_bytes, 512, 4096);
  if (!std::has_single_bit(what.lba_bytes)) {
    throw refused_input("lba_bytes", *from.value("lba_bytes"), "give 512, 1024, 2048 or 4096");
  }
  what.queues = small_count(
      from, "queues", what.gpu ? std::min(usual_gpu_queues, what.sms * usual_queues_of_sm) : what.queues, 1, 65534);
  what.threads = small_count(from, "threads", what.threads, 1, 1024);
  what.errors_ppm = small_count(from, "errors_ppm", 0, 0, 1'000'000);
  if (auto const value = from.value("data")) {
    if (*value != "none") throw refused_input("data", *value, "use data=none, or leave it out to move data");
    if (what.backing == "file") throw refused_input("data", *value, "a file drive moves data; leave it out");
    what.moves_data = false;
  }
  if (auto const value = from.value("size")) {
    what.size_bytes = parse_bytes("size", *value);
    if (what.size_bytes % what.lba_bytes != 0) {
      throw refused_input("size", *value, fmt::format("give a multiple of lba_bytes, which is {}", what.lba_bytes));
    }
  } else if (what.backing != "file") {
    throw refused_input("size", "", "give the size of the drive, as in size=1G");
  }
  return what;
}

/// At most 20 characters; the same for every opening of a file, and of what a daemon serves, different for every other
/// drive of the process.
std::string serial_of(specification const& what) {
  if (what.backing == "file" || what.residency == "served") {
    std::uint64_t hash = 0;
    for (char const c : what.backing == "file" ? what.path : what.uri)
      hash = emulator::mix(hash ^ static_cast<std::uint8_t>(c));
    return fmt::format("FB{:016X}", hash);
  }
  static std::atomic<std::uint32_t> count{0};
  return fmt::format("FBMEM{:08}", ++count);
}

std::unique_ptr<emulator::backing_store> store_of(specification const& what, memory::resource* bytes_memory,
                                                  bool read_only) {
  if (what.backing == "file") {
    auto file = emulator::file_backing(what.path, what.size_bytes, what.lba_bytes, read_only);
    if (!what.gpu) return file;
    return emulator::working_copy(std::move(file), memory::device(what.gpu->ordinal));
  }
  if (!what.moves_data) return emulator::no_backing(what.size_bytes, what.lba_bytes);
  try {
    memory::resource& from = bytes_memory != nullptr  ? *bytes_memory
                             : what.backing == "host" ? memory::pinned()
                             : what.gpu               ? memory::device(what.gpu->ordinal)
                                                      : memory::host();
    return emulator::memory_backing(what.size_bytes, what.lba_bytes, from);
  } catch (operation_failed const& failed) {
    throw refused_input("size", std::to_string(what.size_bytes), std::string(failed.what()) + "; give less");
  } catch (std::bad_alloc const&) {
    throw refused_input("size", std::to_string(what.size_bytes), "this machine cannot map that much memory; give less");
  }
}

nlohmann::json describe(emulator::histogram const& h) {
  std::uint64_t const count = h.total();
  return {{"count", count},
          {"mean_ns", count == 0 ? 0.0 : static_cast<double>(h.sum_ns) / static_cast<double>(count)},
          {"p50_ns", h.percentile_ns(0.5)},
          {"p99_ns", h.percentile_ns(0.99)},
          {"p99.9_ns", h.percentile_ns(0.999)},
          {"max_ns", h.max_ns}};
}

/// What the flash was made to do. Write amplification is by bytes; null where the host wrote none.
nlohmann::json describe(emulator::flash_counters const& counts, emulator::flash_parameters const& flash) {
  nlohmann::json out;
  for (auto const& [name, start] : preconditionings) {
    if (start == flash.start) out["precondition"] = name;
  }
  emulator::flash_counters::for_each(
      [&](char const* name, std::uint64_t emulator::flash_counters::* counter) { out[name] = counts.*counter; });
  out["write_amplification"] = nullptr;
  if (counts.host_bytes_written != 0) {
    out["write_amplification"] = static_cast<double>(counts.pages_programmed) * flash.page_bytes /
                                 static_cast<double>(counts.host_bytes_written);
  }
  return out;
}

nlohmann::json describe(emulator::flash_parameters const& flash) {
  return {{"channels", flash.channels},
          {"dies_per_channel", flash.dies_per_channel},
          {"page_bytes", flash.page_bytes},
          {"read_bytes", flash.read_bytes},
          {"program_bytes", flash.program_bytes},
          {"block_bytes", flash.block_bytes},
          {"read_us", static_cast<double>(flash.read_ps) / 1e6},
          {"program_us", static_cast<double>(flash.program_ps) / 1e6},
          {"erase_us", static_cast<double>(flash.erase_ps) / 1e6},
          {"per_byte_ns", static_cast<double>(flash.channel_byte_fs) / 1e6},
          {"buffer_bytes", flash.buffer_bytes},
          {"spare_percent", flash.spare_ppm / 1e4}};
}

nlohmann::json describe(emulator::operation_cost const& cost) {
  return {{"per_command_ns", static_cast<double>(cost.per_command_ps) / 1e3},
          {"per_byte_ns", static_cast<double>(cost.per_byte_fs) / 1e6},
          {"granule_bytes", cost.granule_bytes},
          {"latency_min_us", static_cast<double>(cost.latency_min_ps) / 1e6}};
}

class started_drive final : public emulated_drive {
 public:
  started_drive(specification what, open_options const& options, memory::resource* bytes_memory)
      : what_(std::move(what)) {
    auto store = store_of(what_, bytes_memory, options.read_only);
    size_bytes_ = store->view().bytes;
    emulator::subsystem_options subsystem_options;
    subsystem_options.serial = serial_of(what_);
    subsystem_options.units = what_.gpu ? what_.sms : what_.threads;
    subsystem_options.gpu = what_.gpu;
    subsystem_options.max_queues = what_.queues;
    subsystem_options.timing = what_.timing_of.timing;
    subsystem_options.link = what_.link;
    subsystem_options.faults = options.faults;
    if (what_.errors_ppm != 0) {
      subsystem_options.faults.error_ppm = what_.errors_ppm;
      subsystem_options.faults.seed = what_.timing_of.timing.seed;
    }
    subsystem_options.frontend = options.frontend;
    subsystem_options.cancel = options.cancel;
    shared_ = std::make_shared<emulator::subsystem>(subsystem_options, std::move(store));
  }

  std::shared_ptr<emulator::subsystem> const& shared() const override { return shared_; }
  std::optional<int> gpu() const override { return what_.gpu ? std::optional(what_.gpu->ordinal) : std::nullopt; }

  nlohmann::json report(emulator::statistics const* since) const override {
    auto const statistics = shared_->collect();
    if (since != nullptr) statistics->subtract(*since);
    emulator::timing_parameters const& timing = what_.timing_of.timing;
    std::uint64_t const bound_ns = emulator::lateness_bound_ns(timing);
    nlohmann::json lateness = describe(statistics->lateness);
    lateness["bound_ns"] = bound_ns;
    lateness["above_bound"] = statistics->lateness.above(bound_ns);
    nlohmann::json counts;
    emulator::counters::for_each([&](char const* name, std::uint64_t emulator::counters::* counter) {
      counts[name] = statistics->commands.*counter;
    });
    nlohmann::json report = {
        {"uri", what_.uri},
        {"serial", shared_->options().serial},
        {"profile", what_.timing_of.name},
        {"residency", what_.residency},
        {what_.gpu ? "sms" : "threads", what_.gpu ? what_.sms : what_.threads},
        {"backing", what_.moves_data ? what_.backing : "none"},
        {"size_bytes", size_bytes_},
        {"lba_bytes", what_.lba_bytes},
        {"link", what_.link.empty() ? "none" : what_.link},
        {"timing",
         {{"read", describe(timing.read)},
          {"write", describe(timing.write)},
          {"other", describe(timing.other)},
          {"channels", timing.channels},
          {"channel_stride_bytes", timing.channel_stride_bytes},
          {"jitter_us", static_cast<double>(timing.jitter_ps) / 1e6},
          {"seed", timing.seed}}},
        {"statistics", counts},
        {"latency", {{"target", describe(statistics->target)}, {"processing", describe(statistics->processing)}}},
        {"lateness", lateness},
        {"poll_gap", describe(statistics->poll_gap)},
        {"fidelity", statistics->lateness.percentile_ns(0.99) > bound_ns ? "exceeded" : "ok"}};
    if (timing.flash.channels != 0) {
      report["timing"]["flash"] = describe(timing.flash);
      report["flash"] = describe(statistics->flash, timing.flash);
    }
    return report;
  }

 private:
  specification what_;
  std::uint64_t size_bytes_ = 0;
  std::shared_ptr<emulator::subsystem> shared_;
};

/// An emulated drive of which this process is the only client.
class emulated_device final : public device {
 public:
  emulated_device(std::shared_ptr<emulated_drive> drive, open_options const& options)
      : drive_(std::move(drive)),
        controller_(drive_->shared(), drive_->shared()->options().max_queues, *options.client_memory,
                    on(drive_->gpu(), options.gpu), on(drive_->gpu(), drive_->gpu())) {}

  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  std::optional<int> gpu() const override { return drive_->gpu(); }
  void hold() override { drive_->shared()->hold(); }
  void release() noexcept override { drive_->shared()->release(); }
  std::uint64_t populate(std::uint64_t bytes) override { return drive_->shared()->populate(bytes); }
  void reset_statistics() override { since_.set(drive_->shared()->collect()); }
  nlohmann::json report() override {
    return since_.with([this](emulator::statistics const* since) { return drive_->report(since); });
  }

 private:
  /// The memory of a GPU, for a drive whose engine is on one.
  static memory::resource* on(std::optional<int> engine, std::optional<int> ordinal) {
    return engine && ordinal ? &memory::device(*ordinal) : nullptr;
  }

  std::shared_ptr<emulated_drive> drive_;
  emulator::controller controller_;
  baseline since_;
};

}  // namespace

std::unique_ptr<device> open(std::string const& text, open_options const& options) {
  uri const from = uri::parse(text);
  if (from.scheme() == "pci") {
    throw refused_input("drive", text, "PCI drives cannot be opened yet; use emulated: or file:");
  }
  if (from.value("residency") == "served") return served::open(from, options);
  return std::make_unique<emulated_device>(start_emulated(from, options), options);
}

std::shared_ptr<emulated_drive> start_emulated(uri const& from, open_options const& options,
                                               memory::resource* bytes_memory) {
  return std::make_shared<started_drive>(specify(from, options.gpu), options, bytes_memory);
}

void create(std::string const& text) {
  uri const from = uri::parse(text);
  if (from.scheme() == "pci") throw refused_input("drive", text, "only files can be created");
  specification const what = specify(from, 0);
  if (what.backing != "file") throw refused_input("backing", what.backing, "only backing=file needs a file");
  if (what.size_bytes == 0) throw refused_input("size", "", "give the size of the file to make, as in size=1G");
  int const fd = ::open(what.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    throw refused_input("path", what.path, errno == EEXIST ? "the file exists; remove it first" : std::strerror(errno));
  }
  bool const sized = ftruncate(fd, static_cast<off_t>(what.size_bytes)) == 0;
  int const error = errno;
  close(fd);
  if (!sized) {
    unlink(what.path.c_str());
    throw operation_failed(
        fmt::format("cannot make {} of {} bytes: {}", what.path, what.size_bytes, std::strerror(error)));
  }
}

}  // namespace forebay::drive
