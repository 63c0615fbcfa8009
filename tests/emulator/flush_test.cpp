// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a Flush of a drive in a file waits for, and what it says, where the system is slow or fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "file_rig.hpp"
#include "held_syncs.hpp"

namespace forebay::emulator {
namespace {

using nvme::io_opcode;
using testing::file_rig;
using testing::held_syncs;

constexpr std::uint16_t write_fault = nvme::status_field(nvme::media_status::write_fault);

class flush_test : public ::testing::Test {
 protected:
  flush_test() {
    std::ofstream(path_).close();
    std::filesystem::resize_file(path_, 64 * 4096);
    drive = std::make_unique<file_rig>(path_, file_io::mmap);
  }
  ~flush_test() override {
    drive.reset();
    std::filesystem::remove(path_);
  }

  /// Runs commands, so that the engine has looked at those in flight again. Passes for ever if a Flush waits as it
  /// must; sees most of those that do not.
  void let_the_engine_work() {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(drive->run(io_opcode::read, 0), 0);
  }

  std::unique_ptr<file_rig> drive;

 private:
  std::string path_ = (std::filesystem::path(::testing::TempDir()) /
                       ("forebay-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
                        "-" + std::to_string(::getpid())))
                          .string();
};

TEST_F(flush_test, completes_after_a_sync_that_began_after_it) {
  held_syncs syncs;
  EXPECT_EQ(drive->run(io_opcode::write, 1), 0);
  std::uint32_t const first = drive->submit(io_opcode::flush, 0);
  syncs.await_begun(1);
  EXPECT_EQ(drive->run(io_opcode::write, 2), 0) << "a sync holds nothing else up";
  std::uint32_t const second = drive->submit(io_opcode::flush, 0);
  let_the_engine_work();
  EXPECT_FALSE(drive->status_of(first));
  EXPECT_FALSE(drive->status_of(second));

  syncs.end();
  EXPECT_EQ(drive->wait(first), 0);
  syncs.await_begun(2);
  let_the_engine_work();
  EXPECT_FALSE(drive->status_of(second)) << "the sync began before it, and may not have had page 2";
  syncs.end();
  EXPECT_EQ(drive->wait(second), 0);
}

TEST_F(flush_test, fails_with_its_sync_and_so_does_every_later_one) {
  {
    held_syncs syncs;
    EXPECT_EQ(drive->run(io_opcode::write, 1), 0);
    for (int const error : {0, EIO}) {
      std::uint32_t const flush = drive->submit(io_opcode::flush, 0);
      syncs.end(error);
      EXPECT_EQ(drive->wait(flush), error == 0 ? 0 : write_fault);
    }
  }
  // The system has given up the pages that it could not write, and writes no others: its syncs succeed again.
  EXPECT_EQ(drive->run(io_opcode::flush, 0), write_fault);
  EXPECT_EQ(drive->run(io_opcode::write, 2), 0);
  EXPECT_EQ(drive->run(io_opcode::flush, 0), write_fault);
  std::shared_ptr<subsystem> const shared = drive->drive;
  drive.reset();
  EXPECT_FALSE(shared->close()) << "nor is it forgotten at the end";
}

TEST_F(flush_test, that_comes_during_a_sync_that_fails_fails_too) {
  held_syncs syncs;
  std::uint32_t const first = drive->submit(io_opcode::flush, 0);
  syncs.await_begun(1);
  EXPECT_EQ(drive->run(io_opcode::write, 1), 0);
  std::uint32_t const second = drive->submit(io_opcode::flush, 0);
  let_the_engine_work();
  syncs.end(ENOSPC);
  EXPECT_EQ(drive->wait(first), write_fault);
  syncs.end();
  EXPECT_EQ(drive->wait(second), write_fault) << "the failed sync may have given up page 1";
}

}  // namespace
}  // namespace forebay::emulator
