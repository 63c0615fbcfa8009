// SPDX-License-Identifier: Apache-2.0
#include "uring_store.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "forebay/detail/memory/machine.hpp"
#include "uring.hpp"
#include "uring_medium.hpp"

namespace forebay::emulator {
namespace {

/// A second description of an opened file, for direct I/O.
class direct_descriptor {
 public:
  explicit direct_descriptor(opened_file const& file) {
    struct statfs system{};
    // Of a block device the system tells what its name lies in, and /dev is in memory.
    if (!file.is_block_device() && fstatfs(file.fd(), &system) == 0 &&
        (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
      why_not_ = "the file system is memory";
      return;
    }
    std::string const again = "/proc/self/fd/" + std::to_string(file.fd());
    fd_ = open(again.c_str(), (file.read_only() ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_DIRECT);
    if (fd_ < 0) {
      why_not_ = errno == EINVAL ? "the file system has no direct I/O"
                                 : std::string("it cannot be opened again: ") + std::strerror(errno);
      return;
    }
    alignment_ = file.direct();
    if (alignment_.offset_bytes != 0) return;
    // The kernel (before 6.1) or the file system does not say. The block size of the file system is always enough.
    struct stat about{};
    bool const known = fstat(fd_, &about) == 0 && about.st_blksize > 0;
    alignment_.memory_bytes = alignment_.offset_bytes = known ? static_cast<std::uint32_t>(about.st_blksize) : 4096;
  }
  ~direct_descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  direct_descriptor(direct_descriptor const&) = delete;
  direct_descriptor& operator=(direct_descriptor const&) = delete;

  int fd() const { return fd_; }
  direct_alignment alignment() const { return alignment_; }
  std::string const& why_not() const { return why_not_; }

 private:
  int fd_ = -1;
  direct_alignment alignment_{};
  std::string why_not_;
};

/// Why the kernel does not poll the device of a file, or empty.
std::string why_not_polled_on(opened_file const& file) {
  struct stat about{};
  if (fstat(file.fd(), &about) != 0) return "the system does not say on which device the file is";
  dev_t const device = file.is_block_device() ? about.st_rdev : about.st_dev;
  std::string const of_device =
      "/sys/dev/block/" + std::to_string(major(device)) + ':' + std::to_string(minor(device)) + '/';
  for (char const* const queue : {"queue", "../queue"}) {  // the second: of a partition
    std::ifstream setting(of_device + queue + "/io_poll");
    int polls = 0;
    if (setting >> polls) return polls != 0 ? "" : "the device has no queues for polling";
  }
  return "the system does not say whether the device has queues for polling";
}

class store final : public backing_store {
 public:
  store(opened_file file, std::uint32_t block_bytes, std::string why)
      : file_(std::move(file)),
        block_bytes_(block_bytes),
        why_(std::move(why)),
        direct_(file_),
        why_not_polled_(direct_.fd() < 0 ? "there is no direct I/O" : why_not_polled_on(file_)),
        medium_(medium_of({.fd = file_.fd(),
                           .direct_fd = direct_.fd(),
                           .offset_alignment_bytes = direct_.alignment().offset_bytes,
                           .memory_alignment_bytes = direct_.alignment().memory_bytes,
                           .bytes = file_.file_bytes(),
                           .can_be_cut = !file_.is_block_device(),
                           .polled = why_not_polled_.empty(),
                           .health = &health_})) {}

  media view() override {
    return {.bytes = file_.drive_bytes(),
            .block_bytes = block_bytes_,
            .sync = &sync_,
            .read_only = file_.read_only(),
            .end_bytes = file_.file_bytes(),
            .pieces = medium_.get()};
  }

  bool sync() override {
    if (file_.read_only()) return true;
    // Relaxed: it orders nothing.
    if (fdatasync(file_.fd()) != 0) health_.flush_failed.store(true, std::memory_order_relaxed);
    return !health_.lost_data();
  }

  std::optional<file_access> access() const override {
    std::string const why_no_fixed_buffers = medium_->why_no_fixed_buffers();
    std::string const why_not_polled =
        medium_->refused_polling() ? "the device or its file system refused it" : why_not_polled_;
    return file_access{.io = file_io::uring,
                       .why = why_,
                       .direct = direct_.fd() >= 0,
                       .why_not_direct = direct_.why_not(),
                       .fixed_buffers = why_no_fixed_buffers.empty(),
                       .why_no_fixed_buffers = why_no_fixed_buffers,
                       .polled = why_not_polled.empty(),
                       .why_not_polled = why_not_polled};
  }

 private:
  opened_file file_;
  std::uint32_t block_bytes_;
  std::string why_;
  sync_words sync_;
  file_health health_;
  direct_descriptor direct_;
  std::string why_not_polled_;
  std::unique_ptr<uring_medium> medium_;
};

/// The part of a file that is in the page cache, from samples; 0 if the system does not tell this process.
double part_in_memory(opened_file const& file) {
  struct stat about{};
  // To others the system says that all of it is there.
  if (fstat(file.fd(), &about) != 0 || (about.st_uid != geteuid() && file.read_only() && geteuid() != 0)) return 0;
  auto const page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t const bytes = file.file_bytes();
  constexpr std::uint64_t samples = 256;
  std::uint64_t const pages = (bytes + page_bytes - 1) / page_bytes;
  std::uint64_t const step = std::max<std::uint64_t>(1, pages / samples);
  std::uint64_t looked = 0, found = 0;
  std::vector<unsigned char> there(std::min<std::uint64_t>(step, 16));
  // Nothing may throw from here on: a mapping that is left keeps the file's lock.
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (mapped == MAP_FAILED) return 0;
  for (std::uint64_t page = 0; page < pages; page += step) {
    std::uint64_t const count = std::min<std::uint64_t>(there.size(), pages - page);
    if (mincore(static_cast<std::byte*>(mapped) + page * page_bytes, count * page_bytes, there.data()) != 0) continue;
    looked += count;
    found += static_cast<std::uint64_t>(std::count_if(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(count),
                                                      [](unsigned char c) { return (c & 1) != 0; }));
  }
  munmap(mapped, bytes);
  return looked == 0 ? 0 : static_cast<double>(found) / static_cast<double>(looked);
}

}  // namespace

file_choice choose_io(opened_file const& file) {
  if (std::string const why = uring::why_not(uring_medium::most_pieces); !why.empty())
    return {file_io::mmap, "io_uring cannot be used: " + why};
  direct_descriptor const direct(file);
  if (direct.fd() < 0) return {file_io::mmap, direct.why_not()};
  // Loads and stores are several times as fast as any request, but a page that is not there holds up all commands of a
  // service thread.
  if (file.file_bytes() > memory::available_bytes()) return {file_io::uring, "the file is larger than the free memory"};
  if (part_in_memory(file) < 0.9) return {file_io::uring, "less than nine tenths of the file are in the page cache"};
  return {file_io::mmap, "the file is in the page cache"};
}

std::unique_ptr<backing_store> uring_store(opened_file file, std::uint32_t block_bytes, std::string const& why) {
  return std::make_unique<store>(std::move(file), block_bytes, why);
}

}  // namespace forebay::emulator
