// SPDX-License-Identifier: Apache-2.0
#include "support/late_scheme.hpp"

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/scheme.hpp"

namespace forebay::test {

namespace {

class late_drive final : public drive::device {
 public:
  late_drive(std::unique_ptr<drive::device> inner, bool flushes) : inner_(std::move(inner)), flushes_(flushes) {}

  driver::register_space& registers() override { return inner_->registers(); }
  driver::dma_space& dma() override { return inner_->dma(); }
  std::optional<int> gpu() const override { return inner_->gpu(); }
  drive::gpu_placements placements() const override { return inner_->placements(); }
  bool data_may_be_late(bool on_gpu) const override { return inner_->data_may_be_late(on_gpu); }
  void order_data() override {
    if (flushes_) inner_->order_data();
  }
  std::uint32_t most_queue_pairs() const override { return inner_->most_queue_pairs(); }
  void hold() override { inner_->hold(); }
  void release() noexcept override { inner_->release(); }
  std::uint64_t populate(std::uint64_t bytes) override { return inner_->populate(bytes); }
  void reset_statistics() override { inner_->reset_statistics(); }
  nlohmann::json report() override { return inner_->report(); }

 private:
  std::unique_ptr<drive::device> inner_;
  bool flushes_;
};

std::unique_ptr<drive::device> open_late(drive::uri const& from, drive::open_options const& options) {
  std::string uri = "emulated:";
  for (char const* const key : {"size", "backing", "sms", "queues", "latency_us"}) {
    if (auto const value = from.value(key)) uri += (uri.back() == ':' ? "" : ",") + std::string(key) + "=" + *value;
  }
  auto const count = [&](char const* key, std::uint64_t usual, std::uint64_t most) {
    auto const value = from.value(key);
    return value ? drive::parse_count(key, *value, 0, most) : usual;
  };
  drive::open_options wanted = options;
  wanted.faults.data_lag_ns = count("lag_us", 100, 1'000'000) * 1000;
  wanted.faults.data_after_completion_ppm = static_cast<std::uint32_t>(count("ppm", 1'000'000, 1'000'000));
  return std::make_unique<late_drive>(drive::open(uri, wanted), count("flushes", 1, 1) == 1);
}

}  // namespace

void add_late_scheme() {
  static std::once_flag once;
  std::call_once(once, [] {
    drive::add_scheme(
        "late", open_late,
        {.name = {}, .keys = {"size", "backing", "sms", "queues", "latency_us", "lag_us", "ppm", "flushes"}});
  });
}

}  // namespace forebay::test
