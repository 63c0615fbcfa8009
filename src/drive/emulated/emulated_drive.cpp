// SPDX-License-Identifier: Apache-2.0
#include "emulated_drive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "forebay/detail/emulator/fidelity.hpp"
#include "forebay/error.hpp"
#include "specification.hpp"

namespace forebay::drive {
namespace {

/// A serial number of at most 20 characters. It is the same for every opening of a file, and for what a daemon serves;
/// it differs for every other drive of the process.
std::string serial_of(specification const& what) {
  if (what.in_file() || what.engine == residency::served) {
    std::uint64_t hash = 0;
    for (char const c : what.in_file() ? what.path : what.uri)
      hash = emulator::mix(hash ^ static_cast<std::uint8_t>(c));
    return fmt::format("FB{:016X}", hash);
  }
  static std::atomic<std::uint32_t> count{0};
  return fmt::format("FBMEM{:08}", ++count);
}

std::unique_ptr<emulator::backing_store> store_of(specification const& what, memory::resource* bytes_memory,
                                                  bool read_only) {
  if (what.in_file()) {
    auto file = emulator::file_backing(what.path, what.size_bytes, what.lba_bytes, read_only, what.allow_destroy,
                                       what.gpu ? emulator::file_io::mmap : what.io);
    if (!what.gpu) return file;
    emulator::media const view = file->view();
    if (view.end_bytes < view.bytes && !read_only) {
      throw refused_input("path", what.path,
                          fmt::format("its {} bytes end within a block of {}, and an engine on a GPU that may write "
                                      "needs whole blocks; give another lba_bytes or size to the file, or leave "
                                      "residency out",
                                      view.end_bytes, what.lba_bytes));
    }
    return emulator::working_copy(std::move(file), memory::device(what.gpu->ordinal));
  }
  if (!what.moves_data) return emulator::no_backing(what.size_bytes, what.lba_bytes);
  try {
    memory::resource& from = bytes_memory != nullptr                 ? *bytes_memory
                             : what.bytes.kind == backing_kind::host ? memory::pinned()
                             : what.gpu                              ? memory::device(what.gpu->ordinal)
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

/// What the flash did. Write amplification is by bytes; null where the host wrote none.
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

nlohmann::json describe(emulator::file_access const& file) {
  nlohmann::json out;
  for (auto const& [name, io] : file_ios) {
    if (io == file.io) out["io"] = name;
  }
  if (!file.why.empty()) out["why"] = file.why;
  auto const tell = [&out](char const* name, bool does, char const* why_name, std::string const& why) {
    out[name] = does;
    if (!does) out[why_name] = why;
  };
  tell("direct", file.direct, "why_not_direct", file.why_not_direct);
  tell("fixed_buffers", file.fixed_buffers, "why_no_fixed_buffers", file.why_no_fixed_buffers);
  tell("polled", file.polled, "why_not_polled", file.why_not_polled);
  return out;
}

class started_drive final : public emulated_drive {
 public:
  started_drive(specification what, open_options const& options, memory::resource* bytes_memory)
      : what_(std::move(what)) {
    auto store = store_of(what_, bytes_memory, options.read_only);
    size_bytes_ = store->view().bytes;
    file_bytes_ = store->view().end_bytes;
    emulator::subsystem_options subsystem_options;
    subsystem_options.serial = serial_of(what_);
    subsystem_options.units = what_.gpu ? what_.sms : what_.threads;
    subsystem_options.gpu = what_.gpu;
    subsystem_options.waiters_serve = options.waiters_serve;
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
    emulator::fidelity const verdict = emulator::judge(*statistics, timing);
    nlohmann::json lateness = describe(statistics->lateness);
    lateness["bound_ns"] = verdict.bound_ns;
    lateness["above_bound"] = statistics->lateness.above(verdict.bound_ns);
    lateness["loaded"] = verdict.loaded;
    lateness["of_target"] = nullptr;
    lateness["rate_lost_at_most"] = nullptr;
    if (verdict.has_model) {
      lateness["of_target"] = verdict.of_target;
      lateness["rate_lost_at_most"] = verdict.rate_lost_at_most;
    }
    nlohmann::json counts;
    emulator::counters::for_each([&](char const* name, std::uint64_t emulator::counters::* counter) {
      counts[name] = statistics->commands.*counter;
    });
    nlohmann::json report = {
        {"uri", what_.uri},
        {"serial", shared_->options().serial},
        {"profile", what_.timing_of.name},
        {"residency", to_string(what_.engine)},
        {what_.gpu ? "sms" : "threads", what_.gpu ? what_.sms : what_.threads},
        {"served_by", shared_->waiters_serve() ? "waiting threads" : "service units"},
        {"backing", what_.moves_data ? to_string(what_.bytes) : "none"},
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
        {"fidelity", verdict.kept ? "ok" : "exceeded"}};
    if (auto const file = shared_->access()) {
      report["file_bytes"] = std::min(file_bytes_, size_bytes_);
      report["file"] = describe(*file);
    }
    if (timing.flash.channels != 0) {
      report["timing"]["flash"] = describe(timing.flash);
      report["flash"] = describe(statistics->flash, timing.flash);
    }
    return report;
  }

 private:
  specification what_;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::shared_ptr<emulator::subsystem> shared_;
};

}  // namespace

std::shared_ptr<emulated_drive> start_emulated(specification const& what, open_options const& options,
                                               memory::resource* bytes_memory) {
  return std::make_shared<started_drive>(what, options, bytes_memory);
}

}  // namespace forebay::drive
