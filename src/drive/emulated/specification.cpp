// SPDX-License-Identifier: Apache-2.0
#include "specification.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <stdexcept>

#include "forebay/detail/memory/link_speed.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::drive {
namespace {

/// Of an engine on a GPU, where the URI does not say.
constexpr std::uint32_t usual_sms = 32;
/// I/O queue pairs, likewise, and of each multiprocessor.
constexpr std::uint32_t usual_gpu_queues = 1024;
constexpr std::uint32_t usual_queues_of_sm = 128;

std::uint32_t small_count(uri const& from, char const* key, std::uint32_t otherwise, std::uint32_t least,
                          std::uint32_t most) {
  auto const value = from.value(key);
  return value ? static_cast<std::uint32_t>(parse_count(key, *value, least, most)) : otherwise;
}

constexpr std::pair<char const*, backing_kind> backings[] = {{"memory", backing_kind::memory},
                                                             {"file", backing_kind::file},
                                                             {"hbm", backing_kind::hbm},
                                                             {"host", backing_kind::host}};

constexpr std::pair<char const*, residency> residencies[] = {{"threads", residency::threads},
                                                             {"in_process", residency::in_process},
                                                             {"peer", residency::peer},
                                                             {"served", residency::served}};

/// None: the URI does not say, or names no residency that exists.
std::optional<residency> residency_of(uri const& from) {
  auto const value = from.value("residency");
  for (auto const& [name, where] : residencies) {
    if (value == name) return where;
  }
  return std::nullopt;
}

/// Where the engine of a drive is, from `backing` and `residency`, which must fit each other.
void place(uri const& from, specification& what, int client_gpu) {
  auto const wanted = residency_of(from);
  switch (what.bytes.kind) {
    case backing_kind::hbm:
    case backing_kind::host:
      what.gpu = emulator::gpu_residency{.ordinal = client_gpu};
      break;
    case backing_kind::peer:
      what.gpu = emulator::gpu_residency{.ordinal = what.bytes.peer, .stays = true};
      break;
    case backing_kind::file:
      if (wanted == residency::in_process) what.gpu = emulator::gpu_residency{.ordinal = client_gpu};
      break;
    case backing_kind::memory:
      break;
  }
  residency const usual = !what.gpu ? residency::threads : what.gpu->stays ? residency::peer : residency::in_process;
  if (auto const value = from.value("residency")) {
    if (wanted != usual && wanted != residency::served) {
      throw refused_input("residency", *value,
                          fmt::format("use {} or served with backing={}", to_string(usual), to_string(what.bytes)));
    }
  }
  what.engine = wanted.value_or(usual);
  if (what.engine == residency::served) refuse_placement_of_served(from);
  if (what.engine == residency::served && what.gpu) what.gpu->stays = true;
  std::uint32_t const placement = small_count(from, "placement", what.gpu ? 3 : 1, 1, 3);
  if (!what.gpu) {
    if (auto const value = from.value("sms")) {
      throw refused_input("sms", *value, "is only for a drive on a GPU; use threads= for one on the CPU");
    }
    if (placement != 1) {
      throw refused_input("placement", std::to_string(placement),
                          "the engine runs on the CPU, which does not reach a GPU's memory: use backing=hbm, host or "
                          "peer:N, or leave it out");
    }
    return;
  }
  what.placement = static_cast<gpu_placement>(placement);
  if (auto const value = from.value("threads")) {
    throw refused_input("threads", *value, "is only for a drive on the CPU; use sms= for one on a GPU");
  }
  int const gpus = memory::device_count();
  if (what.gpu->ordinal >= gpus) {
    throw refused_input("backing", to_string(what.bytes),
                        gpus == 0
                            ? "no GPU was found, or CUDA is not built in: nvidia-smi lists GPUs, and `forebay "
                              "doctor` of the Python package tells "
                              "which it is; use backing=memory"
                            : fmt::format("this machine has {} GPUs, numbered from 0; give a number below that", gpus));
  }
  try {
    memory::connect_gpus(client_gpu, what.gpu->ordinal);
  } catch (std::runtime_error const& failed) {
    throw refused_input("backing", to_string(what.bytes), std::string(failed.what()) + "; use backing=hbm");
  }
  std::uint32_t const all = emulator::multiprocessors(what.gpu->ordinal);
  what.sms = small_count(from, "sms", std::min(usual_sms, all / 4), 1, 1024);
  if (what.sms >= all) {
    throw refused_input("sms", std::to_string(what.sms),
                        fmt::format("GPU {} has {} multiprocessors, and its clients need at least one; give less",
                                    what.gpu->ordinal, all));
  }
}

/// A rate that a URI gives, and the key that it gives it by.
struct given_rate {
  char const* key = nullptr;
  std::string text;
  double per_second = 0;

  explicit operator bool() const { return key != nullptr; }
};

/// The rate by the first of `keys` that the URI has.
given_rate rate_of(uri const& from, std::initializer_list<char const*> keys) {
  for (char const* key : keys) {
    if (auto const value = from.value(key)) return {key, *value, parse_rate(key, *value)};
  }
  return {};
}

/// `iops` is the rate of commands of `iops_bytes`, whose bytes take their share of each command's time.
void override_rates(emulator::operation_cost& cost, given_rate const& iops, given_rate const& bandwidth,
                    std::uint64_t iops_bytes) {
  auto const round = [](double x) { return static_cast<std::uint64_t>(std::llround(x)); };
  if (bandwidth) {
    // Below this rate the time of a long command in femtoseconds does not fit into 64 bits.
    if (bandwidth.per_second < 1000)
      throw refused_input(bandwidth.key, bandwidth.text, "give at least 1k bytes a second");
    cost.per_byte_fs = round(1e15 / bandwidth.per_second);
  }
  if (!iops) return;
  double const whole_ps = 1e12 / iops.per_second;
  auto const bytes_ps = static_cast<double>(cost.bytes_ps(iops_bytes));
  // Rates that data sheets give for one size agree to two digits.
  if (bytes_ps > whole_ps * 1.01) {
    double const bytes = static_cast<double>(iops_bytes);
    throw refused_input(
        iops.key, iops.text,
        fmt::format("commands of {} bytes at this rate move {:.3g} GB/s, and the drive's bandwidth allows {:.3g}; give "
                    "a lower rate, a larger bandwidth, or with iops_bytes= the size that the rate is stated for",
                    iops_bytes, iops.per_second * bytes / 1e9, bytes / bytes_ps * 1e3));
  }
  cost.per_command_ps = round(std::max(0.0, whole_ps - bytes_ps));
}

void override_timing(uri const& from, emulator::timing_parameters& timing) {
  given_rate const iops = rate_of(from, {"iops"}), write_iops = rate_of(from, {"write_iops", "iops"});
  std::uint64_t iops_bytes = 4096;
  if (auto const value = from.value("iops_bytes")) {
    iops_bytes = parse_bytes("iops_bytes", *value);
    if (!write_iops) {
      throw refused_input("iops_bytes", *value, "it is the size that iops= is stated for: give iops= or write_iops=");
    }
  }
  override_rates(timing.read, iops, rate_of(from, {"bandwidth"}), iops_bytes);
  override_rates(timing.write, write_iops, rate_of(from, {"write_bandwidth", "bandwidth"}), iops_bytes);
  if (auto const value = from.value("latency_us")) {
    auto const latency_ps = static_cast<std::uint64_t>(std::llround(parse_microseconds("latency_us", *value) * 1e6));
    for (emulator::operation_cost* cost : {&timing.read, &timing.write, &timing.other}) {
      cost->latency_min_ps = latency_ps;
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

void choose_io(uri const& from, specification& what) {
  auto const value = from.value("io");
  if (!value) return;
  if (!what.in_file()) throw refused_input("io", *value, "only a drive in a file has it; add backing=file");
  for (auto const& [name, io] : file_ios) {
    if (*value != name) continue;
    if (io == emulator::file_io::uring && what.gpu) {
      throw refused_input("io", *value, "the engine on the GPU works on a copy of the file; use mmap, or leave it out");
    }
    what.io = io;
    return;
  }
  throw refused_input("io", *value, "use auto, uring or mmap");
}

}  // namespace

backing backing_of(uri const& from) {
  std::string const text = from.value("backing").value_or("memory");
  for (auto const& [name, kind] : backings) {
    if (text == name) return {kind};
  }
  if (text.starts_with("peer:")) {
    return {backing_kind::peer, static_cast<int>(parse_count("backing", text.substr(5), 0, 1023))};
  }
  throw refused_input("backing", text, "use memory, file, hbm, host or peer:N");
}

std::string to_string(backing const& where) {
  for (auto const& [name, kind] : backings) {
    if (where.kind == kind) return name;
  }
  return fmt::format("peer:{}", where.peer);
}

char const* to_string(residency where) {
  for (auto const& [name, known] : residencies) {
    if (where == known) return name;
  }
  return "unknown";
}

void refuse_placement_of_served(uri const& from) {
  if (auto const value = from.value("placement")) {
    throw refused_input("placement", *value, "leave it out: a drive of the daemon has the one that its engine can");
  }
}

specification specify(uri const& from, int client_gpu) {
  specification what;
  what.uri = from.text();
  if (from.scheme() == "file") {
    what.bytes.kind = backing_kind::file;
    what.path = from.name();
  } else {
    if (auto const name = from.value("profile")) what.timing_of = find_profile(*name);
    what.bytes = backing_of(from);
    what.path = from.value("path").value_or("");
    if (what.in_file() && what.path.empty()) {
      throw refused_input("path", what.path, "backing=file needs path=FILE");
    }
    if (!what.in_file() && from.value("path")) {
      throw refused_input("path", what.path, "only backing=file has a path; add backing=file");
    }
  }
  if (auto const value = from.value("allow_destroy")) {
    if (!what.in_file()) throw refused_input("allow_destroy", *value, "is only for a drive on a block device");
    what.allow_destroy = *value;
  }
  if (auto const value = from.value("link")) what.link = memory::find_link_speed(*value).name;
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
    if (what.in_file()) throw refused_input("data", *value, "is only for a drive without a file; leave it out");
    what.moves_data = false;
  }
  if (auto const value = from.value("size")) {
    what.size_bytes = parse_bytes("size", *value);
    if (what.size_bytes % what.lba_bytes != 0) {
      throw refused_input("size", *value, fmt::format("give a multiple of lba_bytes, which is {}", what.lba_bytes));
    }
  } else if (!what.in_file()) {
    throw refused_input("size", "", "give the size of the drive, as in size=1G");
  }
  choose_io(from, what);
  if (auto const value = from.value("create")) {
    if (*value != "1")
      throw refused_input("create", *value, "use create=1, or leave it out to open a file that exists");
    if (what.size_bytes == 0) throw refused_input("size", "", "give the size of the file to make, as in size=1G");
    what.creates = true;
  }
  return what;
}

}  // namespace forebay::drive
