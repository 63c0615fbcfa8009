// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole controller that clients share: which of its queue pairs are taken, and when it is reset.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::served {

/// The whole controller, and which of its queue pairs are taken. Thread-safe.
class whole_controller {
 public:
  whole_controller(std::unique_ptr<device> drive, std::uint64_t admin_timeout_ns)
      : drive_(std::move(drive)),
        host_(drive_->registers(), drive_->dma(), options_of(*drive_, admin_timeout_ns)),
        taken_(host_.identity().io_queue_pairs + 1) {}

  device& drive() { return *drive_; }
  driver::controller& host() { return host_; }
  std::uint64_t generation() const { return host_.generation(); }

  /// Runs a command. Nobody resets the controller meanwhile.
  nvme::completion_entry run(nvme::submission_entry const& command) {
    std::shared_lock const nobody_resets(gate_);
    return host_.execute(command);
  }
  bool abort(std::uint16_t sq_id, std::uint16_t command_id) {
    std::shared_lock const nobody_resets(gate_);
    return host_.abort(sq_id, command_id);
  }
  /// Brings the controller up again, unless somebody has since `generation`.
  void reset(std::uint64_t generation) {
    std::unique_lock const nobody_else(gate_);
    if (host_.generation() != generation) return;
    host_.reset();
    std::lock_guard const lock(mutex_);
    if (without_cache_ != 0) host_.set_feature(nvme::feature_id::volatile_write_cache, 0);
  }
  /// Returns the generation in which the controller has answered. If it failed for one client, it is brought up again
  /// for the next one.
  std::uint64_t answering() {
    constexpr int tries = 3;  // somebody else may reset it at the same time
    for (int i = 0;; ++i) {
      std::uint64_t const now = generation();
      try {
        std::shared_lock const nobody_resets(gate_);
        host_.get_feature(nvme::feature_id::number_of_queues);
        return now;
      } catch (driver::controller_failure const&) {
        if (i == tries) throw;
      }
      reset(now);
    }
  }

  /// Ids of pairs that nobody else has, until `give_back`. 0: as many as usual.
  std::vector<std::uint16_t> take(std::uint32_t queues) {
    std::lock_guard const lock(mutex_);
    auto const left = static_cast<std::uint32_t>(std::count(taken_.begin() + 1, taken_.end(), false));
    // Half of what is left, so that there are some for the next client.
    if (queues == 0) queues = std::clamp((left + 1) / 2, 1u, usual_queues);
    if (queues > left) {
      throw refused_input("queues", std::to_string(queues),
                          fmt::format("the controller has {} queue pairs left of {}: ask for fewer, or close a client",
                                      left, taken_.size() - 1));
    }
    std::vector<std::uint16_t> ids;
    for (std::size_t id = 1; ids.size() < queues; ++id) {
      if (taken_[id]) continue;
      taken_[id] = true;
      ids.push_back(static_cast<std::uint16_t>(id));
    }
    return ids;
  }
  void give_back(std::span<std::uint16_t const> ids) {
    std::lock_guard const lock(mutex_);
    for (std::uint16_t const id : ids) taken_[id] = false;
  }
  /// The drive's volatile write cache is off as long as one client wants it so. Throws `operation_failed`: then the
  /// cache is off, or it was to be switched off and nothing has changed.
  void use_cache(bool on) {
    std::shared_lock const nobody_resets(gate_);
    std::lock_guard const lock(mutex_);
    if (!on && without_cache_ == 0) host_.set_feature(nvme::feature_id::volatile_write_cache, 0);
    without_cache_ += on ? -1 : 1;
    if (on && without_cache_ == 0) host_.set_feature(nvme::feature_id::volatile_write_cache, 1);
  }

 private:
  static constexpr std::uint32_t usual_queues = 16;

  static driver::controller_options options_of(device const& drive, std::uint64_t admin_timeout_ns) {
    driver::controller_options options;
    options.quirks = drive.quirks();
    options.nsid = drive.nsid();
    options.io_queue_pairs = drive.most_queue_pairs();
    options.admin_timeout_ns = admin_timeout_ns;
    return options;
  }

  std::unique_ptr<device> drive_;
  driver::controller host_;
  std::shared_mutex gate_;   ///< before `mutex_`; a reset has it alone
  std::mutex mutex_;         ///< of what follows
  std::vector<bool> taken_;  ///< by id; there is no pair 0
  int without_cache_ = 0;    ///< how many clients want the cache to be off
};

}  // namespace forebay::drive::served
