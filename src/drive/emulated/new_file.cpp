// SPDX-License-Identifier: Apache-2.0
#include "new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "emulator/block_device.hpp"
#include "forebay/error.hpp"

namespace forebay::drive {
namespace {

/// 0, or an error of the system.
int reserve(int fd, std::uint64_t bytes) {
  while (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) return 0;  // a file system that reserves nothing
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// What a Flush makes durable is lost with the file if its name is. Returns 0, or an error of the system.
int sync_with_name(int fd, std::string const& path) {
  if (fsync(fd) != 0) return errno;
  std::string const folder = std::filesystem::path(path).parent_path().string();
  int const at = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return 0;  // it may be written and not read: this process has no way to ask for more
  int const error = fsync(at) == 0 ? 0 : errno;
  close(at);
  return error == EINVAL ? 0 : error;  // a file system that has no such thing
}

}  // namespace

new_file::new_file(std::string path, std::uint64_t bytes, file_space space) : path_(std::move(path)) {
  int const fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    throw refused_input(
        "path", path_,
        errno != EEXIST ? std::string(std::strerror(errno)) + "; give a path in a folder that you may write"
        : emulator::is_block_device(path_) ? "is a block device, which has its size; open it without create"
                                           : "the file exists; remove it first");
  }
  int error = ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (error == 0 && space == file_space::reserved) error = reserve(fd, bytes);
  if (error == 0) error = sync_with_name(fd, path_);
  close(fd);
  if (error == 0) return;
  unlink(path_.c_str());
  if (error == ENOSPC || error == EDQUOT) {
    throw refused_input("size", std::to_string(bytes),
                        fmt::format("cannot make {}: {}; make room, or give less", path_, std::strerror(error)));
  }
  throw operation_failed(fmt::format("cannot make {} of {} bytes: {}", path_, bytes, std::strerror(error)));
}

new_file::~new_file() {
  if (!kept_) unlink(path_.c_str());
}

}  // namespace forebay::drive
