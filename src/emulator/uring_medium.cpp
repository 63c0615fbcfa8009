// SPDX-License-Identifier: Apache-2.0
#include "uring_medium.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

constexpr unsigned most_pieces = 512;  // in flight, of a unit
constexpr std::size_t zeros_bytes = std::size_t{256} << 10;

/// Source of zeros for file systems that cannot punch holes.
alignas(4096) constexpr std::array<std::byte, zeros_bytes> zeros = {};

/// Sets up a ring, with as much as the kernel can of what makes it fast. Returns 0 or a negative error.
int make_ring(io_uring& ring) {
  // The kernel completes requests only when their thread asks, not by interrupting it (Linux 6.1); the ring then
  // belongs to the thread that enables it.
  unsigned const deferred =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED;
  for (unsigned const flags : {deferred, unsigned{IORING_SETUP_R_DISABLED}}) {
    int const result = io_uring_queue_init(most_pieces, &ring, flags);
    if (result != -EINVAL) return result;
  }
  return -EINVAL;
}

std::string explain(int error) {
  if (error == EPERM) {
    std::ifstream disabled("/proc/sys/kernel/io_uring_disabled");
    int value = 0;
    if (disabled >> value && value != 0) {
      return "the sysctl kernel.io_uring_disabled is " + std::to_string(value) + "; set it to 0, or use io=mmap";
    }
    return "this process may not use it, perhaps because of the seccomp filter of a container; allow it, or use "
           "io=mmap";
  }
  if (error == ENOSYS) return "this kernel has none; use io=mmap";
  if (error == ENOMEM) {
    return "there is no memory for it, or the limit on locked memory (ulimit -l) is too small; raise that, or use "
           "io=mmap";
  }
  return std::string(std::strerror(error)) + "; use io=mmap";
}

class uring_port final : public medium_port {
 public:
  explicit uring_port(medium_file const& file) : file_(file), pieces_(most_pieces) {
    free_.reserve(most_pieces);
    again_.reserve(most_pieces);
    refused_.reserve(most_pieces);
    for (piece& p : pieces_) free_.push_back(&p);
    // Last, since what throws here leaves no object that would close it.
    if (int const result = make_ring(ring_); result < 0) {
      throw operation_failed("cannot use io_uring: " + explain(-result));
    }
  }
  ~uring_port() override { io_uring_queue_exit(&ring_); }
  uring_port(uring_port const&) = delete;
  uring_port& operator=(uring_port const&) = delete;

  bool submit(medium_piece const& what) override {
    if (free_.empty()) return false;
    piece& p = *free_.back();
    free_.pop_back();
    p.what = what;
    p.done_bytes = 0;
    bool const beyond = what.offset_bytes + what.bytes > file_.bytes;
    p.stored_bytes = beyond && what.operation != medium_operation::read
                         ? file_.bytes - std::min(file_.bytes, what.offset_bytes)
                         : what.bytes;
    p.direct = file_.direct_fd >= 0;
    p.writes_zeros = false;
    p.makes_durable = what.operation == medium_operation::durable;
    p.in_use = true;
    // A write beyond the end of a file that was cut makes it longer again, with zeros where data was. Commands that
    // come after that write must not see these.
    if (what.operation == medium_operation::write && !std::exchange(looked_, true)) look_at_length();
    if (is_lost(what)) {
      refused_.push_back(&p);
    } else {
      prepare(p);
    }
    return true;
  }

  std::size_t collect(std::span<medium_completion> into) override {
    enter();
    std::size_t count = 0;
    for (; count < into.size() && !refused_.empty(); refused_.pop_back()) {
      into[count++] = give_back(*refused_.back(), status_of(EIO, refused_.back()->what.operation));
    }
    std::uint64_t written_end = 0;
    looked_ = false;
    io_uring_cqe* cqe = nullptr;
    while (count < into.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      auto* const p = static_cast<piece*>(io_uring_cqe_get_data(cqe));
      int const result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (p == nullptr) continue;  // of a cancellation
      int const status = advance(*p, result);
      if (status < 0) continue;
      if (p->what.operation == medium_operation::write) {
        written_end = std::max(written_end, p->what.offset_bytes + p->what.bytes);
      }
      into[count++] = give_back(*p, static_cast<std::uint16_t>(status));
    }
    // If the file was cut after the look before these writes, they may have made it longer since.
    if (written_end != 0) look_at_length(written_end);
    // What has to go on must not wait for the next call, which may come only after a nap.
    if (!again_.empty() || io_uring_sq_ready(&ring_) != 0) enter();
    return count;
  }

  void cancel(std::uint64_t tag) override {
    for (piece& p : pieces_) {
      if (!p.in_use || p.what.tag != tag) continue;
      io_uring_sqe* const entry = next_entry();
      if (entry == nullptr) return;  // it ends without
      io_uring_prep_cancel(entry, &p, 0);
      io_uring_sqe_set_data(entry, nullptr);
    }
  }

  void wait(std::uint64_t most_ns) override {
    enter();
    __kernel_timespec a_while{.tv_sec = static_cast<long long>(most_ns / 1'000'000'000),
                              .tv_nsec = static_cast<long long>(most_ns % 1'000'000'000)};
    io_uring_cqe* cqe = nullptr;
    (void)io_uring_wait_cqe_timeout(&ring_, &cqe, &a_while);
  }

 private:
  struct piece {
    medium_piece what;
    std::uint64_t done_bytes = 0;
    std::uint64_t stored_bytes = 0;  ///< without the part of a write that lies beyond the end of the file
    bool in_use = false;
    bool direct = false;         ///< as far as the alignment allows
    bool writes_zeros = false;   ///< the file system cannot punch holes
    bool makes_durable = false;  ///< the last step of a Flush, and of a zeroing that is durable
    std::vector<iovec> memory;   ///< what the kernel was given last
  };

  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      enter_kernel();
      entry = io_uring_get_sqe(&ring_);
    }
    return entry;
  }

  medium_completion give_back(piece& p, std::uint16_t status) {
    p.in_use = false;
    free_.push_back(&p);
    return {p.what.tag, status};
  }

  /// Whether what a piece names is lost.
  bool is_lost(medium_piece const& what) const {
    // Relaxed: it orders nothing.
    std::uint64_t const cut = file_.health->cut_bytes.load(std::memory_order_relaxed);
    if (cut >= file_.bytes) return false;
    return what.operation == medium_operation::durable || what.offset_bytes + what.bytes > cut;
  }

  /// Notes if the file has become shorter. If it ends where it was just written, or before, nobody knows where it was
  /// cut.
  void look_at_length(std::uint64_t written_end = 0) {
    struct stat about{};
    if (!file_.can_be_cut || fstat(file_.fd, &about) != 0) return;
    auto bytes = static_cast<std::uint64_t>(about.st_size);
    if (bytes >= file_.bytes) return;
    if (bytes <= written_end && file_.health->cut_bytes.load(std::memory_order_relaxed) >= file_.bytes) bytes = 0;
    // Relaxed, both: it orders nothing.
    std::uint64_t cut = file_.health->cut_bytes.load(std::memory_order_relaxed);
    while (bytes < cut && !file_.health->cut_bytes.compare_exchange_weak(cut, bytes, std::memory_order_relaxed)) {
    }
  }

  /// Begins what is left to do of a piece.
  void prepare(piece& p) {
    io_uring_sqe* const entry = next_entry();
    if (entry == nullptr) {
      again_.push_back(&p);
      return;
    }
    std::uint64_t const offset = p.what.offset_bytes + p.done_bytes;
    std::uint64_t const left = p.stored_bytes - p.done_bytes;
    int file = file_.fd;
    switch (p.makes_durable ? medium_operation::durable : p.what.operation) {
      case medium_operation::durable:
        io_uring_prep_fsync(entry, file, IORING_FSYNC_DATASYNC);
        break;
      case medium_operation::zero:
        if (!p.writes_zeros) {
          io_uring_prep_fallocate(entry, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                  static_cast<off_t>(left));
          break;
        }
        p.memory.clear();
        for (std::uint64_t rest = left; rest != 0 && p.memory.size() < 4; rest -= p.memory.back().iov_len) {
          p.memory.push_back({const_cast<std::byte*>(zeros.data()), std::min<std::size_t>(rest, zeros_bytes)});
        }
        file = file_for(p, offset);
        io_uring_prep_writev(entry, file, p.memory.data(), static_cast<unsigned>(p.memory.size()), offset);
        break;
      case medium_operation::read:
      case medium_operation::write: {
        bool const reads = p.what.operation == medium_operation::read;
        point_to(p, p.done_bytes, p.stored_bytes);
        file = file_for(p, offset);
        auto* const memory = p.memory.data();
        auto const count = static_cast<unsigned>(p.memory.size());
        if (count == 1 && memory->iov_len <= 0x7fff'0000) {
          auto const bytes = static_cast<unsigned>(memory->iov_len);
          reads ? io_uring_prep_read(entry, file, memory->iov_base, bytes, offset)
                : io_uring_prep_write(entry, file, memory->iov_base, bytes, offset);
        } else {
          reads ? io_uring_prep_readv(entry, file, memory, count, offset)
                : io_uring_prep_writev(entry, file, memory, count, offset);
        }
        if (!reads && p.what.through) entry->rw_flags = RWF_DSYNC;
        break;
      }
    }
    io_uring_sqe_set_data(entry, &p);
  }

  /// Sets `memory` to bytes [first, stop) of the segments.
  static void point_to(piece& p, std::uint64_t first, std::uint64_t stop) {
    p.memory.clear();
    std::uint64_t at = 0;
    for (dma_segment const& s : p.what.segments) {
      std::uint64_t const skip = first > at ? first - at : 0;
      std::uint64_t const end = std::min(s.bytes, stop - std::min(stop, at));
      if (skip < end) p.memory.push_back({reinterpret_cast<void*>(s.address + skip), end - skip});
      at += s.bytes;
    }
  }

  /// The descriptor for what `memory` points to: the direct one if the addresses and lengths permit it.
  int file_for(piece const& p, std::uint64_t offset) const {
    if (!p.direct) return file_.fd;
    std::uint64_t of_offset = offset, of_memory = 0, bytes = 0;
    for (iovec const& part : p.memory) {
      bytes += part.iov_len;
      of_memory |= reinterpret_cast<std::uintptr_t>(part.iov_base) | part.iov_len;
    }
    of_offset |= bytes;
    return of_offset % file_.offset_alignment_bytes == 0 && of_memory % file_.memory_alignment_bytes == 0
               ? file_.direct_fd
               : file_.fd;
  }

  /// Takes a result. Returns the status field of a piece that is complete, or -1 for one that goes on.
  int advance(piece& p, int result) {
    if (result < 0) return after_error(p, -result);
    if (p.makes_durable) {
      look_at_length();
      return file_.health->lost_data() ? nvme::status_field(nvme::media_status::write_fault) : 0;
    }
    bool const punched = p.what.operation == medium_operation::zero && !p.writes_zeros;
    p.done_bytes = punched ? p.stored_bytes : p.done_bytes + static_cast<std::uint64_t>(result);
    if (p.done_bytes >= p.stored_bytes) {
      if (p.what.operation != medium_operation::zero || !p.what.through) return 0;
      p.makes_durable = true;
      prepare(p);
      return -1;
    }
    if (result == 0) return at_end_of_file(p);
    prepare(p);
    return -1;
  }

  int after_error(piece& p, int error) {
    bool const moves = p.what.operation == medium_operation::read || p.what.operation == medium_operation::write;
    if (error == EAGAIN || error == EINTR) {
      prepare(p);
      return -1;
    }
    // The system did not say which alignment it wants.
    if (error == EINVAL && p.direct && (moves || p.writes_zeros)) {
      p.direct = false;
      prepare(p);
      return -1;
    }
    if (error == EOPNOTSUPP && p.what.operation == medium_operation::zero && !p.writes_zeros && !p.makes_durable) {
      p.writes_zeros = true;
      prepare(p);
      return -1;
    }
    // Relaxed: it orders nothing.
    if (p.makes_durable && error != ECANCELED) file_.health->flush_failed.store(true, std::memory_order_relaxed);
    return status_of(error, p.what.operation);
  }

  /// Nothing was read or written although the piece is not done.
  int at_end_of_file(piece& p) {
    look_at_length();
    if (p.what.operation != medium_operation::read) return nvme::status_field(nvme::media_status::write_fault);
    if (p.what.offset_bytes + p.done_bytes < file_.bytes) {  // it was cut shorter since
      return nvme::status_field(nvme::media_status::unrecovered_read_error);
    }
    point_to(p, p.done_bytes, p.what.bytes);
    for (iovec const& part : p.memory) std::memset(part.iov_base, 0, part.iov_len);
    return 0;
  }

  /// The ring belongs to the thread that makes the first call.
  void enable() {
    if (std::exchange(enabled_, true)) return;
    // liburing 2.3 declares a function for this, which its shared library does not have.
    (void)syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  }

  /// Begins what waits, and lets the kernel complete what it can.
  void enter() {
    enable();
    for (auto waiting = std::exchange(again_, {}); piece* const p : waiting) prepare(*p);
    // Relaxed: a later call looks again.
    unsigned const flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
    if (io_uring_sq_ready(&ring_) != 0 || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) enter_kernel();
  }
  void enter_kernel() {
    enable();
    // If the kernel is short of memory or of room for completions, the entries stay, and a later call submits them.
    (void)io_uring_submit_and_get_events(&ring_);
  }

  medium_file const file_;
  io_uring ring_{};
  bool enabled_ = false;
  bool looked_ = false;  ///< at the length of the file, since the last `collect`
  std::vector<piece> pieces_;
  std::vector<piece*> free_;
  std::vector<piece*> again_;    ///< for which the ring had no room
  std::vector<piece*> refused_;  ///< on what is lost
};

class of_file final : public medium {
 public:
  explicit of_file(medium_file const& file) : file_(file) {}
  std::unique_ptr<medium_port> open() override { return std::make_unique<uring_port>(file_); }

 private:
  medium_file const file_;
};

}  // namespace

std::string why_no_uring() {
  io_uring ring{};
  int const result = make_ring(ring);
  if (result < 0) return explain(-result);
  io_uring_queue_exit(&ring);
  return {};
}

std::unique_ptr<medium> uring_medium(medium_file const& file) {
  return std::make_unique<of_file>(file);
}

std::uint16_t status_of(int error, medium_operation operation) {
  bool const reads = operation == medium_operation::read;
  switch (error) {
    case ECANCELED:
      return nvme::status_field(nvme::generic_status::command_abort_requested);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return nvme::status_field(nvme::generic_status::capacity_exceeded);
    case EFAULT:
      return nvme::status_field(nvme::generic_status::data_transfer_error);
    case ENOMEM:
    case ENOBUFS:
      return nvme::status_field(nvme::generic_status::internal_error);
    case EROFS:
    case EPERM:
    case EACCES:
      return nvme::status_field(nvme::generic_status::namespace_is_write_protected);
    default:
      return reads ? nvme::status_field(nvme::media_status::unrecovered_read_error)
                   : nvme::status_field(nvme::media_status::write_fault);
  }
}

}  // namespace forebay::emulator
