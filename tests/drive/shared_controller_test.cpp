// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole controller that a daemon shares out: what a client sees of it, and what the clients do to each other.
#include "drive/served/shared_controller.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/conformance.hpp"
#include "conformance/suite.hpp"
#include "drive/daemons.hpp"
#include "drive/served/chunks.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/scheme.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/storage.hpp"

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

// ---- several clients

/// The whole controller of which drives with the URI `part:` are parts.
std::shared_ptr<shared_drive>& shared_one() {
  static std::shared_ptr<shared_drive> one;
  return one;
}

class part_device final : public device {
 public:
  explicit part_device(std::uint32_t queues) : client_(shared_one(), queues) {}
  driver::register_space& registers() override { return client_.controller->registers(); }
  driver::dma_space& dma() override { return client_.controller->dma(); }
  nlohmann::json report() override { return client_.controller->report(); }
  void reset_statistics() override {}

 private:
  local_client client_;
};

/// A controller that may stop to take admin commands.
class deaf_device final : public device, private driver::register_space {
 public:
  explicit deaf_device(std::atomic<bool> const& deaf, std::atomic<bool> const* gone = nullptr)
      : deaf_(deaf), gone_(gone), whole_(open(whole_uri)) {}
  driver::register_space& registers() override { return *this; }
  driver::dma_space& dma() override { return whole_->dma(); }
  nlohmann::json report() override { return whole_->report(); }
  void reset_statistics() override {}

 private:
  std::uint32_t read32(std::uint32_t offset_bytes) override {
    return gone_ != nullptr && *gone_ ? nvme::removed_value : whole_->registers().read32(offset_bytes);
  }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    if (deaf_ && offset_bytes == nvme::registers::sq_tail_doorbell(0, 0)) return;
    whole_->registers().write32(offset_bytes, value);
  }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return whole_->registers().doorbell(offset_bytes); }

  std::atomic<bool> const& deaf_;
  std::atomic<bool> const* gone_;  ///< null: it never leaves the bus
  std::unique_ptr<device> whole_;
};

class SharedController : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static bool const added = [] {
      add_scheme("part",
                 [](uri const& from, open_options const&) {
                   return std::make_unique<part_device>(
                       static_cast<std::uint32_t>(parse_count("queues", from.value("queues").value_or("4"), 0, 64)));
                 },
                 {.keys = {"queues"}});
      return true;
    }();
    static_cast<void>(added);
  }
  void SetUp() override { shared_one() = whole(); }
  void TearDown() override { shared_one().reset(); }

  static std::unique_ptr<storage> client(std::string const& drive = "part:", std::uint64_t timeout_ns = 0) {
    storage_options o;
    o.drives = {drive};
    o.device = "cpu";
    if (timeout_ns != 0) o.timeout_ns = timeout_ns;
    return std::make_unique<storage>(o);
  }
  static std::vector<std::uint64_t> pattern(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> words((1 << 20) / sizeof(std::uint64_t));
    for (std::uint64_t& word : words) word = random();
    return words;
  }
  static void expect_round_trip(storage& of, std::uint64_t seed, std::uint64_t at) {
    auto const written = pattern(seed);
    std::vector<std::uint64_t> back(written.size());
    of.pwrite(written.data(), 1 << 20, at);
    of.pread(back.data(), 1 << 20, at);
    EXPECT_EQ(back, written);
  }
};

TEST_F(SharedController, ClientsWorkAtTheSameTimeOnOneDrive) {
  constexpr int clients = 4;
  std::vector<std::thread> all;
  for (std::uint64_t i = 0; i < clients; ++i) {
    all.emplace_back([i] {
      auto const mine = client();
      for (std::uint64_t round = 0; round < 5; ++round) expect_round_trip(*mine, i * 100 + round, i << 20);
    });
  }
  for (std::thread& t : all) t.join();
  auto const later = client();
  std::vector<std::uint64_t> back((1 << 20) / sizeof(std::uint64_t));
  for (std::uint64_t i = 0; i < clients; ++i) {
    later->pread(back.data(), 1 << 20, i << 20);
    EXPECT_EQ(back, pattern(i * 100 + 4));
  }
}

TEST_F(SharedController, PairsAreTakenUntilTheirClientLeaves) {
  auto const usual = client("part:queues=0");
  EXPECT_EQ(nlohmann::json::parse(usual->report())["drives"][0]["doorbells"], "relay");
  auto first = client("part:queues=10");
  EXPECT_THAT(refusal([] { client("part:queues=10"); }), HasSubstr("the controller has 2 queue pairs left of 24"));
  first.reset();
  EXPECT_NO_THROW(client("part:queues=12"));
}

TEST_F(SharedController, AClientThatLeavesWithCommandsUnderWayDisturbsNoOther) {
  shared_one() = share(open("emulated:size=64M,queues=24,latency_us=20000"));
  auto const other = client();
  std::vector<char> buffer(8 << 20);
  for (int i = 0; i < 3; ++i) {
    auto leaves = client();
    host_transfer const read = leaves->pread_async(buffer.data(), buffer.size(), 0);
    leaves->cancel_transfers();
    leaves.reset();
    expect_round_trip(*other, static_cast<std::uint64_t>(i), 16 << 20);
  }
}

/// Two clients of a controller that may stop to answer.
class SharedDeafController : public testing::Test {
 protected:
  struct side {
    explicit side(std::shared_ptr<shared_drive> const& drive)
        : client(drive, 4), controller(client.controller->registers(), client.controller->dma()) {}
    bool has_failed() {
      return nvme::controller_status{client.controller->registers().read32(nvme::registers::csts)}.fatal();
    }
    local_client client;
    driver::controller controller;
  };

  /// The whole controller fails for one client, which resets it. The other one is not told.
  void reset_by(side& one) {
    driver::io_queue queue = one.controller.create_io_queue_pair({.entries = 4});
    deaf = true;
    EXPECT_THROW(one.controller.delete_io_queue_pair(queue), operation_failed);
    deaf = false;
    EXPECT_TRUE(one.has_failed());
    one.controller.reset();
  }

  std::atomic<bool> deaf = false;
  std::shared_ptr<shared_drive> const drive = share(std::make_unique<deaf_device>(deaf), 50'000'000);
};

TEST_F(SharedDeafController, IsResetAndAllClientsComeBack) {
  side one(drive), two(drive);
  driver::io_queue queue_of_two = two.controller.create_io_queue_pair({.entries = 4});
  reset_by(one);
  EXPECT_TRUE(two.has_failed()) << "its queues are gone too";
  two.controller.reset();
  two.controller.recreate(queue_of_two);
  EXPECT_EQ(two.controller.identify_namespace(1).nsze, two.controller.identity().blocks);
}

TEST_F(SharedDeafController, MakesNoQueueForAClientThatDoesNotKnowOfAReset) {
  {
    side one(drive), two(drive);
    reset_by(one);
    EXPECT_THROW(two.controller.create_io_queue_pair({.entries = 4}), operation_failed);
  }
  // Without an answer from the drive, a queue with one of their ids would be there still.
  side later(drive);
  std::vector<driver::io_queue> all;
  for (int i = 0; i < 4; ++i) all.push_back(later.controller.create_io_queue_pair({.entries = 4}));
}

TEST_F(SharedDeafController, IsResetBeforeTheMemoryOfACommandWithoutAnAnswerIsUsedAgain) {
  side two(drive);
  {
    side one(drive);
    deaf = true;
    EXPECT_THROW(one.controller.identify_controller(), operation_failed);
    deaf = false;
  }
  EXPECT_TRUE(two.has_failed()) << "the drive has let go by a reset";
}

TEST_F(SharedDeafController, KeepsItsCacheOffThroughAReset) {
  side one(drive), two(drive);
  two.controller.set_feature(nvme::feature_id::volatile_write_cache, 0);
  reset_by(one);
  EXPECT_EQ(one.controller.get_feature(nvme::feature_id::volatile_write_cache) & 1, 0u);
  two.controller.reset();
  EXPECT_EQ(one.controller.get_feature(nvme::feature_id::volatile_write_cache) & 1, 1u) << "nobody wants it off";
}

TEST_F(SharedDeafController, TakesTheSizesOfAdminQueuesWhenItIsEnabled) {
  side one(drive);
  driver::register_space& registers = one.client.controller->registers();
  registers.write32(nvme::registers::aqa, nvme::admin_queue_attributes::make(4096, 4096));
  registers.write32(nvme::registers::sq_tail_doorbell(0, 0), 100);
  EXPECT_NO_THROW(one.controller.identify_namespace(1));
}

TEST_F(SharedDeafController, ToldOfAtTheEndIfItDoesNotShutDown) {
  EXPECT_TRUE(drive->close());
  std::atomic<bool> gone = false;
  auto const other = share(std::make_unique<deaf_device>(deaf, &gone));
  gone = true;
  EXPECT_FALSE(other->close()) << "its registers read as all ones";
}

TEST_F(SharedController, MemoryOfAnEmulatedDriveIsRefused) {
  local_client real(shared_one());
  EXPECT_THAT(refusal([&] { real.controller->reach(std::make_shared<chunk>(4096)); }),
              HasSubstr("use one storage for real drives"));
}

}  // namespace
}  // namespace forebay::drive::served
