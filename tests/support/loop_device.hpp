// SPDX-License-Identifier: Apache-2.0
//! \file
//! Block devices over files, for tests that run as root.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace forebay::test {

/// A file as a block device. The system detaches it when the last program has closed it, however this one ends.
class loop_device {
 public:
  /// Where no device can be made, `path()` is empty, and `why_not()` says why.
  explicit loop_device(std::string const& file, std::uint32_t block_bytes = 512, bool read_only = false) {
    loop_config config{};
    int const backing = ::open(file.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    int const control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    config.fd = static_cast<std::uint32_t>(backing);
    config.block_size = block_bytes;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
    // Another program may take the same free device.
    for (int attempt = 0; attempt < 100 && control >= 0 && fd_ < 0; ++attempt) {
      int const number = ::ioctl(control, LOOP_CTL_GET_FREE);
      if (number < 0) break;
      path_ = "/dev/loop" + std::to_string(number);
      fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
      if (fd_ < 0) break;
      if (::ioctl(fd_, LOOP_CONFIGURE, &config) == 0) break;
      int const error = errno;
      ::close(fd_);
      fd_ = -1;
      errno = error;
      if (error != EBUSY) break;
    }
    why_not_ = std::string("no loop device can be made here: ") + std::strerror(errno);
    if (fd_ < 0) path_.clear();
    if (control >= 0) ::close(control);
    if (backing >= 0) ::close(backing);
  }
  ~loop_device() {
    if (fd_ >= 0) ::close(fd_);
  }
  loop_device(loop_device const&) = delete;
  loop_device& operator=(loop_device const&) = delete;

  std::string const& path() const { return path_; }
  std::string const& why_not() const { return why_not_; }
  int fd() const { return fd_; }

 private:
  std::string path_, why_not_;
  int fd_ = -1;
};

}  // namespace forebay::test
