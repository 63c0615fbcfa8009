// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole controller that a daemon shares out: what a client sees of it, and what the clients do to each other.
#include "drive/served/shared_controller.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/conformance.hpp"
#include "conformance/fixture.hpp"
#include "conformance/suite.hpp"
#include "drive/daemons.hpp"
#include "drive/served/chunks.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/registers.hpp"

namespace forebay::drive::served {
namespace {

using test::refusal;
using testing::HasSubstr;

constexpr char whole_uri[] = "emulated:size=64M,threads=2,queues=24";

/// A client of a drive in this process, with the memory that a session of a daemon would have for it.
class local_client {
 public:
  explicit local_client(std::shared_ptr<shared_drive> of, std::uint32_t queues = 16) : of_(std::move(of)) {
    controller = of_->join({.queues = queues},
                           [this](chunk_place const& where, std::function<void(std::shared_ptr<chunk>)> made) -> auto& {
                             arenas_.push_back(std::make_unique<chunk_arena>(all_, share_, where, std::move(made)));
                             return *arenas_.back();
                           });
  }
  ~local_client() {
    if (controller) controller->leave();
    controller.reset();
  }
  local_client(local_client const&) = delete;
  local_client& operator=(local_client const&) = delete;

 private:
  std::shared_ptr<shared_drive> const of_;
  chunk_register all_{client_limits{}};
  client_share share_;
  std::vector<std::unique_ptr<chunk_arena>> arenas_;

 public:
  std::unique_ptr<client_controller> controller;
};

std::shared_ptr<shared_drive> whole() {
  return share(open(whole_uri));
}

class part_target final : public conformance::target {
 public:
  driver::register_space& registers() override { return client_.controller->registers(); }
  driver::dma_space& dma() override { return client_.controller->dma(); }
  std::string serial() const override { return client_.controller->report()["serial"]; }
  std::uint64_t drive_bytes() const override { return 64 << 20; }
  std::uint32_t block_bytes() const override { return 512; }

 private:
  local_client client_{whole()};
};
using part_of_controller = conformance::suite<part_target>;
TEST_P(part_of_controller, conforms) {
  conformance::run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(served, part_of_controller, testing::ValuesIn(conformance::checks()), conformance::name_of);

}  // namespace
}  // namespace forebay::drive::served
