// SPDX-License-Identifier: Apache-2.0
//! \file
//! Threads that wait for a drive serve it, and where they do not, the drive's own thread does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/uring.hpp"
#include "emulator/uring_medium.hpp"
#include "fake_medium.hpp"
#include "file_rig.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/waiting_work.hpp"

namespace forebay::emulator {
namespace {

using simt::native;
using testing::file_rig;

constexpr std::uint64_t patience_ns = 20'000'000'000;

/// Notes which threads submit its pieces, and whether a port is used after its last call.
class witness final : public medium {
 public:
  explicit witness(std::byte* bytes) : to_(bytes, {}) {}

  std::unique_ptr<medium_port> open(port_use use) override { return std::make_unique<port>(*this, to_.open(use)); }
  bool saw(std::thread::id thread) {
    std::lock_guard const lock(mutex_);
    return threads_.count(thread) != 0;
  }
  bool was_used_after_its_end() const { return used_after_its_end_; }
  std::size_t threads() {
    std::lock_guard const lock(mutex_);
    return threads_.size();
  }

 private:
  class port final : public medium_port {
   public:
    port(witness& of, std::unique_ptr<medium_port> to) : of_(of), to_(std::move(to)) {}
    bool submit(medium_piece const& what) override {
      {
        std::lock_guard const lock(of_.mutex_);
        of_.threads_.insert(std::this_thread::get_id());
      }
      return to_->submit(what);
    }
    std::size_t collect(std::span<medium_completion> into) override {
      keep_up();
      return to_->collect(into);
    }
    void cancel(std::uint64_t tag) override { to_->cancel(tag); }
    void wait(std::uint64_t) override { std::this_thread::yield(); }
    void keep_up() override {
      if (has_ended_) of_.used_after_its_end_ = true;
    }
    void leave() override { has_ended_ = true; }

   private:
    witness& of_;
    std::unique_ptr<medium_port> to_;
    bool has_ended_ = false;
  };

  std::mutex mutex_;
  std::set<std::thread::id> threads_;
  std::atomic<bool> used_after_its_end_{false};
  testing::fake_medium<native> to_;
};

class witnessed_store final : public backing_store {
 public:
  explicit witnessed_store(std::shared_ptr<witness> pieces) : pieces_(std::move(pieces)) {}
  media view() override { return {.bytes = bytes, .sync = &sync_, .pieces = pieces_.get()}; }
  bool sync() override { return true; }
  static constexpr std::size_t bytes = std::size_t{1} << 20;

 private:
  std::shared_ptr<witness> pieces_;
  sync_words sync_;
};

class waiters_test : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes = std::vector<std::byte>(witnessed_store::bytes);
  std::shared_ptr<witness> pieces = std::make_shared<witness>(bytes.data());

  std::shared_ptr<subsystem> make(subsystem_options options = {}) {
    options.max_queues = 1;
    options.waiters_serve = true;
    return std::make_shared<subsystem>(options, std::make_unique<witnessed_store>(pieces));
  }
  static void write_and_read(file_rig& rig) {
    for (std::uint64_t page = 0; page < 64; ++page) {
      std::memset(rig.data(), static_cast<int>(page + 1), 4096);
      ASSERT_EQ(rig.run(nvme::io_opcode::write, page), 0);
    }
    for (std::uint64_t page = 0; page < 64; ++page) {
      ASSERT_EQ(rig.run(nvme::io_opcode::read, page), 0);
      ASSERT_EQ(rig.data()[4095], static_cast<char>(page + 1));
    }
  }
};

TEST_F(waiters_test, serve_a_drive_that_its_medium_alone_makes_wait) {
  file_rig rig(make());
  EXPECT_TRUE(rig.drive->waiters_serve());
  write_and_read(rig);
  EXPECT_TRUE(pieces->saw(std::this_thread::get_id()));
}

TEST_F(waiters_test, do_not_serve_a_drive_that_has_times_to_keep) {
  subsystem_options options;
  options.timing.read.latency_min_ps = 1'000'000;
  file_rig rig(make(options));
  EXPECT_FALSE(rig.drive->waiters_serve());
  write_and_read(rig);
  EXPECT_FALSE(pieces->saw(std::this_thread::get_id()));
  EXPECT_EQ(pieces->threads(), 1u);
}

TEST_F(waiters_test, do_not_serve_unless_the_clients_threads_are_of_this_process) {
  subsystem_options options;
  options.max_queues = 1;
  file_rig rig(std::make_shared<subsystem>(options, std::make_unique<witnessed_store>(pieces)));
  EXPECT_FALSE(rig.drive->waiters_serve());
  write_and_read(rig);
  EXPECT_FALSE(pieces->saw(std::this_thread::get_id()));
}

// As when a client computes while its commands are under way.
TEST_F(waiters_test, are_not_needed) {
  file_rig rig(make());
  write_and_read(rig);
  for (int i = 0; i < 20; ++i) {
    std::uint32_t const number = rig.submit(nvme::io_opcode::read, 5);
    std::uint64_t const until_ns = native::clock_ns() + patience_ns;
    while (!rig.status_of(number) && native::clock_ns() < until_ns) std::this_thread::yield();
    ASSERT_EQ(rig.status_of(number), 0);
  }
}

TEST_F(waiters_test, may_be_many) {
  file_rig rig(make());
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] { EXPECT_TRUE(native::wait_until([&] { return over.load(); }, simt::no_deadline)); });
  }
  for (int round = 0; round < 20; ++round) write_and_read(rig);
  over = true;
  for (std::thread& other : others) other.join();
}

TEST_F(waiters_test, may_wait_while_drives_are_opened_and_closed) {
  std::atomic<bool> over{false};
  std::thread other([&] { EXPECT_TRUE(native::wait_until([&] { return over.load(); }, simt::no_deadline)); });
  subsystem_options options;
  options.units = 8;  // of which the first have ended while the last go on
  for (int round = 0; round < 20; ++round) {
    file_rig rig(make(options));
    ASSERT_EQ(rig.run(nvme::io_opcode::read, 0), 0);
  }
  over = true;
  other.join();
  EXPECT_FALSE(pieces->was_used_after_its_end());
}

/// A port that any thread may use, of a file of `file_bytes` bytes.
class uring_port_test : public ::testing::Test {
 protected:
  static constexpr std::uint64_t file_bytes = std::uint64_t{4} << 20;
  int file = -1;
  file_health health;
  std::unique_ptr<uring_medium> medium;
  std::unique_ptr<medium_port> port;

  void SetUp() override {
    if (std::string const why = uring::why_not(uring_medium::most_pieces); !why.empty()) GTEST_SKIP() << why;
    std::string path = ::testing::TempDir() + "forebay-waiters-XXXXXX";
    file = mkstemp(path.data());
    ASSERT_GE(file, 0) << path;
    unlink(path.c_str());
    ASSERT_EQ(ftruncate(file, file_bytes), 0);
    medium = medium_of({.fd = file, .bytes = file_bytes, .health = &health});
    port = medium->open(port_use::by_any_thread);
  }
  void TearDown() override {
    if (port) port->leave();
    port.reset();
    if (file >= 0) close(file);
  }
  /// Waits for so many pieces, which must succeed.
  void complete(std::size_t count) {
    std::array<medium_completion, 64> completions;
    std::uint64_t const until_ns = native::clock_ns() + patience_ns;
    std::size_t done = 0;
    while (done < count && native::clock_ns() < until_ns) {
      done += port->collect(std::span(completions).first(count).subspan(done));
      if (done < count) port->wait(10'000'000);
    }
    ASSERT_EQ(done, count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(completions[i].status_field, 0) << completions[i].tag;
  }
};

// The kernel carries out such requests with threads that belong to the one that submitted them.
TEST_F(uring_port_test, a_thread_may_end_before_what_it_submitted) {
  constexpr std::size_t pieces = 16;
  std::vector<std::byte> const data(file_bytes, std::byte{7});
  for (int round = 0; round < 20; ++round) {
    std::array<dma_segment, pieces> segments;
    std::thread([&] {
      for (std::size_t i = 0; i < pieces; ++i) {
        std::uint64_t const bytes = file_bytes / pieces;
        segments[i] = {reinterpret_cast<std::uint64_t>(data.data() + i * bytes), bytes};
        EXPECT_TRUE(port->submit({.operation = medium_operation::write,
                                  .offset_bytes = i * bytes,
                                  .bytes = bytes,
                                  .segments = {&segments[i], 1},
                                  .through = true,
                                  .tag = 2 * i}));
        EXPECT_TRUE(port->submit({.operation = medium_operation::durable, .tag = 2 * i + 1}));
      }
    }).join();
    ASSERT_NO_FATAL_FAILURE(complete(2 * pieces));
  }
  std::vector<std::byte> found(file_bytes);
  ASSERT_EQ(pread(file, found.data(), file_bytes, 0), static_cast<ssize_t>(file_bytes));
  EXPECT_TRUE(found == data);
}

// The kernel completes it in the thread that submitted it, which must not have to enter the kernel for that.
TEST_F(uring_port_test, a_thread_may_compute_after_what_it_submitted) {
  std::atomic<bool> submitted{false}, over{false};
  std::thread other([&] {
    for (std::uint64_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(port->submit({.operation = medium_operation::durable, .tag = i}));
    }
    submitted = true;
    while (!over) {
    }
  });
  while (!submitted) std::this_thread::yield();
  complete(8);
  over = true;
  other.join();
}

}  // namespace
}  // namespace forebay::emulator
