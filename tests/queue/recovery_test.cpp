// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the host does with the requests of waiters that gave up, against a drive that completes nothing.
#include "forebay/detail/queue/recovery.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/token.hpp"

namespace forebay {
namespace {

using native = simt::native;

/// The time of the recovery under test.
std::uint64_t now_ns = 0;

constexpr std::uint64_t timeout_ns = 1'000'000'000;

/// The request that a waiter leaves behind for the command that has the id on the first pair.
void post(io_queues const& queues, std::uint32_t id) {
  queues.state()->mailbox.post<native>({0, id, command_slot::time_of(queues.command_word(0, id))});
}

/// One queue pair of an emulated drive that withholds every command. A waiter may ask for any of them at any time.
struct silent_drive {
  emulator::controller drive{{.faults = {.withhold_ppm = 1'000'000}}, emulator::no_backing(1 << 20, 512)};
  driver::controller controller{drive.registers(), drive.dma()};
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 8});
  io_queues queues{
      std::array{queue_pair_rings{queue.submission_ring(), queue.completion_ring(), queue.sq_tail_doorbell(),
                                  queue.cq_head_doorbell(), queue.entries(), queue.completion_entries(), queue.id()}},
      {.records = 8, .timeout_ns = timeout_ns},
      memory::host(),
      memory::host()};
  std::vector<std::string> events;
  recovery host{{{&queues, {{&controller, &queue, "silent"}}}},
                {.clock_ns = [] { return now_ns; }, .tell = [this](std::string const& e) { events.push_back(e); }}};
  std::uint64_t submitted = 0;

  io_queues_ref<native> ref() const { return queues.ref<native>(); }
  /// The record of a command that the drive has taken.
  std::uint32_t submit() {
    std::uint32_t const record = ref().records().try_open(1);
    std::uint32_t home = 0;
    EXPECT_TRUE(ref().submit({0, 1}, home, {}, record, native::clock_ns()).ok());
    ++submitted;
    EXPECT_TRUE(native::wait_until([&] { return drive.shared().collect()->commands.withheld == submitted; },
                                   native::clock_ns() + 10'000'000'000));
    return record;
  }
  /// What the waiter of `record` leaves behind when its deadline passes, without its look at the queue.
  void give_up(std::uint32_t record) const { post(queues, ref().pair(0).find_command(record, 0)); }
  void answer_all() {
    while (host.step()) {
    }
  }
  status wait(std::uint32_t record) const {
    return token<native>(ref(), record, {0, 1}).wait(native::clock_ns() + 10'000'000'000);
  }
};

TEST(Recovery, AbortsACommandWhoseWaiterGaveUp) {
  silent_drive silent;
  std::uint32_t const record = silent.submit();
  silent.give_up(record);
  silent.answer_all();
  EXPECT_EQ(silent.host.count().aborts, 1u);
  EXPECT_EQ(silent.wait(record), status(fault::cancelled));
  now_ns += 10 * timeout_ns;
  silent.answer_all();
  EXPECT_EQ(silent.host.count().queues_deleted, 0u);
  EXPECT_EQ(silent.events,
            (std::vector<std::string>{
                "drive 'silent': Flush 0x0 of queue 1, which did not complete within 60000 ms: aborted"}));
}

TEST(Recovery, AnAbortedCommandWhoseCompletionNobodyHasFetchedKeepsItsQueue) {
  silent_drive silent;
  std::uint32_t const record = silent.submit();
  silent.give_up(record);
  silent.answer_all();
  ASSERT_EQ(silent.host.count().aborts, 1u);
  for (int hours = 0; hours < 10; ++hours) {
    now_ns += 3600 * timeout_ns;
    silent.answer_all();
  }
  EXPECT_EQ(silent.host.count().queues_deleted, 0u);
  EXPECT_EQ(silent.wait(record), status(fault::cancelled));
}

/// A controller whose drive never gets its commands, so that it cannot abort them.
struct deaf_drive : silent_drive {
  /// `through`: the relay of its completions.
  explicit deaf_drive(completion_relay* through = nullptr) : relay(through) {}

  completion_relay* relay;
  std::uint32_t nowhere = 0;
  io_queues unheard{
      std::array{queue_pair_rings{queue.submission_ring(), queue.completion_ring(), &nowhere, queue.cq_head_doorbell(),
                                  queue.entries(), queue.completion_entries(), queue.id()}},
      {.records = 8, .timeout_ns = timeout_ns},
      memory::host(),
      memory::host()};
  recovery of_unheard{
      {{&unheard, {{&controller, &queue, "deaf", relay}}}},
      {.clock_ns = [] { return now_ns; }, .tell = [this](std::string const& e) { events.push_back(e); }}};

  /// Submits a command, and leaves the request that its waiter would leave when its deadline passes.
  std::uint32_t submit_and_give_up() {
    auto const ref = unheard.ref<native>();
    std::uint32_t const record = ref.records().try_open(1);
    std::uint32_t home = 0;
    EXPECT_TRUE(ref.submit({0, 1}, home, {.opcode = nvme::io_opcode::read}, record, native::clock_ns()).ok());
    ask(record);
    return record;
  }
  void ask(std::uint32_t record) const {
    auto const ref = unheard.ref<native>();
    post(unheard, ref.pair(0).find_command(record, 0));
  }
  status wait_for(std::uint32_t record) const {
    return token<native>(unheard.ref<native>(), record, {0, 1}).wait(native::clock_ns() + 10'000'000'000);
  }
};

TEST(Recovery, AQueueIsDeletedOnlyATimeoutAfterTheAbort) {
  deaf_drive deaf;
  std::uint32_t const record = deaf.submit_and_give_up();
  // However often it is asked.
  for (int polls = 0; polls < 100; ++polls) {
    deaf.ask(record);
    while (deaf.of_unheard.step()) {
    }
    now_ns += timeout_ns / 100 - 1;
  }
  EXPECT_EQ(deaf.events.size(), 1u);
  EXPECT_EQ(deaf.of_unheard.count().queues_deleted, 0u);
  EXPECT_FALSE(deaf.unheard.ref<native>().pair(0).dead());
  // The last that asked has looked late enough.
  now_ns += 100;
  EXPECT_TRUE(deaf.of_unheard.step());
  EXPECT_EQ(deaf.of_unheard.count().queues_deleted, 1u);
  EXPECT_EQ(deaf.wait_for(record), status(fault::cancelled));
  EXPECT_EQ(deaf.events.back(),
            "drive 'deaf': command 0x0 of queue 1, which did not complete within 1000 ms: did not end after its abort: "
            "its queue is deleted");
}

TEST(Recovery, AQueueIsDeclaredDeadOnceTheRelayOfItsCompletionsHasCaughtUp) {
  for (bool const steps : {true, false}) {
    std::atomic<bool> flushed = false, dead_before = false;
    deaf_drive* drive = nullptr;
    completion_relay relay(memory::host(), [&] {
      bool const dead = drive->unheard.ref<native>().pair(0).dead();
      if (!flushed.exchange(true)) dead_before = dead;
    });
    deaf_drive deaf(&relay);
    drive = &deaf;
    if (!steps) relay.end();
    std::jthread const relaying([&](std::stop_token const& stop) {
      while (!stop.stop_requested() && steps) relay.step();
    });
    std::uint32_t const record = deaf.submit_and_give_up();
    for (int round = 0; round < 2; ++round) {
      while (deaf.of_unheard.step()) {
      }
      now_ns += timeout_ns;
      deaf.ask(record);
    }
    while (deaf.of_unheard.step()) {
    }
    EXPECT_EQ(deaf.of_unheard.count().queues_deleted, 1u);
    EXPECT_EQ(deaf.wait_for(record), status(fault::cancelled));
    EXPECT_EQ(flushed, steps);
    EXPECT_FALSE(dead_before);
    bool const told = std::find(deaf.events.begin(), deaf.events.end(),
                                "drive 'deaf': the relay of its completions did not catch up within 1000 ms; commands "
                                "that have completed may end as cancelled") != deaf.events.end();
    EXPECT_EQ(told, !steps);
  }
}

TEST(Recovery, ARequestThatIsHeardLateEndsNoOtherCommand) {
  deaf_drive deaf;
  (void)deaf.submit_and_give_up();
  // Before the host looks, the command ends, and another command has its id and its record.
  deaf.unheard.state()->pairs[0].commands[0].word += std::uint64_t{1} << 32;
  while (deaf.of_unheard.step()) {
  }
  now_ns += timeout_ns;
  EXPECT_FALSE(deaf.of_unheard.step());
  EXPECT_TRUE(deaf.events.empty());
}

TEST(Recovery, AnotherCommandThatHasTheSameIdAndRecordStartsAfresh) {
  deaf_drive deaf;
  std::uint32_t const record = deaf.submit_and_give_up();
  while (deaf.of_unheard.step()) {
  }
  ASSERT_EQ(deaf.events.size(), 1u);
  // It ends, and what follows is submitted a moment later under the same id for the same record.
  command_slot& slot = deaf.unheard.state()->pairs[0].commands[0];
  slot.word += std::uint64_t{1} << 32;
  now_ns += timeout_ns;
  EXPECT_FALSE(deaf.of_unheard.step()) << "the queue of a healthy command is deleted";
  deaf.ask(record);
  EXPECT_TRUE(deaf.of_unheard.step());
  EXPECT_EQ(deaf.events.size(), 2u) << "it is aborted when its time has come";
  EXPECT_EQ(deaf.of_unheard.count().queues_deleted, 0u);
}

TEST(Recovery, AQueueWhoseCommandsSeveralWaitersGaveUpIsDeletedOnce) {
  deaf_drive deaf;
  std::array const records = {deaf.submit_and_give_up(), deaf.submit_and_give_up(), deaf.submit_and_give_up()};
  for (int round = 0; round < 2; ++round) {
    while (deaf.of_unheard.step()) {
    }
    now_ns += timeout_ns;
    for (std::uint32_t const record : records) deaf.ask(record);
  }
  while (deaf.of_unheard.step()) {
  }
  EXPECT_EQ(deaf.of_unheard.count().queues_deleted, 1u);
  EXPECT_EQ(deaf.of_unheard.count().controller_resets, 0u);
  EXPECT_TRUE(deaf.unheard.ref<native>().pair(0).dead());
  for (std::uint32_t const record : records) EXPECT_EQ(deaf.wait_for(record), status(fault::cancelled));
}

TEST(Recovery, ALimitThatAgesDoNotReachIsCountedFromTheFirstRequestOn) {
  constexpr std::uint64_t hour_ns = 3'600'000'000'000;
  deaf_drive deaf;
  deaf.unheard.set_limits({hour_ns, hour_ns});
  (void)deaf.submit_and_give_up();
  while (deaf.of_unheard.step()) {
  }
  EXPECT_TRUE(deaf.events.empty());
  now_ns += hour_ns - 1;
  EXPECT_FALSE(deaf.of_unheard.step());
  ++now_ns;
  EXPECT_TRUE(deaf.of_unheard.step());
  EXPECT_EQ(deaf.events.size(), 1u);
}

TEST(Recovery, AQueueLostInAResetIsDeclaredDead) {
  silent_drive silent;
  std::uint32_t const record = silent.submit();
  silent.controller.reset();
  silent.give_up(record);
  silent.answer_all();
  EXPECT_EQ(silent.wait(record).kind(), fault::cancelled);
  EXPECT_EQ(silent.host.count().controller_resets, 0u);
}

/// A medium whose write-back takes until a test lets it end.
class slow_store final : public emulator::backing_store {
 public:
  struct gate {
    std::atomic<bool> open = false;
    std::atomic<int> waiting = 0;
  };
  explicit slow_store(gate& g) : gate_(g) {}
  emulator::media view() override { return {bytes_.data(), bytes_.size(), 512, &words_}; }
  memory::resource& where() override { return memory::host(); }
  bool sync() override {
    ++gate_.waiting;
    while (!gate_.open) std::this_thread::yield();
    --gate_.waiting;
    return true;
  }

 private:
  gate& gate_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
  emulator::sync_words words_;
};

TEST(Recovery, ADriveWhoseFileTakesLongToWriteIsAliveAndNotReset) {
  slow_store::gate gate;
  emulator::controller drive({}, std::make_unique<slow_store>(gate));
  driver::controller controller(drive.registers(), drive.dma());
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 8});
  io_queues queues(
      std::array{queue_pair_rings{queue.submission_ring(), queue.completion_ring(), queue.sq_tail_doorbell(),
                                  queue.cq_head_doorbell(), queue.entries(), queue.completion_entries(), queue.id()}},
      {.records = 8, .timeout_ns = timeout_ns, .flush_timeout_ns = timeout_ns}, memory::host(), memory::host());
  recovery host{{{&queues, {{&controller, &queue, "file"}}}}, {.clock_ns = [] { return now_ns; }, .tell = {}}};
  auto const ref = queues.ref<native>();
  auto const start = [&](nvme::io_opcode opcode) {
    std::uint32_t const record = ref.records().try_open(1);
    std::uint32_t home = 0;
    EXPECT_TRUE(ref.submit({0, 1}, home, {.opcode = opcode, .blocks = 1}, record, native::clock_ns()).ok());
    return record;
  };
  auto const end = [&](std::uint32_t record) {
    return token<native>(ref, record, {0, 1}).wait(native::clock_ns() + 60'000'000'000);
  };
  struct opener {
    slow_store::gate& of;
    ~opener() { of.open = true; }
  } const whatever_happens{gate};
  std::uint32_t const flush = start(nvme::io_opcode::flush);
  ASSERT_TRUE(native::wait_until([&] { return gate.waiting != 0; }, native::clock_ns() + 60'000'000'000));
  post(queues, ref.pair(0).find_command(flush, 0));
  while (host.step()) {
  }
  EXPECT_EQ(host.count().aborts, 1u);
  EXPECT_EQ(end(flush), status(fault::cancelled));
  // All this while the file is being written.
  EXPECT_TRUE(end(start(nvme::io_opcode::write_zeroes)).ok());
  now_ns += 10 * timeout_ns;
  while (host.step()) {
  }
  EXPECT_EQ(host.count().queues_deleted, 0u);
  EXPECT_EQ(host.count().controller_resets, 0u);
  EXPECT_NE(gate.waiting, 0);
  gate.open = true;
  EXPECT_TRUE(end(start(nvme::io_opcode::flush)).ok());
}

/// Registers of a controller that stops answering, or leaves the bus.
class failing_registers final : public driver::register_space {
 public:
  enum class failure : std::uint8_t { none, silent, removed };
  explicit failing_registers(driver::register_space& real) : real_(real) {}
  std::uint32_t read32(std::uint32_t offset_bytes) override {
    return fails == failure::removed ? ~0u : real_.read32(offset_bytes);
  }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    if (fails == failure::none) real_.write32(offset_bytes, value);
  }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return real_.doorbell(offset_bytes); }

  failure fails = failure::none;

 private:
  driver::register_space& real_;
};

/// A drive that withholds every command, with a queue for kernels and one for the host.
struct shared_drive {
  emulator::controller drive{{.faults = {.withhold_ppm = 1'000'000}}, emulator::no_backing(1 << 20, 512)};
  failing_registers registers{drive.registers()};
  driver::controller controller{
      registers,
      drive.dma(),
      {.admin_timeout_ns = 20'000'000, .shutdown_timeout_ns = 20'000'000, .ready_timeout_ns = 20'000'000}};
  driver::io_queue of_kernels = controller.create_io_queue_pair({.entries = 8});
  driver::io_queue of_host = controller.create_io_queue_pair({.entries = 8});

  ~shared_drive() { registers.fails = failing_registers::failure::none; }
};

/// Two of them, and the queues of kernels and of the host over both.
struct two_drives {
  shared_drive one, two;
  io_queues kernels = queues_of(one.of_kernels, two.of_kernels);
  io_queues host = queues_of(one.of_host, two.of_host);
  std::vector<std::string> events;
  recovery rescue{{{&kernels, {{&one.controller, &one.of_kernels, "one"}, {&two.controller, &two.of_kernels, "two"}}},
                   {&host, {{&one.controller, &one.of_host, "one"}, {&two.controller, &two.of_host, "two"}}}},
                  {.clock_ns = [] { return now_ns; }, .tell = [this](std::string const& e) { events.push_back(e); }}};

  static io_queues queues_of(driver::io_queue const& a, driver::io_queue const& b) {
    auto const rings = [](driver::io_queue const& q) {
      return queue_pair_rings{q.submission_ring(),
                              q.completion_ring(),
                              q.sq_tail_doorbell(),
                              q.cq_head_doorbell(),
                              q.entries(),
                              q.completion_entries(),
                              q.id()};
    };
    return io_queues(std::array{rings(a), rings(b)}, {.records = 8, .timeout_ns = timeout_ns}, memory::host(),
                     memory::host());
  }
  /// A command of a kernel's to drive one, whose waiter gives up.
  std::uint32_t submit_and_give_up() const {
    auto const ref = kernels.ref<native>();
    std::uint32_t const record = ref.records().try_open(1);
    std::uint32_t home = 0;
    EXPECT_TRUE(ref.submit({0, 1}, home, {.opcode = nvme::io_opcode::read}, record, native::clock_ns()).ok());
    ask(record);
    return record;
  }
  void ask(std::uint32_t record) const { post(kernels, kernels.ref<native>().pair(0).find_command(record, 0)); }
  /// Of kernels, then of the host: whether the pairs of both drives are declared dead.
  std::string dead() const {
    std::string all;
    for (io_queues const* const queues : {&kernels, &host}) {
      for (std::uint32_t pair = 0; pair < 2; ++pair) all += queues->ref<native>().pair(pair).dead() ? 'd' : '-';
    }
    return all;
  }
  status wait_for(std::uint32_t record) const {
    return token<native>(kernels.ref<native>(), record, {0, 1}).wait(native::clock_ns() + 10'000'000'000);
  }
};

TEST(Recovery, AResetThatFailsLeavesTheMemoryToTheController) {
  two_drives both;
  std::uint32_t const record = both.submit_and_give_up();
  both.one.registers.fails = failing_registers::failure::silent;
  while (both.rescue.step()) {
  }
  EXPECT_EQ(both.rescue.count().controller_resets, 0u);
  EXPECT_EQ(both.dead(), "----") << "it may write there at any time";
  EXPECT_FALSE(both.events.empty());

  // It comes back: then one reset ends its queues, those of the host too, and none of the other drive.
  both.one.registers.fails = failing_registers::failure::none;
  now_ns += timeout_ns;
  both.ask(record);
  while (both.rescue.step()) {
  }
  EXPECT_EQ(both.rescue.count().controller_resets, 1u);
  EXPECT_EQ(both.dead(), "d-d-");
  EXPECT_EQ(both.wait_for(record), status(fault::cancelled));
}

TEST(Recovery, ACommandOfAControllerThatLeftTheBusIsCancelled) {
  two_drives both;
  std::uint32_t const record = both.submit_and_give_up();
  both.one.registers.fails = failing_registers::failure::removed;
  while (both.rescue.step()) {
  }
  EXPECT_EQ(both.rescue.count().controller_resets, 0u);
  EXPECT_EQ(both.dead(), "d-d-");
  EXPECT_EQ(both.wait_for(record), status(fault::cancelled));
}

TEST(Recovery, CommandsOfADriveThatHasGoneDoNotWaitForTheirTime) {
  two_drives both;
  auto const ref = both.kernels.ref<native>();
  std::uint32_t const record = ref.records().try_open(1);
  std::uint32_t home = 0;
  ASSERT_TRUE(ref.submit({0, 1}, home, {.opcode = nvme::io_opcode::flush}, record, native::clock_ns()).ok());
  both.one.registers.fails = failing_registers::failure::removed;
  now_ns += recovery::look_interval_ns;
  both.rescue.step();  // nobody has asked
  EXPECT_EQ(both.dead(), "d-d-");
  EXPECT_EQ(both.wait_for(record), status(fault::cancelled));
  EXPECT_EQ(both.events, std::vector<std::string>{"drive 'one': has gone; its commands are cancelled"});
  now_ns += recovery::look_interval_ns;
  both.rescue.step();
  EXPECT_EQ(both.events.size(), 1u) << "it is told once";
}

}  // namespace
}  // namespace forebay
