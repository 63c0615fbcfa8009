// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/emulator/controller.hpp"

namespace forebay::test {

/// An emulated drive whose bytes lie in a backing store of the test's own, for a scheme of the test's own. The drive
/// takes no time and has no report.
class store_drive final : public drive::device {
 public:
  explicit store_drive(std::unique_ptr<emulator::backing_store> store)
      : controller_({.max_queues = 8}, std::move(store)) {}
  driver::register_space& registers() override { return controller_.registers(); }
  driver::dma_space& dma() override { return controller_.dma(); }
  nlohmann::json report() override { return {}; }
  void reset_statistics() override {}

 private:
  emulator::controller controller_;
};

}  // namespace forebay::test
