// SPDX-License-Identifier: Apache-2.0
#include "apps/file_io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::file_io {
namespace {

[[noreturn]] void refuse(std::string const& path, std::string const& remedy) {
  throw refused_input("--filename", path, remedy);
}

std::string remedy_for(int error, bool writable) {
  if (error == ENOENT) return "no such file; make it first, full of bytes: head -c 1G /dev/zero >FILE";
  if (error == EBUSY) return "the device is in use, perhaps mounted; unmount it, or name another";
  return std::string(std::strerror(error)) +
         (writable ? "; give a file that may be written" : "; give a file that may be read");
}

/// What offsets and lengths of direct I/O on an ordinary file are multiples of; 0 where the kernel does not say.
std::uint64_t direct_alignment_bytes([[maybe_unused]] int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx about{};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0)
    return about.stx_dio_offset_align;
#endif
  return 0;
}

/// `once(done)` transfers what is left after `done` bytes, as pread does.
template <class Once>
int whole(std::uint64_t bytes, Once&& once) {
  for (std::uint64_t done = 0; done < bytes;) {
    ssize_t const moved = once(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved == 0 ? EIO : errno;
    done += static_cast<std::uint64_t>(moved);
  }
  return 0;
}

}  // namespace

int read_whole(int descriptor, void* to, std::uint64_t bytes, std::uint64_t offset_bytes) {
  return whole(bytes, [&](std::uint64_t done) {
    return ::pread(descriptor, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset_bytes + done));
  });
}

int write_whole(int descriptor, void const* from, std::uint64_t bytes, std::uint64_t offset_bytes) {
  return whole(bytes, [&](std::uint64_t done) {
    return ::pwrite(descriptor, static_cast<char const*>(from) + done, bytes - done,
                    static_cast<off_t>(offset_bytes + done));
  });
}

file::file(std::string const& path, file_use const& use) : path_(path), use_(use) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) refuse(path, remedy_for(errno, use.writable));
  if (!S_ISREG(about.st_mode) && !S_ISBLK(about.st_mode)) {
    refuse(path, "must be an ordinary file or a block device; give the path of one");
  }
  block_device_ = S_ISBLK(about.st_mode);
  // O_EXCL refuses a block device that is mounted.
  int const flags = (use.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | (block_device_ && use.writable ? O_EXCL : 0);
  descriptor_ = ::open(path.c_str(), flags | (use.direct ? O_DIRECT : 0));
  if (descriptor_ < 0 && use.direct && errno == EINVAL) {
    use_.direct = false;
    descriptor_ = ::open(path.c_str(), flags);
  }
  if (descriptor_ < 0) refuse(path, remedy_for(errno, use.writable));
  try {
    lock();
    examine();
    if (use_.direct && !reads_directly()) leave_direct();
    // As fio does. It means nothing to a file that is opened past the page cache.
    ::posix_fadvise(descriptor_, 0, 0, use_.random ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

file::~file() {
  // A ring that is being taken down holds the file for a while, and with it the lock.
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

void file::lock() const {
  if (::flock(descriptor_, (use_.writable ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return;
  refuse(path_, errno == EWOULDBLOCK ? "a drive or another benchmark has the file open; close that one first"
                                     : fmt::format("cannot be locked: {}; give a file of a file system that has locks",
                                                   std::strerror(errno)));
}

void file::examine() {
  struct stat about{};
  if (::fstat(descriptor_, &about) != 0) refuse(path_, remedy_for(errno, use_.writable));
  if (block_device_) {
    int sector_bytes = 0;
    if (::ioctl(descriptor_, BLKGETSIZE64, &size_bytes_) != 0 || ::ioctl(descriptor_, BLKSSZGET, &sector_bytes) != 0)
      refuse(path_, remedy_for(errno, use_.writable));
    block_bytes_ = std::max<std::uint64_t>(block_bytes_, static_cast<std::uint64_t>(sector_bytes));
  } else {
    size_bytes_ = static_cast<std::uint64_t>(about.st_size);
    constexpr std::uint64_t unit_bytes = 512;  // of st_blocks, on every file system
    has_holes_ = static_cast<std::uint64_t>(about.st_blocks) * unit_bytes < size_bytes_;
    if (use_.direct) block_bytes_ = std::max(block_bytes_, direct_alignment_bytes(descriptor_));
  }
  if (size_bytes_ < block_bytes_) {
    refuse(path_,
           fmt::format("has {} bytes, less than one block of {}; give a longer file", size_bytes_, block_bytes_));
  }
}

/// Some file systems accept the flag and then no transfer.
bool file::reads_directly() const {
  constexpr std::size_t page_bytes = 4096;
  memory::allocation const block(memory::host(), block_bytes_, page_bytes);
  return read_whole(descriptor_, block.data(), block_bytes_, 0) != EINVAL;
}

void file::leave_direct() {
  ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) & ~O_DIRECT);
  use_.direct = false;
}

void file::read(void* data, std::uint64_t bytes, std::uint64_t offset_bytes) const {
  if (int const error = read_whole(descriptor_, data, bytes, offset_bytes)) {
    throw operation_failed(fmt::format("cannot read {} at byte {}: {}", path_, offset_bytes, std::strerror(error)));
  }
}

void file::write(void const* data, std::uint64_t bytes, std::uint64_t offset_bytes) const {
  if (int const error = write_whole(descriptor_, data, bytes, offset_bytes)) {
    throw operation_failed(fmt::format("cannot write {} at byte {}: {}", path_, offset_bytes, std::strerror(error)));
  }
}

}  // namespace forebay::file_io
