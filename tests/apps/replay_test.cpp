// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "apps/replay/kernel.hpp"
#include "apps/virtual_time.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/storage_ref.hpp"
#include "support/controller_rig.hpp"
#include "support/memory_storage.hpp"

namespace forebay::replay {
namespace {

using testing::memory_buffer;
using testing::memory_drive;
using testing::memory_request;
using testing::memory_storage_ref;
using testing::memory_token;

using M = testing::virtual_time;
constexpr std::uint64_t us = 1000;

/// All that a launch of one thread needs beside the storage.
template <class Machine, class Storage, class Buffer>
struct one_thread {
  using kernel_type = kernel<Machine, Storage, Buffer>;

  thread_result run(Storage storage, Buffer buffer, workload work, std::span<operation const> trace) {
    work.operations = trace.size();
    control shared;
    std::vector<typename kernel_type::slot_type> slots(work.iodepth);
    std::vector<thread_result> results(work.threads);
    std::vector<std::uint32_t> written(4096), before(work.iodepth * work.snapshot_words());
    kernel_type{storage,        buffer,
                work,           trace.data(),
                &shared,        slots.data(),
                results.data(), {reads.bins.data(), writes.bins.data(), flushes.bins.data(), lag.bins.data()},
                written.data(), before.data()}();
    epoch_ns = shared.epoch_ns;
    return results[0];
  }

  apps::latency_distribution reads, writes, flushes, lag;
  std::uint64_t epoch_ns = 0;
};

class replay : public ::testing::Test {
 protected:
  replay() {
    M::now_ns = 5'000'000;
    M::before_waiting = nullptr;
    drive.contents.resize(64 << 10);
    work = {.slot_bytes = 4096, .timeout_ns = 1'000'000 * us, .lag_bound_ns = 20 * us, .iodepth = 4};
    drive.looks = [this](std::size_t) {
      submitted_us.push_back((M::now_ns - 5'000'000) / us);
      return looks;
    };
  }
  thread_result run() {
    std::vector<std::byte> memory(work.iodepth * work.slot_bytes);
    return launch.run(memory_storage_ref(drive), {memory.data(), memory.size()}, work, trace);
  }
  void add(operation_kind kind, std::uint64_t offset_bytes, std::uint64_t bytes, std::uint64_t at_us = 0) {
    trace.push_back({offset_bytes, bytes, at_us * us, kind, static_cast<std::uint32_t>(trace.size() + 1)});
  }
  /// Operations of all kinds and lengths.
  void add_mix(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      auto const kind = i % 7 == 6 ? operation_kind::flush : i % 3 == 0 ? operation_kind::write : operation_kind::read;
      add(kind, i * 1536 % (32 << 10), kind == operation_kind::flush ? 0 : (1 + i % 8) * 512);
    }
  }

  memory_drive drive;
  workload work;
  std::vector<operation> trace;
  std::vector<std::uint64_t> submitted_us;
  std::uint32_t looks = 0;  ///< how often each operation is found not to be ready
  one_thread<M, memory_storage_ref, memory_buffer> launch;
};

TEST_F(replay, closed_loop_submits_every_operation_in_trace_order_and_keeps_iodepth_in_flight) {
  add_mix(500);
  drive.looks = [](std::size_t n) { return static_cast<std::uint32_t>(n % 5); };  // out of order
  auto const r = run();
  ASSERT_EQ(drive.requests.size(), 500u);
  std::uint64_t reads = 0, writes = 0, flushes = 0, read_bytes = 0, write_bytes = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    memory_request const& got = drive.requests[i];
    EXPECT_EQ(got.is_write, trace[i].kind == operation_kind::write) << i;
    EXPECT_EQ(got.is_flush, trace[i].kind == operation_kind::flush) << i;
    EXPECT_EQ(got.bytes, trace[i].bytes) << i;
    if (got.is_flush) {
      ++flushes;
      continue;
    }
    EXPECT_EQ(got.offset_bytes, trace[i].offset_bytes) << i;
    (got.is_write ? writes : reads) += 1;
    (got.is_write ? write_bytes : read_bytes) += got.bytes;
  }
  EXPECT_EQ(r.read.completion.count, reads);
  EXPECT_EQ(r.write.completion.count, writes);
  EXPECT_EQ(r.flush.completion.count, flushes);
  EXPECT_EQ(r.read_bytes, read_bytes);
  EXPECT_EQ(r.write_bytes, write_bytes);
  EXPECT_EQ(r.errors, 0u);
  EXPECT_EQ(r.lag.count, 0u);
  EXPECT_EQ(drive.most_in_flight, 4u);
  EXPECT_EQ(drive.in_flight, 0u);
}

TEST_F(replay, closed_loop_waits_with_less_than_iodepth_in_flight_only_where_the_trace_ends) {
  add_mix(200);
  drive.looks = [](std::size_t n) { return static_cast<std::uint32_t>(1 + n % 5); };
  std::uint32_t waits = 0;
  M::before_waiting = [&] {
    ++waits;
    EXPECT_EQ(drive.in_flight, std::min<std::size_t>(4, drive.in_flight + 200 - drive.requests.size()));
  };
  run();
  EXPECT_GE(waits, 50u);
  EXPECT_EQ(drive.requests.size(), 200u);
}

TEST_F(replay, open_loop_submits_each_operation_when_it_is_due) {
  std::vector<std::uint64_t> const due_us = {0, 0, 30, 31, 500, 7000, 7000, 7000, 7001};
  for (std::uint64_t at_us : due_us) add(operation_kind::read, 0, 512, at_us);
  work.open_loop = true;
  looks = 2;
  auto const r = run();
  EXPECT_EQ(submitted_us, due_us);
  EXPECT_EQ(r.lag.count, 9u);
  EXPECT_EQ(r.lag.max_ns, 0u);
  EXPECT_EQ(r.above_bound, 0u);
}

TEST_F(replay, open_loop_says_how_late_each_operation_was) {
  for (std::uint64_t i = 0; i < 5; ++i) add(operation_kind::write, i * 512, 512, i * 10);
  work.open_loop = true;
  work.lag_bound_ns = 30 * us;
  work.iodepth = 1;  // and each operation takes 40 microseconds
  looks = 41;
  auto const r = run();
  EXPECT_EQ(submitted_us, (std::vector<std::uint64_t>{0, 40, 80, 120, 160}));
  EXPECT_EQ(r.lag.count, 5u);
  EXPECT_EQ(r.lag.min_ns, 0u);
  EXPECT_EQ(r.lag.max_ns, 120 * us);
  EXPECT_DOUBLE_EQ(r.lag.mean_ns, 60.0 * us);
  EXPECT_EQ(r.above_bound, 3u);  // 60, 90 and 120, of 0, 30, 60, 90 and 120
  EXPECT_EQ(r.write.completion.count, 5u);
  EXPECT_EQ(launch.lag.bins[apps::latency_bins::index(60 * us)], 1u);
}

TEST_F(replay, open_loop_waits_longer_than_the_timeout_for_the_next_operation) {
  add(operation_kind::read, 0, 512, 0);
  add(operation_kind::read, 0, 512, 10'000);
  work.open_loop = true;
  work.timeout_ns = 100 * us;
  looks = 2;
  auto const r = run();
  EXPECT_EQ(r.errors, 0u);
  EXPECT_EQ(submitted_us, (std::vector<std::uint64_t>{0, 10'000}));
}

TEST_F(replay, an_error_ends_the_replay_and_names_its_line) {
  add_mix(300);
  drive.outcome = [](std::size_t n) { return n == 100 ? status::from_nvme(0x281) : status(); };
  auto const r = run();
  EXPECT_EQ(r.errors, 1u);
  EXPECT_EQ(r.first_error, status::from_nvme(0x281));
  EXPECT_EQ(r.first_error_line, 101u);
  EXPECT_LE(drive.requests.size(), 104u);
  EXPECT_EQ(r.read.completion.count + r.write.completion.count + r.flush.completion.count, drive.requests.size() - 1);
  EXPECT_EQ(drive.in_flight, 0u);
}

TEST_F(replay, an_error_ends_an_open_loop_before_the_next_operation_is_due) {
  add(operation_kind::read, 0, 512, 0);
  add(operation_kind::read, 0, 512, 3600'000'000);
  work.open_loop = true;
  looks = 2;
  drive.outcome = [](std::size_t) { return status::from_nvme(0x281); };
  auto const r = run();
  EXPECT_EQ(r.errors, 1u);
  EXPECT_EQ(drive.requests.size(), 1u);
  EXPECT_LT(M::now_ns, 5'000'000 + 1000 * us);
}

TEST_F(replay, operations_that_never_return_end_the_replay_as_timed_out) {
  add_mix(50);
  drive.looks = [](std::size_t n) { return n >= 20 ? memory_token::never : 0u; };
  auto const r = run();
  EXPECT_EQ(r.first_error, status(fault::timed_out));
  EXPECT_EQ(r.errors, 4u);
  EXPECT_EQ(drive.requests.size(), 24u);
  EXPECT_EQ(drive.in_flight, 0u);
}

TEST_F(replay, verify_checks_the_blocks_that_were_written_before_and_no_others) {
  work.verify = true;
  work.iodepth = 1;
  add(operation_kind::write, 16384 - 512, 1024);  // blocks 31 and 32, in two words of the bitmap
  add(operation_kind::read, 16384 - 1024, 2048);  // blocks 30 to 33
  add(operation_kind::write, 16384 - 512, 512);   // again
  add(operation_kind::read, 16384 - 512, 512);
  add(operation_kind::read, 0, 4096);
  auto const r = run();
  EXPECT_EQ(r.verified_blocks, 3u);
  EXPECT_EQ(r.mismatches, 0u);
}

TEST_F(replay, verify_sees_what_is_wrong) {
  work.verify = true;
  work.iodepth = 1;
  add(operation_kind::write, 0, 4096);
  add(operation_kind::read, 0, 4096);
  drive.tamper = [](memory_request const&, std::span<std::byte> data) { data[5 * 512 + 511] ^= std::byte{0x80}; };
  auto const flipped = run();
  EXPECT_EQ(flipped.verified_blocks, 8u);
  EXPECT_EQ(flipped.mismatches, 1u);
  EXPECT_EQ(flipped.first_mismatch_byte, 5u * 512);

  drive.tamper = [](memory_request const&, std::span<std::byte> data) {
    std::copy_n(data.begin() + 512, 512, data.begin());  // data of another address
  };
  EXPECT_EQ(run().mismatches, 1u);

  drive.tamper = [](memory_request const&, std::span<std::byte> data) { std::ranges::fill(data, std::byte{}); };
  EXPECT_EQ(run().mismatches, 8u);  // writes that were lost
}

TEST_F(replay, verify_expects_nothing_of_a_write_that_had_not_completed_when_the_read_began) {
  work.verify = true;
  work.iodepth = 2;
  add(operation_kind::write, 0, 512);
  add(operation_kind::read, 0, 512);
  looks = 3;
  drive.tamper = [](memory_request const&, std::span<std::byte> data) { std::ranges::fill(data, std::byte{}); };
  auto const r = run();
  EXPECT_EQ(r.verified_blocks, 0u);
  EXPECT_EQ(r.mismatches, 0u);
}

TEST_F(replay, verify_holds_at_any_depth_for_writes_that_overlap) {
  work.verify = true;
  work.iodepth = 16;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    add(i % 2 == 0 ? operation_kind::write : operation_kind::read, i * 7 % 40 * 512, (1 + i % 8) * 512);
  }
  drive.looks = [](std::size_t n) { return static_cast<std::uint32_t>(n * 2654435761u % 11); };
  auto const r = run();
  EXPECT_GT(r.verified_blocks, 1000u);
  EXPECT_EQ(r.mismatches, 0u);
}

/// A drive as a URI opens it, with faults.
class faulty_drive final : public queue_test::target {
 public:
  explicit faulty_drive(emulator::fault_plan const& faults)
      : device_(drive::open("emulated:size=1M", {.faults = faults})) {}
  driver::register_space& registers() override { return device_->registers(); }
  driver::dma_space& dma() override { return device_->dma(); }
  void* allocate_contiguous(std::size_t bytes) override { return device_->dma().allocate(bytes); }
  void hold_next_read() override {}
  status let_go(driver::controller&, std::uint16_t, std::uint16_t) override { return {}; }

 private:
  std::unique_ptr<drive::device> device_;
};

class replay_on_faulty_drive : public replay {
 protected:
  thread_result run_on(emulator::fault_plan const& faults) {
    faulty_drive on(faults);
    queue_test::rig rig(on, {.pairs = {{.sq_entries = 8, .cq_entries = 8}}});
    driver::dma_buffer const memory(on.dma(), work.iodepth * work.slot_bytes);
    storage_layout layout;
    layout.size_bytes = 1 << 20;
    layout.command_bytes_max = 2048;
    layout.nsid = rig.drive().nsid;
    using native = simt::native;
    return one_thread<native, storage_ref<native>, buffer_ref>().run(
        {rig.ref<native>(), layout, 0, layout.size_bytes, true},
        buffer_ref(memory.data(), memory.size_bytes(), memory.bus_address(0)), work, trace);
  }
};

TEST_F(replay_on_faulty_drive, a_command_that_fails_ends_the_replay_with_its_status) {
  work.timeout_ns = 60'000'000'000;
  add_mix(400);
  auto const whole = run_on({});
  EXPECT_EQ(whole.errors, 0u);
  EXPECT_EQ(whole.read.completion.count + whole.write.completion.count + whole.flush.completion.count, 400u);

  emulator::fault_plan faults;
  faults.seed = 1;
  faults.error_ppm = 20'000;  // one command in fifty
  auto const failed = run_on(faults);
  EXPECT_GE(failed.errors, 1u);
  EXPECT_LE(failed.errors, 4u);  // those in flight may fail as well
  EXPECT_EQ(failed.first_error, status::from_nvme(faults.error_status_field));
  EXPECT_GT(failed.first_error_line, 0u);
  EXPECT_LT(failed.read.completion.count + failed.write.completion.count + failed.flush.completion.count, 400u);
}

}  // namespace
}  // namespace forebay::replay
