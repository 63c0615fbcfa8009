// SPDX-License-Identifier: Apache-2.0
//! \file
//! The queue layer on QEMU's NVMe controller, whose doorbells go through the relay page, driven by threads and by
//! fibers.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "queue/controller_suite.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::queue_test {
namespace {

class qemu_target final : public target {
 public:
  explicit qemu_target(test::qemu_options const& o) : qemu(o) {}

  driver::register_space& registers() override { return qemu.registers(); }
  driver::dma_space& dma() override { return qemu.dma(); }
  void* allocate_contiguous(std::size_t bytes) override { return qemu.dma().allocate_contiguous(bytes); }
  void hold_next_read() override { qemu.hold("read_aio"); }
  status let_go(driver::controller&, std::uint16_t, std::uint16_t) override {
    qemu.let_go();
    return {};
  }
  std::vector<std::uint64_t> stray_pages() override { return qemu.dma().stray_pages(); }

  test::qemu_nvme qemu;
};

template <class Lanes>
struct in_qemu {
  using lanes_on = Lanes;
  static void require() { FOREBAY_NEEDS_QEMU(); }
  static std::unique_ptr<target> open(target_options const& o) {
    return std::make_unique<qemu_target>(test::qemu_options{.mdts = o.mdts, .breakpoints = o.holds_first_read});
  }
};

struct names {
  template <class Where>
  static std::string GetName(int) {
    return std::is_same_v<typename Where::lanes_on, on_fibers> ? "fibers" : "threads";
  }
};
using both = testing::Types<in_qemu<on_threads>, in_qemu<on_fibers>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Qemu, ControllerSuite, both, names);

template <class Where>
class QemuRecovery : public ControllerSuite<Where> {};
TYPED_TEST_SUITE(QemuRecovery, both, names);

TYPED_TEST(QemuRecovery, MediaErrorsReachTheirRequests) {
  qemu_target on({.errors = {{.iotype = "read", .error = EIO, .sector = 2048},
                             {.iotype = "write", .error = ENOSPC, .sector = 4096},
                             {.iotype = "flush", .error = EIO, .once = true}}});
  scattered_pages const data(on.dma(), 4, 9);
  rig r(on, {.pairs = {{4, 4}}});
  tally seen;
  auto const with = this->client_of(r, seen);
  auto const run = [&](io_command const& c) {
    return this->wait(r, seen, this->start(r, seen, c), patience_ns).bits() & nvme::status_code_mask;
  };
  auto const transfer = [&](nvme::io_opcode opcode, std::uint64_t slba, std::uint32_t blocks) {
    return run(with.command(opcode, slba, blocks, data.list(), 0));
  };
  EXPECT_EQ(transfer(nvme::io_opcode::read, 2040, 24), nvme::status_field(nvme::media_status::unrecovered_read_error));
  EXPECT_EQ(transfer(nvme::io_opcode::read, 2049, 24), 0u);
  EXPECT_EQ(transfer(nvme::io_opcode::write, 4096, 1), nvme::status_field(nvme::media_status::write_fault));
  EXPECT_EQ(transfer(nvme::io_opcode::write, 4097, 1), 0u);
  EXPECT_NE(run(with.flush()), 0u);
  EXPECT_EQ(run(with.flush()), 0u);
}

TYPED_TEST(QemuRecovery, Q7DriveThatLeftTheBusCancelsAll) {
  qemu_target on({});
  scattered_pages const data(on.dma(), 4, 9);
  rig r(on, {.pairs = {{4, 4}, {4, 4}}, .prp_pages = 1, .timeout_ns = 1'000'000});
  tally seen;
  auto const with = this->client_of(r, seen);
  recovery rescue = this->rescue_of(r);
  on.qemu.kill();
  std::uint32_t const record = this->start(r, seen, with.command(nvme::io_opcode::read, 0, 24, data.list(), 4));
  EXPECT_EQ(this->wait_and_recover(r, seen, record, rescue).kind(), fault::cancelled);
  std::uint32_t home = 0;
  EXPECT_EQ(with.queues.submit(r.all(), home, with.flush(), 0, patience_ns).kind(), fault::cancelled)
      << "both are dead";
}

TYPED_TEST(QemuRecovery, Q7MemoryOfAHungControllerIsKeptUntilItIsReset) {
  qemu_target on({});
  scattered_pages const data(on.dma(), 4, 9);
  constexpr std::uint64_t second_ns = 1'000'000'000;
  rig r(on, {.pairs = {{4, 4}, {4, 4}},
             .prp_pages = 1,
             .timeout_ns = 1'000'000,
             .controller = {.admin_timeout_ns = second_ns, .ready_timeout_ns = second_ns}});
  tally seen;
  auto const with = this->client_of(r, seen);
  recovery rescue = this->rescue_of(r);
  on.qemu.pause();
  std::uint32_t const record = this->start(r, seen, with.command(nvme::io_opcode::read, 0, 24, data.list(), 4));
  EXPECT_EQ(this->wait(r, seen, record, 1'000'000).kind(), fault::timed_out);
  while (rescue.step()) {
  }
  EXPECT_EQ(rescue.count().controller_resets, 0u) << "it answered nothing, the reset neither";
  EXPECT_EQ(this->wait(r, seen, record, 1'000'000).kind(), fault::timed_out) << "it may still write";
  on.qemu.resume();
  EXPECT_EQ(this->wait_and_recover(r, seen, record, rescue).kind(), fault::cancelled);
  EXPECT_EQ(rescue.count().controller_resets, 1u);
  data.fill(std::byte{0x5a});
  r.recreate();
  this->expect_traffic(on, r, {.rounds = 4, .in_flight = 4, .max_blocks = 24});
  EXPECT_TRUE(data.holds(std::byte{0x5a}));
}

}  // namespace
}  // namespace forebay::queue_test
