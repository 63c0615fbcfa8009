// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/backing_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "forebay/detail/memory/machine.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "mapped_file_guard.hpp"

namespace forebay::emulator {
namespace {

class memory_store final : public backing_store {
 public:
  memory_store(std::uint64_t bytes, std::uint32_t block_bytes, memory::resource& from)
      : block_bytes_(block_bytes), memory_(from, bytes, std::size_t{2} << 20) {}
  media view() override { return {memory_.as<std::byte>(), memory_.size_bytes(), block_bytes_, nullptr}; }
  memory::resource& where() override { return memory_.from(); }
  bool sync() override { return true; }
  std::uint64_t populate(std::uint64_t bytes, std::stop_token const& cancel) override {
    bytes = std::min<std::uint64_t>(bytes, memory_.size_bytes());
    if (memory_.from().kind() != memory::kind::host || bytes == 0) return bytes;
    if (bytes > memory::available_bytes() / 2) return 0;
    constexpr std::uint64_t step_bytes = std::uint64_t{256} << 20;  // some tenths of a second
    for (std::uint64_t at = 0; at < bytes; at += step_bytes) {
      if (cancel.stop_requested()) return 0;
      find_pages(memory_.as<std::byte>() + at, std::min(step_bytes, bytes - at));
    }
    return bytes;
  }

 private:
  static void find_pages(std::byte* from, std::uint64_t bytes) {
    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0) return;
    // The kernel is older than 5.14, or a part of the memory is in use now: go on page by page, which changes nothing.
    for (std::uint64_t at = 0; at < bytes; at += 4096) {
      // Relaxed: it orders nothing.
      simt::atomic<simt::native, simt::scope::system>(*reinterpret_cast<std::uint32_t*>(from + at))
          .fetch_or(0, simt::order::relaxed);
    }
  }

  std::uint32_t block_bytes_;
  memory::allocation memory_;
};

class file_store final : public backing_store {
 public:
  file_store(std::string const& path, std::uint64_t bytes, std::uint32_t block_bytes, bool read_only)
      : block_bytes_(block_bytes), read_only_(read_only) {
    // Without O_NONBLOCK a FIFO would wait for a writer before it could be refused.
    fd_ = open(path.c_str(), (read_only_ ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) {
      throw refused_input("path", path,
                          errno == ENOENT ? "no such file; make it with create=1 and size= in a file: URI, or with "
                                            "`forebay drive create` of the Python package"
                                          : std::string(std::strerror(errno)) +
                                                (read_only_ ? "; give a file that may be read"
                                                            : "; give a file that may be written, or, if it need not "
                                                              "be, open the storage read-only and unserved"));
    }
    try {
      map(path, bytes);
    } catch (...) {
      close(fd_);
      throw;
    }
  }
  ~file_store() override {
    guard_.reset();
    munmap(data_, bytes_);
    close(fd_);
  }
  file_store(file_store const&) = delete;
  file_store& operator=(file_store const&) = delete;

  media view() override {
    return {static_cast<std::byte*>(data_), bytes_, block_bytes_, &sync_, nullptr, read_only_, guard_->lost()};
  }
  /// Data that was written to lost pages is lost.
  bool sync() override { return msync(data_, bytes_, MS_SYNC) == 0 && !guard_->any_lost(); }

 private:
  void map(std::string const& path, std::uint64_t bytes) {
    struct stat about{};
    if (fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode)) {
      throw refused_input("path", path, "give the path of an ordinary file");
    }
    auto const length = static_cast<std::uint64_t>(about.st_size);
    std::uint64_t const beyond = length % block_bytes_;
    if (length == 0 || (beyond != 0 && !read_only_)) {
      throw refused_input(
          "path", path,
          "its size, " + std::to_string(length) +
              " bytes, must be a multiple of lba_bytes=" + std::to_string(block_bytes_) + " and not 0" +
              (length == 0 ? "" : "; if it need not be written, open the storage read-only and unserved"));
    }
    // The rest of the file's last block lies in the file's last page too, since a page is one block or more; the system
    // fills that rest with zeros. So no page of the mapping lies beyond the file.
    bytes_ = beyond == 0 ? length : length - beyond + block_bytes_;
    if (bytes != 0 && bytes != bytes_) {
      throw refused_input("size", std::to_string(bytes),
                          "the file has " + std::to_string(length) + " bytes; leave size out to take that");
    }
    if (flock(fd_, (read_only_ ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
      throw refused_input("path", path,
                          errno == EWOULDBLOCK ? "another drive has the file open; close that one first"
                                               : std::string("cannot be locked: ") + std::strerror(errno) +
                                                     "; give a file of a file system that has locks");
    }
    data_ = mmap(nullptr, bytes_, read_only_ ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data_ == MAP_FAILED) throw operation_failed("cannot map " + path + ": " + std::strerror(errno));
    try {
      guard_.emplace(data_, bytes_, read_only_ ? PROT_READ : PROT_READ | PROT_WRITE);
    } catch (...) {
      munmap(data_, bytes_);
      throw;
    }
  }

  std::uint32_t block_bytes_;
  bool read_only_;
  int fd_ = -1;
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  sync_words sync_;
  std::optional<mapped_file_guard> guard_;
};

class copied_store final : public backing_store {
 public:
  copied_store(std::unique_ptr<backing_store> home, memory::resource& where)
      : home_(std::move(home)),
        home_view_(home_->view()),
        data_(where, home_view_.bytes, std::size_t{2} << 20),
        dirty_(where, chunks(), 128),
        words_(where, sizeof(sync_words), 128),
        marks_(chunks()) {
    where.copy_in(data_.data(), home_view_.data, home_view_.bytes);
    if (home_view_.has_lost<simt::native>(0, home_view_.bytes)) {
      throw operation_failed("the file of the drive was cut shorter while it was opened: give it its size again");
    }
  }

  media view() override {
    return {data_.as<std::byte>(),   home_view_.bytes,          home_view_.block_bytes,
            words_.as<sync_words>(), dirty_.as<std::uint8_t>(), home_view_.read_only};
  }
  memory::resource& where() override { return data_.from(); }

  bool sync() override {
    memory::resource& from = data_.from();
    from.copy_out(marks_.data(), dirty_.data(), marks_.size());
    for (std::size_t begin = 0; begin < marks_.size();) {
      if (marks_[begin] == 0) {
        ++begin;
        continue;
      }
      std::size_t end = begin;
      while (end < marks_.size() && marks_[end] != 0) marks_[end++] = 0;
      // Cleared before they are copied: a mark that comes later stays for the next time.
      from.copy_in(dirty_.as<std::uint8_t>() + begin, marks_.data() + begin, end - begin);
      std::uint64_t const first_byte = std::uint64_t{begin} << media::dirty_chunk_log2;
      std::uint64_t const end_byte = std::min(std::uint64_t{end} << media::dirty_chunk_log2, home_view_.bytes);
      from.copy_out(home_view_.data + first_byte, data_.as<std::byte>() + first_byte, end_byte - first_byte);
      begin = end;
    }
    return home_->sync();
  }

 private:
  std::size_t chunks() const {
    return (home_view_.bytes + (std::uint64_t{1} << media::dirty_chunk_log2) - 1) >> media::dirty_chunk_log2;
  }

  std::unique_ptr<backing_store> home_;
  media home_view_;
  memory::allocation data_;
  memory::allocation dirty_;
  memory::allocation words_;
  std::vector<std::uint8_t> marks_;
};

class no_store final : public backing_store {
 public:
  no_store(std::uint64_t bytes, std::uint32_t block_bytes) : bytes_(bytes), block_bytes_(block_bytes) {}
  media view() override { return {nullptr, bytes_, block_bytes_, nullptr}; }
  bool sync() override { return true; }

 private:
  std::uint64_t bytes_;
  std::uint32_t block_bytes_;
};

}  // namespace

std::unique_ptr<backing_store> memory_backing(std::uint64_t bytes, std::uint32_t block_bytes, memory::resource& from) {
  return std::make_unique<memory_store>(bytes, block_bytes, from);
}

std::unique_ptr<backing_store> file_backing(std::string const& path, std::uint64_t bytes, std::uint32_t block_bytes,
                                            bool read_only) {
  return std::make_unique<file_store>(path, bytes, block_bytes, read_only);
}

std::unique_ptr<backing_store> working_copy(std::unique_ptr<backing_store> home, memory::resource& where) {
  return std::make_unique<copied_store>(std::move(home), where);
}

std::unique_ptr<backing_store> no_backing(std::uint64_t bytes, std::uint32_t block_bytes) {
  return std::make_unique<no_store>(bytes, block_bytes);
}

}  // namespace forebay::emulator
