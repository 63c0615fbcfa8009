// SPDX-License-Identifier: Apache-2.0
#include "emulator/left_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace forebay::emulator {
namespace {

class left_lock_test : public ::testing::Test {
 protected:
  left_lock_test() { mine = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }
  ~left_lock_test() override {
    ::close(mine);
    std::filesystem::remove(path);
  }
  bool can_lock() const { return ::flock(mine, LOCK_EX | LOCK_NB) == 0; }

  std::string path =
      (std::filesystem::path(::testing::TempDir()) / ("forebay-left-lock-" + std::to_string(::getpid()))).string();
  int mine = -1;
};

TEST_F(left_lock_test, is_not_there_without_a_lock_or_while_its_process_lives) {
  EXPECT_FALSE(is_lock_left_over(mine));
  int const other = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_FALSE(can_lock());
  EXPECT_FALSE(is_lock_left_over(mine));
  ::close(other);
  EXPECT_TRUE(can_lock());
}

TEST_F(left_lock_test, is_that_of_a_process_which_has_ended_while_the_system_still_has_its_file) {
  int hold[2];
  ASSERT_EQ(::pipe2(hold, O_CLOEXEC), 0);
  pid_t const locker = ::fork();
  if (locker == 0) {
    int const file = ::open(path.c_str(), O_RDWR);
    if (::flock(file, LOCK_EX) != 0) ::_exit(1);
    // Keeps the file open as a request under way does.
    if (::fork() == 0) {
      ::close(hold[1]);
      char none = 0;
      (void)!::read(hold[0], &none, 1);
    }
    ::_exit(0);
  }
  int status = 0;
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(locker), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(is_lock_left_over(mine)) << "its parent has not waited for it";
  ASSERT_EQ(::waitpid(locker, &status, 0), locker);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(can_lock());
  EXPECT_TRUE(is_lock_left_over(mine));
  ::close(hold[1]);
  EXPECT_EQ(::flock(mine, LOCK_EX), 0) << "waits for the last that has the file open";
  EXPECT_FALSE(is_lock_left_over(mine));
  ::close(hold[0]);
}

}  // namespace
}  // namespace forebay::emulator
