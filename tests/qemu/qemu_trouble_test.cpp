// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a storage does when its drive reports errors, is late, stops or is gone, on a controller that this project did
//! not write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "support/qemu_scheme.hpp"

namespace forebay {
namespace {

using simt::native;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t patience_ns = 20'000 * ms;
constexpr std::uint64_t page_bytes = 4096;

storage_options options_of(std::string const& drive, std::uint64_t timeout_ns = patience_ns) {
  test::add_qemu_scheme();
  storage_options o;
  o.drives = {drive};
  o.device = "cpu";
  o.timeout_ns = o.flush_timeout_ns = timeout_ns;
  return o;
}

template <class Code>
std::string text_of(Code code) {
  return to_string(status::from_nvme(nvme::status_field(code)));
}
std::string const success = to_string(status());

nlohmann::json recovery_of(storage const& st) {
  return nlohmann::json::parse(st.report()).at("recovery");
}

/// Errors of the backing store. The parameter is what is added to the drive's URI.
class QemuErrors : public testing::TestWithParam<char const*> {
 protected:
  void SetUp() override { FOREBAY_NEEDS_QEMU(); }
  static std::string drive(std::string const& rules) { return "qemu:size=8M,fail=" + rules + GetParam(); }
};

TEST_P(QemuErrors, ReachTheCallerWithTheirStatusAndRulesForOnceRecover) {
  // Bytes 1 MiB and 2 MiB.
  storage st(options_of(drive("read@2048:5:once+write@4096:28")));
  auto const ref = st.ref<native>();
  registered_buffer const buffer = st.allocate_buffer(256 << 10);
  auto const read = [&](std::uint64_t at, std::uint64_t bytes) {
    return to_string(ref.read_async(buffer.ref(), at, bytes).wait());
  };
  auto const write = [&](std::uint64_t at, std::uint64_t bytes) {
    return to_string(ref.write_async(buffer.ref(), at, bytes).wait());
  };
  // The error is in one of the request's commands, if a command moves less.
  EXPECT_EQ(read((1 << 20) - (128 << 10), 256 << 10), text_of(nvme::media_status::unrecovered_read_error));
  EXPECT_EQ(read((1 << 20) - (128 << 10), 256 << 10), success) << "the rule was for once";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(write((2 << 20) - (128 << 10), 256 << 10), text_of(nvme::media_status::write_fault));
    EXPECT_EQ(write((2 << 20) - (128 << 10), 128 << 10), success) << "it ends before the sector";
    EXPECT_EQ(write((2 << 20) + page_bytes, 128 << 10), success) << "it begins behind the sector";
  }
  EXPECT_EQ(recovery_of(st), (nlohmann::json{{"aborts", 0}, {"controller_resets", 0}, {"queues_deleted", 0}}));
}

TEST_P(QemuErrors, ReachTheHostsCallsWithTheirPlace) {
  storage st(options_of(drive("read@2048:5:once+flush:5:once")));
  std::vector<std::byte> bytes(page_bytes);
  EXPECT_THAT([&] { st.pread(bytes.data(), bytes.size(), 1 << 20); },
              ThrowsMessage<operation_failed>(
                  AllOf(HasSubstr("at 1048576"), HasSubstr("qemu:size=8M"), HasSubstr("nrecovered read error"))));
  EXPECT_NO_THROW(st.pread(bytes.data(), bytes.size(), 1 << 20));
  st.pwrite(bytes.data(), bytes.size(), 0);
  EXPECT_THAT([&] { st.flush(); }, ThrowsMessage<operation_failed>(HasSubstr("flush of drive 'qemu:size=8M")));
  EXPECT_NO_THROW(st.flush());
}

TEST_P(QemuErrors, OfAPageReachTheThreadThatReadsIt) {
  storage_options o = options_of(drive("read@2048:5:once"));
  o.cache.size_bytes = 64 * page_bytes;
  storage st(o);
  auto const words = st.ref<native, cached>().array<std::uint64_t const>();
  auto page = words.thread_page();
  constexpr std::uint64_t bad = (1 << 20) / sizeof(std::uint64_t);
  EXPECT_EQ(to_string(page.seek(bad)), text_of(nvme::media_status::unrecovered_read_error));
  EXPECT_EQ(to_string(page.seek(bad)), success) << "the next thread that wants the page reads it again";
}

INSTANTIATE_TEST_SUITE_P(Shapes, QemuErrors, testing::Values("", ",lba_bytes=4096", ",mdts=1,nsid=2"),
                         [](auto const& shape) { return "shape" + std::to_string(shape.index); });

class QemuTrouble : public testing::Test {
 protected:
  void SetUp() override { FOREBAY_NEEDS_QEMU(); }
};

/// With one pair of queues, of the two least depths: one and two commands at a time.
TEST_F(QemuTrouble, ACommandThatIsHeldDelaysNoOtherThatHasAnEntry) {
  for (std::uint32_t const depth : {2u, 3u}) {
    SCOPED_TRACE(depth);
    storage_options o = options_of("qemu:size=4M,hold=1,as=held");
    o.queues.per_drive = depth == 2 ? 2 : 1;
    o.queues.depth = depth;
    storage st(o);
    auto const ref = st.ref<native>();
    registered_buffer const one = st.allocate_buffer(page_bytes), others = st.allocate_buffer(page_bytes);
    test::qemu_nvme& qemu = test::opened_qemu("held");
    qemu.hold("read_aio");
    auto held = ref.read_async(one.ref(), 0, page_bytes);
    for (std::uint64_t i = 1; i < 20; ++i) {
      ASSERT_EQ(to_string(ref.read_async(others.ref(), i * page_bytes, page_bytes).wait()), success);
    }
    EXPECT_FALSE(held.ready());
    qemu.let_go();
    EXPECT_EQ(to_string(held.wait()), success);
  }
}

/// Threads that read until a read fails, or until they are told to stop.
class readers {
 public:
  readers(storage& st, int threads)
      : storage_(st), buffer_(st.allocate_buffer(static_cast<std::size_t>(threads) * 8 * page_bytes)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { run(static_cast<std::uint64_t>(i)); });
    }
  }
  ~readers() { end(); }
  /// Waits until the drive has answered some reads, so that more are under way.
  bool are_at_work() const {
    return native::wait_until([&] { return done_ > 100; }, native::clock_ns() + patience_ns);
  }
  void end() {
    stop_ = true;
    join();
  }
  /// Waits until a read of each thread has failed. Returns what they said.
  std::vector<std::string> const& failures_of_all() {
    join();
    return failures_;
  }

 private:
  void join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  void run(std::uint64_t which) {
    auto const ref = storage_.ref<native>();
    for (std::uint64_t round = 0; !stop_; ++round) {
      std::uint64_t const at = (which * 31 + round) % 64 * 8 * page_bytes;
      status const outcome =
          ref.read(buffer_.ref().subspan(which * 8 * page_bytes, 8 * page_bytes), at, 8 * page_bytes);
      if (outcome.ok()) {
        ++done_;
        continue;
      }
      std::lock_guard const lock(mutex_);
      failures_.push_back(to_string(outcome));
      return;
    }
  }

  storage& storage_;
  registered_buffer buffer_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<std::string> failures_;
  std::vector<std::thread> threads_;
};

/// Each thread ended with an error that says that the drive did not answer.
void expect_lost(std::vector<std::string> const& failures, int threads) {
  EXPECT_EQ(failures.size(), static_cast<std::size_t>(threads));
  for (std::string const& failure : failures) {
    EXPECT_THAT(failure, AnyOf(to_string(status(fault::timed_out)), to_string(status(fault::cancelled))));
  }
}

/// Long for a drive that is well, even if the machine is busy.
constexpr std::uint64_t deadline_ns = 1'000 * ms;

TEST_F(QemuTrouble, AControllerThatStopsInTheMiddleOfTrafficEndsItByTheDeadlineAndGoesOn) {
  constexpr int threads = 6;
  storage st(options_of("qemu:size=4M,as=stopped", deadline_ns));
  std::vector<std::uint64_t> out(st.size_bytes() / 8), in(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i * 3;
  st.pwrite(out.data(), st.size_bytes(), 0);
  test::qemu_nvme& qemu = test::opened_qemu("stopped");
  {
    readers all(st, threads);
    ASSERT_TRUE(all.are_at_work());
    qemu.pause();
    expect_lost(all.failures_of_all(), threads);
    qemu.resume();
  }
  EXPECT_TRUE(st.drain(patience_ns)) << "nothing stays open";
  readers again(st, threads);
  EXPECT_TRUE(again.are_at_work());
  again.end();
  st.pread(in.data(), st.size_bytes(), 0);
  EXPECT_TRUE(in == out);
}

TEST_F(QemuTrouble, AControllerThatIsKilledInTheMiddleOfTrafficEndsItWithClearErrors) {
  constexpr int threads = 6;
  storage st(options_of("qemu:size=4M,as=killed", deadline_ns));
  readers all(st, threads);
  ASSERT_TRUE(all.are_at_work());
  test::opened_qemu("killed").kill();
  expect_lost(all.failures_of_all(), threads);
  EXPECT_TRUE(st.drain(patience_ns));
  char byte = 0;
  EXPECT_THROW(st.pread(&byte, 1, 0), operation_failed);
  EXPECT_THROW(st.flush(), operation_failed);
}

TEST_F(QemuTrouble, AStorageWhoseControllerHasStoppedCanBeClosed) {
  test::qemu_nvme* qemu = nullptr;
  {
    storage st(options_of("qemu:size=4M,to=1,as=closed", 50 * ms));
    qemu = &test::opened_qemu("closed");
    registered_buffer const buffer = st.allocate_buffer(page_bytes);
    qemu->pause();
    auto read = st.ref<native>().read_async(buffer.ref(), 0, page_bytes);
    EXPECT_EQ(to_string(read.wait()), to_string(status(fault::timed_out)));
  }
  EXPECT_THROW(test::opened_qemu("closed"), std::out_of_range);
}

}  // namespace
}  // namespace forebay
