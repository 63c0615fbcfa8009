// SPDX-License-Identifier: Apache-2.0
//! \file
//! The promise of a Flush while an emulated drive writes its file back: it covers its own writes, and forgets no
//! failure.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "forebay/token.hpp"

namespace forebay {
namespace {

using native = simt::native;

constexpr std::uint64_t patience_ns = 60'000'000'000;

/// A medium whose write-backs a test lets end, one at a time, well or not.
class stepped_store final : public emulator::backing_store {
 public:
  struct steps {
    std::atomic<int> begun = 0;
    std::atomic<int> may_end = 0;
    std::atomic<bool> fails = false;
  };
  explicit stepped_store(steps& s) : steps_(s) {}
  emulator::media view() override { return {bytes_.data(), bytes_.size(), 512, &words_}; }
  bool sync() override {
    int const mine = ++steps_.begun;
    while (steps_.may_end < mine) std::this_thread::yield();
    return !steps_.fails;
  }

 private:
  steps& steps_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
  emulator::sync_words words_;
};

struct written_back : testing::Test {
  static constexpr int all = 1 << 20;

  ~written_back() override { steps.may_end = all; }
  std::uint32_t flush() {
    auto const ref = queues.ref<native>();
    std::uint32_t const record = ref.records().try_open(1);
    std::uint32_t home = 0;
    EXPECT_TRUE(ref.submit({0, 1}, home, {}, record, native::clock_ns()).ok());
    return record;
  }
  status end(std::uint32_t record) const {
    return token<native>(queues.ref<native>(), record, {0, 1}).wait(native::clock_ns() + patience_ns);
  }
  bool is_over(std::uint32_t record) const { return token<native>(queues.ref<native>(), record, {0, 1}).ready(); }
  bool have_begun(int syncs) const {
    return native::wait_until([&] { return steps.begun >= syncs; }, native::clock_ns() + patience_ns);
  }

  stepped_store::steps steps;
  emulator::controller drive{{}, std::make_unique<stepped_store>(steps)};
  driver::controller controller{drive.registers(), drive.dma()};
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 8});
  io_queues queues{
      std::array{queue_pair_rings{queue.submission_ring(), queue.completion_ring(), queue.sq_tail_doorbell(),
                                  queue.cq_head_doorbell(), queue.entries(), queue.completion_entries(), queue.id()}},
      {.records = 8},
      memory::host(),
      memory::host()};
};

TEST_F(written_back, a_flush_that_comes_while_the_file_is_written_waits_for_the_next_time) {
  std::uint32_t const first = flush();
  ASSERT_TRUE(have_begun(1));
  std::uint32_t const second = flush();
  // The drive has taken it, since it answers an admin command that comes after it.
  (void)controller.identify_namespace(1);
  steps.may_end = 1;
  EXPECT_EQ(to_string(end(first)), "success");
  ASSERT_TRUE(have_begun(2));
  EXPECT_FALSE(is_over(second)) << "what was written before it may not be in the file";
  steps.may_end = 2;
  EXPECT_EQ(to_string(end(second)), "success");
}

TEST_F(written_back, a_failure_is_told_and_never_forgotten) {
  steps.may_end = all;
  EXPECT_EQ(to_string(end(flush())), "success");
  steps.fails = true;
  EXPECT_FALSE(end(flush()).ok());
  // Data that could not be written then is lost, whatever happens to later writes.
  steps.fails = false;
  for (int more = 0; more < 3; ++more) EXPECT_FALSE(end(flush()).ok());
}

TEST_F(written_back, a_shutdown_waits_for_the_file_and_the_controller_answers_meanwhile) {
  std::uint32_t const record = flush();
  ASSERT_TRUE(have_begun(1));
  for (int k = 0; k < 10; ++k) EXPECT_EQ(controller.identify_namespace(1).nsze, (1u << 20) / 512);
  EXPECT_FALSE(is_over(record));
  steps.may_end = all;
  EXPECT_EQ(to_string(end(record)), "success");
  int const before = steps.begun;
  controller.shutdown();
  EXPECT_GT(steps.begun, before);
}

}  // namespace
}  // namespace forebay
