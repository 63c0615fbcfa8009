// SPDX-License-Identifier: Apache-2.0
#include "emulated_device.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "../served/served_device.hpp"
#include "emulated_drive.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/error.hpp"
#include "new_file.hpp"
#include "specification.hpp"

namespace forebay::drive {
namespace {

/// An emulated drive of which this process is the only client.
class emulated_device final : public device {
 public:
  emulated_device(std::shared_ptr<emulated_drive> drive, gpu_placement placement, open_options const& options)
      : drive_(std::move(drive)),
        lags_(options.faults.data_after_completion_ppm != 0),
        placement_(lags_ ? std::min(placement, gpu_placement::data_on_gpu) : placement),
        controller_(drive_->shared(), drive_->shared()->options().max_queues, *options.client_memory,
                    on(drive_->gpu(), options.gpu), on(drive_->gpu(), drive_->gpu())) {}

  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  std::optional<int> gpu() const override { return drive_->gpu(); }
  gpu_placements placements() const override { return {placement_, placement_}; }
  bool data_may_be_late(bool on_gpu) const override { return lags_ || device::data_may_be_late(on_gpu); }
  void order_data() override { drive_->shared()->order_data(); }
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
  bool const lags_;  ///< a fault plan brings data after completions, for each client
  gpu_placement const placement_;
  emulator::controller controller_;
  baseline since_;
};

}  // namespace

scheme_syntax emulated_syntax() {
  return {
      .keys = {"size",          "profile",   "iops",     "iops_bytes", "write_iops", "bandwidth",    "write_bandwidth",
               "latency_us",    "channels",  "backing",  "path",       "lba_bytes",  "queues",       "threads",
               "sms",           "residency", "link",     "data",       "seed",       "precondition", "errors_ppm",
               "allow_destroy", "io",        "placement"}};
}

scheme_syntax file_syntax() {
  return {.name = "the path of a file",
          .keys = {"size", "create", "lba_bytes", "queues", "threads", "allow_destroy", "io"}};
}

std::unique_ptr<device> open_emulated(uri const& from, open_options const& options) {
  if (from.value("residency") == "served") {
    refuse_placement_of_served(from);
    return served::open(from, options);
  }
  specification const what = specify(from, options.gpu);
  std::optional<new_file> made;
  if (what.creates) {
    if (options.read_only) {
      throw refused_input("create", "1",
                          "a storage that is opened to read only cannot make a file; open it for writing");
    }
    made.emplace(what.path, what.size_bytes, file_space::reserved);
  }
  auto opened = std::make_unique<emulated_device>(start_emulated(what, options), what.placement, options);
  if (made) made->keep();
  return opened;
}

}  // namespace forebay::drive
