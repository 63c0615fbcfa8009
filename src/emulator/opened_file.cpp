// SPDX-License-Identifier: Apache-2.0
#include "opened_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "block_device.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "left_lock.hpp"

namespace forebay::emulator {
namespace {

constexpr std::uint32_t most_block_bytes = 4096;  // that a drive can have
constexpr std::uint64_t udev_patience_ns = 2'000'000'000;
constexpr std::uint64_t left_over_patience_ns = 10'000'000'000;

constexpr char const* or_only_read = ", or, if it need not be written, open the storage read-only and unserved";
constexpr char const* needs_writing =
    "; give a file that may be written, or, if it need not be, open the storage read-only and unserved";

/// What is neither an ordinary file nor a block device; null: one of the two.
char const* unfit_kind(mode_t mode) {
  if (S_ISREG(mode) || S_ISBLK(mode)) return nullptr;
  if (S_ISDIR(mode)) return "is a directory";
  if (S_ISFIFO(mode)) return "is a FIFO";
  if (S_ISSOCK(mode)) return "is a socket";
  if (S_ISCHR(mode)) return "is a character device";
  return "is of an unknown kind";
}

/// Refuses what `path` names if it is of another kind: to open some of those waits, or does something.
struct stat look_at(std::string const& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) {
    throw refused_input("path", path,
                        errno == ENOENT ? "no such file; make it with create=1 and size= in a file: URI, or with "
                                          "`forebay drive create` of the Python package"
                                        : std::string(std::strerror(errno)) + "; give the path of a file");
  }
  if (char const* const unfit = unfit_kind(about.st_mode)) {
    throw refused_input("path", path, std::string(unfit) + "; give the path of an ordinary file or of a block device");
  }
  return about;
}

std::string why_not_opened(int error, struct stat const& about, bool read_only) {
  if (S_ISBLK(about.st_mode) && error == EBUSY) {
    std::string const user = user_of_device(about.st_rdev);
    return (user.empty() ? "another program, perhaps another drive, has the device for itself" : user) +
           "; end that first" + or_only_read;
  }
  return std::string(std::strerror(error)) + (read_only ? "; give a file that may be read" : needs_writing);
}

direct_alignment alignment_of(int fd, std::uint32_t device_block_bytes) {
  direct_alignment direct{device_block_bytes, device_block_bytes};
  struct statx about{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) != 0 || (about.stx_mask & STATX_DIOALIGN) == 0) {
    return direct;
  }
  direct.memory_bytes = about.stx_dio_mem_align;
  if (device_block_bytes == 0) direct.offset_bytes = about.stx_dio_offset_align;
  return direct;
}

}  // namespace

opened_file::opened_file(file_request const& request) : path_(request.path), read_only_(request.read_only) {
  open(request);
  try {
    check_size(request);
    lock();
    check_contents(request);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

opened_file::~opened_file() {
  if (fd_ >= 0) ::close(fd_);
}

opened_file::opened_file(opened_file&& other) noexcept
    : path_(std::move(other.path_)),
      read_only_(other.read_only_),
      is_block_device_(other.is_block_device_),
      fd_(std::exchange(other.fd_, -1)),
      file_bytes_(other.file_bytes_),
      drive_bytes_(other.drive_bytes_),
      direct_(other.direct_) {}

void opened_file::open(file_request const& request) {
  struct stat const about = look_at(path_);
  is_block_device_ = S_ISBLK(about.st_mode);
  if (!request.allow_destroy.empty()) {
    if (!is_block_device_) {
      throw refused_input("allow_destroy", request.allow_destroy, "is only for a block device; leave it out");
    }
    if (request.allow_destroy != path_ && !device_has_name(about.st_rdev, request.allow_destroy)) {
      throw refused_input("allow_destroy", request.allow_destroy,
                          "does not name the device that is opened; give its path, '" + path_ +
                              "', its name in /dev/disk/by-id, its WWN or its serial number");
    }
  }
  bool const exclusive = is_block_device_ && !read_only_;
  // Without O_NONBLOCK a FIFO that has come to this place since would wait for its other end.
  fd_ = ::open(path_.c_str(), (read_only_ ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK | (exclusive ? O_EXCL : 0));
  if (fd_ < 0) throw refused_input("path", path_, why_not_opened(errno, about, read_only_));
  struct stat opened{};
  if (::fstat(fd_, &opened) != 0 || opened.st_dev != about.st_dev || opened.st_ino != about.st_ino) {
    ::close(fd_);
    throw refused_input("path", path_, "another file took its place while it was opened; open it again");
  }
  file_bytes_ = static_cast<std::uint64_t>(opened.st_size);
}

void opened_file::check_size(file_request const& request) {
  std::uint32_t device_block_bytes = 0;
  if (is_block_device_) {
    device_shape const shape = shape_of_device(fd_);
    file_bytes_ = shape.bytes;
    device_block_bytes = shape.block_bytes;
    if (shape.is_protected && !read_only_) {
      throw refused_input("path", path_, std::string("the device is write protected") + needs_writing);
    }
    if (request.block_bytes % device_block_bytes != 0) {
      throw refused_input("lba_bytes", std::to_string(request.block_bytes),
                          "a block of the device has " + std::to_string(device_block_bytes) + " bytes; " +
                              (device_block_bytes <= most_block_bytes
                                   ? "give lba_bytes=" + std::to_string(device_block_bytes)
                                   : "give a device whose blocks have at most " + std::to_string(most_block_bytes)));
    }
  }
  if (file_bytes_ == 0) {
    throw refused_input("path", path_,
                        is_block_device_ ? "the device has no medium; give one that has a size"
                                         : "the file is empty; remove it, and make it with create=1 and size= in a "
                                           "file: URI, or with `forebay drive create` of the Python package");
  }
  std::uint64_t const beyond = file_bytes_ % request.block_bytes;
  drive_bytes_ = beyond == 0 ? file_bytes_ : file_bytes_ - beyond + request.block_bytes;
  if (request.drive_bytes != 0 && request.drive_bytes != drive_bytes_) {
    throw refused_input("size", std::to_string(request.drive_bytes),
                        "the file has " + std::to_string(file_bytes_) + " bytes; leave size out to take that");
  }
  direct_ = alignment_of(fd_, device_block_bytes);
}

void opened_file::lock() const {
  int error = 0;
  auto const try_it = [&] {
    error = ::flock(fd_, (read_only_ ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 ? 0 : errno;
    return error != EWOULDBLOCK;
  };
  auto const waits = [&](auto const& until, std::uint64_t patience_ns) {
    return simt::native::wait_until(until, simt::native::clock_ns() + patience_ns);
  };
  // udev locks a device while it looks at it, which it does whenever a program that could write it has closed it.
  bool decided = try_it() || (is_block_device_ && waits(try_it, udev_patience_ns));
  // The requests of a process that has ended may still write. It looks before it tries: the lock may go in between.
  bool left_over = false;
  auto const try_while_left_over = [&] {
    left_over = is_lock_left_over(fd_);
    return try_it() || !left_over;
  };
  if (!decided) decided = waits(try_while_left_over, left_over_patience_ns) && error != EWOULDBLOCK;
  if (decided && error == 0) return;
  if (left_over && error == EWOULDBLOCK) {
    throw refused_input("path", path_,
                        "the system still works on requests of a process that had the " +
                            std::string(is_block_device_ ? "device" : "file") +
                            " open and has ended; try again later, and look at the disk if that goes on");
  }
  throw refused_input(
      "path", path_,
      error != EWOULDBLOCK
          ? std::string("cannot be locked: ") + std::strerror(error) + "; give a file of a file system that has locks"
          : std::string("another drive has the ") + (is_block_device_ ? "device" : "file") +
                " open; close that one first");
}

/// The last check: the device is this drive's alone, so nobody makes a file system there meanwhile.
void opened_file::check_contents(file_request const& request) const {
  if (!is_block_device_ || read_only_ || !request.allow_destroy.empty()) return;
  auto const refuse = [&](std::string const& why) {
    throw refused_input("path", path_,
                        why + "; to allow that, add allow_destroy=" + path_ + " to the URI" + or_only_read);
  };
  std::vector<std::string> found;
  try {
    found = signatures_on(fd_);
  } catch (operation_failed const& failed) {
    refuse("nobody knows whether there is data on the device (" + std::string(failed.what()) +
           "), which a drive would overwrite");
  }
  if (found.empty()) return;
  std::string all = found[0];
  for (std::size_t i = 1; i < found.size(); ++i) all += (i + 1 == found.size() ? " and " : ", ") + found[i];
  refuse("there is data on the device (" + all + "), which a drive would overwrite");
}

}  // namespace forebay::emulator
