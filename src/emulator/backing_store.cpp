// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/backing_store.hpp"

#include <sys/mman.h>

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
#include "opened_file.hpp"
#include "uring.hpp"
#include "uring_medium.hpp"
#include "uring_store.hpp"

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
  file_store(opened_file file, std::uint32_t block_bytes, std::string why)
      : file_(std::move(file)),
        why_(std::move(why)),
        block_bytes_(block_bytes),
        protection_(file_.read_only() ? PROT_READ : PROT_READ | PROT_WRITE),
        // No page of the mapping lies beyond the file: a page is one block or more. The system fills the rest of the
        // last page with zeros, and does not store it.
        data_(mmap(nullptr, file_.drive_bytes(), protection_, MAP_SHARED, file_.fd(), 0)) {
    if (data_ == MAP_FAILED) throw operation_failed("cannot map " + file_.path() + ": " + std::strerror(errno));
    try {
      guard_.emplace(data_, file_.drive_bytes(), protection_);
    } catch (...) {
      munmap(data_, file_.drive_bytes());
      throw;
    }
  }
  ~file_store() override {
    guard_.reset();
    munmap(data_, file_.drive_bytes());
  }
  file_store(file_store const&) = delete;
  file_store& operator=(file_store const&) = delete;

  media view() override {
    return {static_cast<std::byte*>(data_),
            file_.drive_bytes(),
            block_bytes_,
            &sync_,
            nullptr,
            file_.read_only(),
            guard_->lost(),
            file_.file_bytes()};
  }
  /// Data that was written to lost pages is lost.
  bool sync() override { return msync(data_, file_.drive_bytes(), MS_SYNC) == 0 && !guard_->any_lost(); }

  std::optional<file_access> access() const override {
    return file_access{.io = file_io::mmap,
                       .why = why_,
                       .why_not_direct = mapped,
                       .why_no_fixed_buffers = mapped,
                       .why_not_polled = mapped};
  }

 private:
  static constexpr char const* mapped = "the file is mapped";

  opened_file file_;
  std::string why_;
  std::uint32_t block_bytes_;
  int protection_;
  void* data_;
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
    return {data_.as<std::byte>(),
            home_view_.bytes,
            home_view_.block_bytes,
            words_.as<sync_words>(),
            dirty_.as<std::uint8_t>(),
            home_view_.read_only,
            nullptr,
            home_view_.end_bytes};
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
                                            bool read_only, std::string const& allow_destroy, file_io io) {
  opened_file file({path, bytes, block_bytes, read_only, allow_destroy});
  file_choice choice = {io, {}};
  if (io == file_io::automatic) {
    choice = choose_io(file);
  } else if (io == file_io::uring) {
    if (std::string const why = uring::why_not(uring_medium::most_pieces); !why.empty())
      throw refused_input("io", "uring", why);
  }
  if (choice.io == file_io::uring) return uring_store(std::move(file), block_bytes, choice.why);
  return std::make_unique<file_store>(std::move(file), block_bytes, choice.why);
}

std::unique_ptr<backing_store> working_copy(std::unique_ptr<backing_store> home, memory::resource& where) {
  return std::make_unique<copied_store>(std::move(home), where);
}

std::unique_ptr<backing_store> no_backing(std::uint64_t bytes, std::uint32_t block_bytes) {
  return std::make_unique<no_store>(bytes, block_bytes);
}

}  // namespace forebay::emulator
