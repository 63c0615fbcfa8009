// SPDX-License-Identifier: Apache-2.0
#include "shared_emulated.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "forebay/detail/emulator/controller.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::served {
namespace {

constexpr std::uint32_t usual_queues = 16;
constexpr std::uint32_t usual_gpu_queues = 128;

class emulated_controller final : public client_controller {
 public:
  template <class... Memory>
  emulated_controller(std::shared_ptr<emulated_drive> drive, std::uint32_t queues, Memory&&... memory)
      : drive_(std::move(drive)), controller_(drive_->shared(), queues, memory...) {}

  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  bool leave() noexcept override { return controller_.leave(); }
  nlohmann::json report() override {
    return since_.with([this](emulator::statistics const* since) { return drive_->report(since); });
  }
  void reset_statistics() override { since_.set(drive_->shared()->collect()); }

 private:
  std::shared_ptr<emulated_drive> const drive_;
  emulator::controller controller_;
  baseline since_;
};

class shared_emulated final : public shared_drive {
 public:
  explicit shared_emulated(std::shared_ptr<emulated_drive> drive) : drive_(std::move(drive)) {}

  std::optional<int> gpu() const override { return drive_->gpu(); }
  std::unique_ptr<client_controller> join(join_request const& wanted, arena_maker const& make_arena) override {
    auto const gpu = drive_->gpu();
    std::uint32_t const queues =
        wanted.queues != 0 ? wanted.queues
                           : std::clamp(drive_->shared()->free_queues(), 1u, gpu ? usual_gpu_queues : usual_queues);
    auto const arena = [&](chunk_place const& where) -> chunk_arena& { return make_arena(where, {}); };
    if (!gpu) {
      return std::make_unique<emulated_controller>(drive_, queues, arena({.locked_there = wanted.with_gpu}));
    }
    if (wanted.gpu >= memory::device_count()) {
      throw refused_input("gpu", std::to_string(wanted.gpu), "the drive daemon sees no such GPU; use one that it does");
    }
    memory::resource& host = arena({memory::kind::pinned, 0});
    memory::resource* const doorbells = &arena({memory::kind::device, *gpu});
    memory::resource* const data = wanted.gpu == *gpu ? doorbells : &arena({memory::kind::device, wanted.gpu});
    return std::make_unique<emulated_controller>(drive_, queues, host, data, doorbells);
  }
  std::uint64_t populate(std::uint64_t bytes, std::stop_token const& cancel) override {
    return drive_->shared()->populate(bytes, cancel);
  }
  nlohmann::json report() override { return drive_->report(nullptr); }
  bool close() override { return drive_->shared()->close(); }

 private:
  std::shared_ptr<emulated_drive> const drive_;
};

}  // namespace

std::unique_ptr<shared_drive> share(std::shared_ptr<emulated_drive> drive) {
  return std::make_unique<shared_emulated>(std::move(drive));
}

}  // namespace forebay::drive::served
