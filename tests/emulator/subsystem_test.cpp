// SPDX-License-Identifier: Apache-2.0
//! \file
//! The behaviour of a subsystem whose engine does not answer, or fails.
#include "forebay/detail/emulator/subsystem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

namespace registers = nvme::registers;
using simt::native;

/// Host memory that counts how much of it is allocated.
class counted_memory final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::host().kind(); }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    void* const address = memory::host().allocate(bytes, alignment_bytes);
    ++taken;
    return address;
  }
  void deallocate(void* address) noexcept override {
    --taken;
    memory::host().deallocate(address);
  }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override {
    memory::host().copy_in(to, from_host, bytes);
  }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override {
    memory::host().copy_out(to_host, from, bytes);
  }
  std::atomic<int> taken{0};
};

enum class behaviour { answers, silent, fails, takes_no_request };

/// An engine that serves nothing, and answers as a test wants.
class stub_engine final : public engine_runner, public io_engine {
 public:
  explicit stub_engine(std::shared_ptr<std::atomic<behaviour>> does) : does_(std::move(does)) {}
  io_engine& engine() override { return *this; }
  void hold() override {}
  void release() noexcept override {}

  void attach_completion_queue(completion_queue_addresses const&) override {}
  void attach_submission_queue(submission_queue_addresses const&) override {}
  bool begin_detach(std::uint32_t, bool) override {
    if (*does_ == behaviour::fails) throw operation_failed("the GPU is lost");
    return *does_ != behaviour::takes_no_request;
  }
  void begin_abort(std::uint32_t, std::uint16_t) override {}
  bool answered(std::uint32_t, bool*) override { return *does_ == behaviour::answers; }
  std::uint64_t invalid_doorbells() override { return 0; }
  void order_data() override {}
  void collect(statistics&) override {}

 private:
  std::shared_ptr<std::atomic<behaviour>> does_;
};

class subsystem_test : public ::testing::Test {
 protected:
  void make(std::uint64_t leave_timeout_ns, std::unique_ptr<backing_store> store = no_backing(1 << 20, 512)) {
    subsystem_options options;
    options.serial = "SERIAL7";
    options.max_queues = 4;
    options.leave_timeout_ns = leave_timeout_ns;
    drive = std::make_shared<subsystem>(options, std::move(store),
                                        [&](auto const&, auto const&) { return std::make_unique<stub_engine>(does); });
  }
  std::unique_ptr<controller> join() { return std::make_unique<controller>(drive, 2, *client_memory); }
  static bool eventually(auto&& predicate) {
    return native::wait_until(predicate, native::clock_ns() + 20'000'000'000);
  }
  static nvme::controller_status status_of(controller& of) { return {of.registers().read32(registers::csts)}; }

  /// Enables the controller, and creates I/O queue pair 1.
  static void bring_up(controller& of) {
    auto& regs = of.registers();
    auto* const asq = static_cast<nvme::submission_entry*>(of.dma().allocate(4096));
    auto* const acq = static_cast<nvme::completion_entry*>(of.dma().allocate(4096));
    void* const rings = of.dma().allocate(8192);
    regs.write32(registers::aqa, nvme::admin_queue_attributes::make(8, 8));
    regs.write64(registers::asq, reinterpret_cast<std::uint64_t>(asq));
    regs.write64(registers::acq, reinterpret_cast<std::uint64_t>(acq));
    regs.write32(registers::cc, nvme::controller_configuration::make(true, 4096));
    ASSERT_TRUE(eventually([&] { return status_of(of).ready(); }));
    asq[0].cdw0 = static_cast<std::uint8_t>(nvme::admin_opcode::create_io_completion_queue);
    asq[1].cdw0 = static_cast<std::uint8_t>(nvme::admin_opcode::create_io_submission_queue);
    for (int i = 0; i < 2; ++i) {
      asq[i].prp1 = reinterpret_cast<std::uint64_t>(rings) + static_cast<std::uint64_t>(i) * 4096;
      asq[i].cdw10 = 1 | 7u << 16;
      asq[i].cdw11 = i == 0 ? 1 : 1 | 1u << 16;
    }
    regs.write32(registers::sq_tail_doorbell(0, 0), 2);
    // Acquire: pairs with the controller's release of the same word.
    ASSERT_TRUE(
        eventually([&] { return (std::atomic_ref(acq[1].dw3).load(std::memory_order_acquire) >> 16 & 1) == 1; }));
    ASSERT_EQ(acq[0].status_field(), 0);
    ASSERT_EQ(acq[1].status_field(), 0);
  }

  std::shared_ptr<std::atomic<behaviour>> does = std::make_shared<std::atomic<behaviour>>(behaviour::answers);
  /// Never destroyed, like the memory that a controller keeps.
  counted_memory* const client_memory = &kept_memory();
  std::shared_ptr<subsystem> drive;

 private:
  static counted_memory& kept_memory() {
    static auto& of_all = *new std::vector<std::unique_ptr<counted_memory>>;
    return *of_all.emplace_back(std::make_unique<counted_memory>());
  }
};

constexpr std::uint64_t never_ns = 3'600'000'000'000;
constexpr std::uint64_t at_once_ns = 1'000'000;

TEST_F(subsystem_test, a_controller_that_goes_gives_back_its_memory_and_its_queue_pairs) {
  make(never_ns);
  auto client = join();
  bring_up(*client);
  EXPECT_EQ(drive->free_queues(), 2u);
  EXPECT_TRUE(client->leave());
  EXPECT_TRUE(client->leave()) << "which it says again";
  EXPECT_EQ(client_memory->taken, 0);
  EXPECT_EQ(drive->free_queues(), 4u);
}

TEST_F(subsystem_test, a_controller_leaves_an_engine_that_does_not_answer_and_what_the_engine_may_touch_stays) {
  for (behaviour const what : {behaviour::silent, behaviour::takes_no_request}) {
    *does = behaviour::answers;
    make(at_once_ns);
    auto client = join();
    bring_up(*client);
    int const taken = client_memory->taken;
    *does = what;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(client->leave());
    client.reset();
    std::string const told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(client_memory->taken, taken);
    EXPECT_EQ(drive->free_queues(), 2u) << "no other controller gets queues that the engine serves still";
    EXPECT_EQ(
        told,
        "forebay: drive SERIAL7: its engine does not answer: the memory of a controller that has gone is kept, and "
        "2 queue pairs stay taken\n");
    *does = behaviour::answers;
    drive.reset();
    EXPECT_EQ(client_memory->taken, taken) << "too late: the owner of that memory may have gone";
  }
}

TEST_F(subsystem_test, a_controller_that_never_had_a_queue_leaves_an_engine_that_does_not_answer) {
  make(never_ns);
  *does = behaviour::silent;
  auto client = join();
  EXPECT_TRUE(client->leave());
  EXPECT_EQ(client_memory->taken, 0);
}

TEST_F(subsystem_test, an_engine_that_fails_shows_as_a_fatal_status_and_nobody_waits_for_it) {
  make(never_ns);
  auto client = join();
  auto other = join();
  bring_up(*client);
  bring_up(*other);
  *does = behaviour::fails;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(client->leave());
  EXPECT_TRUE(status_of(*other).fatal());
  int const taken = client_memory->taken;
  EXPECT_FALSE(other->leave());
  EXPECT_EQ(client_memory->taken, taken);
  try {
    join();
    ADD_FAILURE() << "a controller of a drive whose engine has failed";
  } catch (operation_failed const& failed) {
    EXPECT_STREQ(failed.what(), "the engine of the drive has failed: the GPU is lost");
  }
  std::string const told = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(told.starts_with("forebay: drive SERIAL7: its engine has failed: the GPU is lost\n")) << told;
}

/// A store that cannot be written back.
class lost_store final : public backing_store {
 public:
  explicit lost_store(bool throws) : throws_(throws) {}
  media view() override { return {nullptr, 1 << 20, 512, &words_}; }
  bool sync() override {
    if (throws_) throw operation_failed("the GPU is lost");
    return false;
  }

 private:
  bool throws_;
  sync_words words_;
};

TEST_F(subsystem_test, a_shutdown_that_cannot_write_back_is_a_fatal_status) {
  make(never_ns, std::make_unique<lost_store>(false));
  auto const one = join();
  bring_up(*one);
  auto& regs = one->registers();
  regs.write32(registers::cc, nvme::controller_configuration::with_shutdown(regs.read32(registers::cc),
                                                                            nvme::shutdown_notification::normal));
  ASSERT_TRUE(eventually([&] { return status_of(*one).shutdown() == nvme::shutdown_status::complete; }));
  EXPECT_TRUE(status_of(*one).fatal());
  regs.write32(registers::cc, 0);
  EXPECT_TRUE(eventually([&] { return regs.read32(registers::csts) == 0; }));
}

/// Like a file whose pages were lost on the way to the disk: the first sync reports it, and the next one succeeds.
class once_lost_store final : public backing_store {
 public:
  media view() override { return {nullptr, 1 << 20, 512, &words_}; }
  bool sync() override { return std::exchange(synced_, true); }

 private:
  bool synced_ = false;
  sync_words words_;
};

TEST_F(subsystem_test, a_shutdown_that_could_not_write_back_is_not_forgotten_at_the_end) {
  make(never_ns, std::make_unique<once_lost_store>());
  {
    auto const one = join();
    bring_up(*one);
    auto& regs = one->registers();
    regs.write32(registers::cc, nvme::controller_configuration::with_shutdown(regs.read32(registers::cc),
                                                                              nvme::shutdown_notification::normal));
    ASSERT_TRUE(eventually([&] { return status_of(*one).shutdown() == nvme::shutdown_status::complete; }));
    EXPECT_TRUE(status_of(*one).fatal());
  }
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(drive->close());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("what was written since the last good flush is lost"));
}

/// Like a copy in the memory of a GPU that could not be read once: what it was to write back is no longer marked.
class once_unreadable_store final : public backing_store {
 public:
  media view() override { return {nullptr, 1 << 20, 512, &words_}; }
  bool sync() override {
    if (std::exchange(read_, true)) return true;
    throw operation_failed("the GPU did not answer");
  }

 private:
  bool read_ = false;
  sync_words words_;
};

TEST_F(subsystem_test, a_write_back_that_could_not_be_tried_is_not_forgotten_at_the_end) {
  make(never_ns, std::make_unique<once_unreadable_store>());
  ::testing::internal::CaptureStderr();
  {
    auto const one = join();
    bring_up(*one);
    auto& regs = one->registers();
    regs.write32(registers::cc, nvme::controller_configuration::with_shutdown(regs.read32(registers::cc),
                                                                              nvme::shutdown_notification::normal));
    ASSERT_TRUE(eventually([&] { return status_of(*one).fatal(); }));
  }
  EXPECT_FALSE(drive->close());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("what was written since the last good flush is lost"));
}

TEST_F(subsystem_test, what_cannot_be_written_back_at_the_end_is_told) {
  for (bool const throws : {false, true}) {
    make(never_ns, std::make_unique<lost_store>(throws));
    ::testing::internal::CaptureStderr();
    drive.reset();
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("what was written since the last good flush is lost"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace forebay::emulator
