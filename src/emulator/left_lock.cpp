// SPDX-License-Identifier: Apache-2.0
#include "left_lock.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace forebay::emulator {
namespace {

bool has_ended(pid_t process) {
  if (::kill(process, 0) != 0) return errno == ESRCH;
  // One that its parent has not waited for yet is listed, and holds nothing any more.
  std::ifstream about("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(about, line);
  std::size_t const name_end = line.rfind(')');
  return name_end != std::string::npos && name_end + 2 < line.size() && line[name_end + 2] == 'Z';
}

}  // namespace

bool is_lock_left_over(int fd) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return false;
  // Each line: `1: FLOCK ADVISORY WRITE 708 08:01:12345 0 EOF`. Only the number of the file is compared, since some
  // file systems show another device here than `fstat` does. If it is another file's, a refusal comes later than it
  // could.
  std::string const number = ":" + std::to_string(about.st_ino);
  std::ifstream locks("/proc/locks");
  bool any = false;
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string ordinal, kind, advisory, access, file;
    pid_t process = 0;
    if (!(fields >> ordinal >> kind >> advisory >> access >> process >> file) || kind != "FLOCK") continue;
    if (!file.ends_with(number)) continue;
    if (process <= 0 || !has_ended(process)) return false;
    any = true;
  }
  return any;
}

}  // namespace forebay::emulator
