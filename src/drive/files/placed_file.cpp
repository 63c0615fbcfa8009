// SPDX-License-Identifier: Apache-2.0
#include "placed_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "forebay/error.hpp"

namespace forebay::drive::files {
namespace {

constexpr std::uint64_t sector_bytes = 512;
constexpr std::uint32_t extents_at_a_time = 512;
constexpr auto xfs_magic = 0x58465342;

[[noreturn]] void refuse(std::string const& path, std::string const& remedy) {
  throw refused_input("file", path, remedy);
}

/// Names of flags of an extent, which each keep its bytes from being read past the file system.
struct reason {
  std::uint32_t flag;
  char const* text;
};
constexpr std::array reasons = {
    reason{FIEMAP_EXTENT_DATA_ENCRYPTED, "is encrypted: copy it to a folder that is not"},
    reason{FIEMAP_EXTENT_ENCODED, "is compressed: copy it to a folder that is not"},
    reason{FIEMAP_EXTENT_DATA_INLINE, "is so small that it lies in its inode: make it longer"},
    reason{FIEMAP_EXTENT_DATA_TAIL, "shares a block with another file: copy it"},
    reason{FIEMAP_EXTENT_SHARED, "shares blocks with another file: copy it without reflinks (cp --reflink=never)"},
    reason{FIEMAP_EXTENT_UNWRITTEN, "has parts that were allocated and never written: write all of it"},
    reason{FIEMAP_EXTENT_DELALLOC, "has parts that are not on the device yet: call fsync"},
    reason{FIEMAP_EXTENT_NOT_ALIGNED, "has parts that do not begin on a block: copy it"},
    reason{FIEMAP_EXTENT_UNKNOWN, "has parts of which its file system does not tell where they are: copy it"},
};

std::vector<fiemap_extent> told_extents(open_file const& file, std::string const& path, std::uint32_t flags) {
  std::vector<fiemap_extent> all;
  std::vector<std::byte> room(sizeof(fiemap) + extents_at_a_time * sizeof(fiemap_extent));
  auto* const map = reinterpret_cast<fiemap*>(room.data());
  for (std::uint64_t next = 0;;) {
    *map = {};
    map->fm_start = next;
    map->fm_length = ~std::uint64_t{0} - next;
    map->fm_flags = flags;
    map->fm_extent_count = extents_at_a_time;
    if (::ioctl(file.get(), FS_IOC_FIEMAP, map) != 0) {
      refuse(path, fmt::format("its file system does not tell where it lies: {}", std::strerror(errno)));
    }
    all.insert(all.end(), map->fm_extents, map->fm_extents + map->fm_mapped_extents);
    if (map->fm_mapped_extents == 0 || (all.back().fe_flags & FIEMAP_EXTENT_LAST) != 0) return all;
    next = all.back().fe_logical + all.back().fe_length;
  }
}

/// Whether what is written goes to a journal first, so that it is not where the extents say.
bool is_journaled(open_file const& file, std::string const& device_number) {
  unsigned long flags = 0;
  if (::ioctl(file.get(), FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_JOURNAL_DATA_FL) != 0) return true;
  // Mount, parent, number of the device, and so on; the options of the file system come last (proc(5)).
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line, id, parent, number; std::getline(mounts, line);) {
    std::istringstream words(line);
    words >> id >> parent >> number;
    if (number == device_number && line.find("data=journal") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::vector<file_extent> checked_extents(std::string const& path, std::uint64_t file_bytes,
                                         std::span<fiemap_extent const> told, std::uint64_t device_first_byte,
                                         std::uint64_t block_bytes) {
  std::uint64_t const last = (file_bytes + block_bytes - 1) / block_bytes * block_bytes;
  std::vector<file_extent> extents;
  std::uint64_t end = 0;
  for (fiemap_extent const& e : told) {
    if (end >= file_bytes) break;  // what was allocated beyond its end
    for (reason const& r : reasons) {
      if ((e.fe_flags & r.flag) != 0) refuse(path, fmt::format("it {}", r.text));
    }
    if (e.fe_logical != end) refuse(path, fmt::format("it has a hole at {}: write all of it", end));
    if ((e.fe_physical | e.fe_length) % sector_bytes != 0 || e.fe_length == 0) {
      refuse(path, "it has parts that do not begin on a block: copy it");
    }
    std::uint64_t const on_drive = device_first_byte + e.fe_physical;
    std::uint64_t const bytes = std::min<std::uint64_t>(e.fe_length, last - end);  // it may go on behind the file's end
    if (!extents.empty() && extents.back().byte_on_drive + extents.back().bytes == on_drive) {
      extents.back().bytes += bytes;
    } else {
      extents.push_back({e.fe_logical, on_drive, bytes});
    }
    end += bytes;
  }
  if (end < file_bytes) refuse(path, fmt::format("it has a hole at {}: write all of it", end));
  return extents;
}

placed_file::placed_file(std::string const& path)
    : path_(std::filesystem::absolute(path)),
      // A pipe or a device would otherwise keep this thread waiting.
      file_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (!file_) refuse(path, fmt::format("it cannot be opened: {}", std::strerror(errno)));
  struct stat about{};
  struct statfs of{};
  if (::fstat(file_.get(), &about) != 0 || ::fstatfs(file_.get(), &of) != 0 || !S_ISREG(about.st_mode)) {
    refuse(path, "it is no ordinary file");
  }
  if (of.f_type != EXT4_SUPER_MAGIC && of.f_type != xfs_magic) {
    refuse(path, "its file system is neither ext4 nor XFS, of which alone it is known where files lie");
  }
  if (about.st_size == 0) refuse(path, "it is empty");
  // SIGURG does nothing unless somebody wants it; the signal that comes without this would end the process.
  ::fcntl(file_.get(), F_SETSIG, SIGURG);
  if (::fcntl(file_.get(), F_SETLEASE, F_RDLCK) != 0) {
    refuse(path, errno == EAGAIN ? "a program has it open for writing: close it there"
                                 : fmt::format("it cannot be kept from changes: {}; run as its owner or as root",
                                               std::strerror(errno)));
  }
  ::fcntl(file_.get(), F_SETOWN, 0);
  if (::fsync(file_.get()) != 0) refuse(path, fmt::format("it cannot be written back: {}", std::strerror(errno)));
  // After the lease, so that nobody has changed its size since.
  if (::fstat(file_.get(), &about) != 0) refuse(path, std::strerror(errno));
  where_.file_bytes = static_cast<std::uint64_t>(about.st_size);
  std::string const number = fmt::format("{}:{}", major(about.st_dev), minor(about.st_dev));
  std::string const node = "/sys/dev/block/" + number;
  std::error_code none;
  if (is_journaled(file_, number)) {
    refuse(path, "its data is written to a journal first: mount the file system without data=journal (chattr -j)");
  }
  std::filesystem::directory_iterator const below(node + "/slaves", none);
  if (!none && below != std::filesystem::directory_iterator()) {
    refuse(path, "its file system is on a device that is made of others (LVM, RAID, encryption): use one that is not");
  }
  std::filesystem::path const device = std::filesystem::canonical(node, none);
  std::uint64_t first_sector = 0;
  std::ifstream start(node + "/start");  // of a partition, which lies in the folder of its device
  start >> first_sector;
  where_.device = (start ? device.parent_path() : device).filename().string();
  device_first_byte_ = first_sector * sector_bytes;
  block_bytes_ = static_cast<std::uint64_t>(of.f_bsize);
  where_.extents = checked_extents(path, where_.file_bytes, told_extents(file_, path, FIEMAP_FLAG_SYNC),
                                   device_first_byte_, block_bytes_);
}

bool placed_file::has_moved() const noexcept {
  try {
    return checked_extents(path_, where_.file_bytes, told_extents(file_, path_, 0), device_first_byte_, block_bytes_) !=
           where_.extents;
  } catch (std::exception const&) {
    return true;
  }
}

bool placed_file::is_wanted() const {
  return ::fcntl(file_.get(), F_GETLEASE) != F_RDLCK;
}

void placed_file::read(void* to, std::size_t bytes, std::uint64_t byte) const {
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const got =
        ::pread(file_.get(), static_cast<std::byte*>(to) + done, bytes - done, static_cast<off_t>(byte + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw operation_failed(fmt::format("cannot read {}: {}", path_, std::strerror(errno)));
    if (got == 0) {
      std::memset(static_cast<std::byte*>(to) + done, 0, bytes - done);  // behind its end
      return;
    }
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace forebay::drive::files
