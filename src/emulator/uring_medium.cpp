// SPDX-License-Identifier: Apache-2.0
#include "uring_medium.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "client_memory.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/error.hpp"
#include "uring.hpp"

namespace forebay::emulator {
namespace {

constexpr unsigned most_pieces = uring_medium::most_pieces;
/// So many pieces are prepared before the kernel is entered, unless the device has less to do than `keeps_busy`. Then
/// it begins each piece at once, while the next one is prepared.
constexpr std::size_t pieces_at_once = 32;
constexpr std::size_t keeps_busy = medium_port::keeps_busy;
constexpr std::size_t zeros_bytes = std::size_t{256} << 10;

/// Source of zeros for file systems that cannot punch holes.
alignas(4096) constexpr std::array<std::byte, zeros_bytes> zeros = {};

/// What the ports of a medium share.
struct shared_state {
  client_memory memory{registered_bytes_max()};
  std::atomic<bool> polling_refused{false};  ///< by the device or the file system
};

class uring_port final : public medium_port {
 public:
  uring_port(medium_file const& file, port_use use, shared_state& shared)
      : file_(file),
        shared_(shared),
        ring_(most_pieces, uring::completes::by_interrupt, use, shared.memory),
        pieces_(most_pieces) {
    try {
      if (file.polled) polled_.emplace(most_pieces, uring::completes::by_polling, use, shared.memory);
    } catch (operation_failed const&) {
      // Relaxed: it orders nothing.
      shared_.polling_refused.store(true, std::memory_order_relaxed);
    }
    free_.reserve(most_pieces);
    again_.reserve(most_pieces);
    retried_.reserve(most_pieces);
    refused_.reserve(most_pieces);
    for (piece& p : pieces_) free_.push_back(&p);
  }

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
    // A write that is to be durable ends with a request that the kernel does not poll for.
    // Relaxed: it orders nothing.
    p.polled = p.direct && polled_ && !what.through && !shared_.polling_refused.load(std::memory_order_relaxed);
    p.on_polled = false;
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
    std::size_t const in_flight = pieces_.size() - free_.size();
    if (++submitted_ >= pieces_at_once || in_flight - submitted_ < keeps_busy) enter();
    return true;
  }

  std::size_t collect(std::span<medium_completion> into) override {
    keep_up();
    enter();
    std::size_t count = 0;
    for (; count < into.size() && !refused_.empty(); refused_.pop_back()) {
      into[count++] = give_back(*refused_.back(), status_of(EIO, refused_.back()->what.operation));
    }
    std::uint64_t written_end = 0;
    looked_ = false;
    count = take(ring_, into, count, written_end);
    if (polled_in_flight() != 0) count = take(*polled_, into, count, written_end);
    // If the file was cut after the look before these writes, they may have made it longer since.
    if (written_end != 0) look_at_length(written_end);
    // What has to go on must not wait for the next call, which may come only after a nap.
    if (!again_.empty() || ring_.has_prepared() || (polled_ && polled_->has_prepared())) enter();
    return count;
  }

  void cancel(std::uint64_t tag) override {
    for (piece& p : pieces_) {
      // A request that is polled for ends by itself, or with the device.
      if (!p.in_use || p.what.tag != tag || p.on_polled) continue;
      io_uring_sqe* const entry = ring_.next_entry();
      if (entry == nullptr) return;  // it ends without
      io_uring_prep_cancel(entry, &p, 0);
      io_uring_sqe_set_data(entry, nullptr);
    }
  }

  void wait(std::uint64_t most_ns) override {
    // Another thread may change it at any time; the wait is only less good then.
    if (polled_in_flight() == 0) return ring_.wait(most_ns);
    // Nothing would wake this thread. It lets others run.
    (void)sched_yield();
  }

  void keep_up() override {
    ring_.keep_up();
    if (polled_) polled_->keep_up();
  }
  void leave() override {
    ring_.leave();
    if (polled_) polled_->leave();
  }

 private:
  struct piece {
    medium_piece what;
    std::uint64_t done_bytes = 0;
    std::uint64_t stored_bytes = 0;  ///< without the part of a write that lies beyond the end of the file
    bool in_use = false;
    bool direct = false;         ///< as far as the alignment allows
    bool polled = false;         ///< if direct: the kernel polls the device for it
    bool on_polled = false;      ///< what the kernel was given last
    bool writes_zeros = false;   ///< the file system cannot punch holes
    bool makes_durable = false;  ///< the last step of a Flush, and of a zeroing that is durable
    std::vector<iovec> memory;   ///< what the kernel was given last
  };

  /// Takes completions of a ring, for `into` from `count` on; returns how many there are then.
  std::size_t take(uring& ring, std::span<medium_completion> into, std::size_t count, std::uint64_t& written_end) {
    while (count < into.size()) {
      io_uring_cqe* const completion = ring.peek();
      if (completion == nullptr) break;
      auto* const p = static_cast<piece*>(io_uring_cqe_get_data(completion));
      int const result = completion->res;
      ring.seen(completion);
      if (p == nullptr) continue;                                                   // of a cancellation
      if (p->on_polled) polled_in_flight_.fetch_sub(1, std::memory_order_relaxed);  // as below
      int const status = advance(*p, result);
      if (status < 0) continue;
      if (p->what.operation == medium_operation::write) {
        written_end = std::max(written_end, p->what.offset_bytes + p->what.bytes);
      }
      into[count++] = give_back(*p, static_cast<std::uint16_t>(status));
    }
    return count;
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
    medium_operation const now = p.makes_durable ? medium_operation::durable : p.what.operation;
    bool const zeroes = now == medium_operation::zero;
    std::uint64_t const offset = p.what.offset_bytes + p.done_bytes;
    std::uint64_t const left = p.stored_bytes - p.done_bytes;
    p.memory.clear();
    if (zeroes && p.writes_zeros) {
      for (std::uint64_t rest = left; rest != 0 && p.memory.size() < 4; rest -= p.memory.back().iov_len) {
        p.memory.push_back({const_cast<std::byte*>(zeros.data()), std::min<std::size_t>(rest, zeros_bytes)});
      }
    } else if (now == medium_operation::read || now == medium_operation::write) {
      point_to(p, p.done_bytes, p.stored_bytes);
    }
    bool const direct = !p.memory.empty() && may_be_direct(p, offset);
    p.on_polled = direct && p.polled && !zeroes;
    uring& ring = p.on_polled ? *polled_ : ring_;
    // Before there is an entry: the look-up may submit all entries that there are.
    bool const one = p.memory.size() == 1 && p.memory[0].iov_len <= 0x7fff'0000;
    int const place = one && !zeroes ? ring.registered(p.memory[0].iov_base, p.memory[0].iov_len) : -1;
    io_uring_sqe* const entry = ring.next_entry();
    if (entry == nullptr) {
      p.on_polled = false;
      again_.push_back(&p);
      return;
    }
    if (p.on_polled) polled_in_flight_.fetch_add(1, std::memory_order_relaxed);  // it orders nothing
    int const fd = direct ? file_.direct_fd : file_.fd;
    if (now == medium_operation::durable) {
      io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
    } else if (p.memory.empty()) {
      io_uring_prep_fallocate(entry, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                              static_cast<off_t>(left));
    } else {
      prepare_move(*entry, place, fd, p, offset, now == medium_operation::read);
    }
    io_uring_sqe_set_data(entry, &p);
  }

  /// Reads or writes what `memory` points to; `place` is that of its registration, or -1.
  static void prepare_move(io_uring_sqe& entry, int place, int fd, piece const& p, std::uint64_t offset, bool reads) {
    auto* const memory = p.memory.data();
    auto const count = static_cast<unsigned>(p.memory.size());
    if (count != 1 || memory->iov_len > 0x7fff'0000) {
      reads ? io_uring_prep_readv(&entry, fd, memory, count, offset)
            : io_uring_prep_writev(&entry, fd, memory, count, offset);
    } else {
      auto const bytes = static_cast<unsigned>(memory->iov_len);
      if (place >= 0) {
        reads ? io_uring_prep_read_fixed(&entry, fd, memory->iov_base, bytes, offset, place)
              : io_uring_prep_write_fixed(&entry, fd, memory->iov_base, bytes, offset, place);
      } else {
        reads ? io_uring_prep_read(&entry, fd, memory->iov_base, bytes, offset)
              : io_uring_prep_write(&entry, fd, memory->iov_base, bytes, offset);
      }
    }
    if (p.what.operation == medium_operation::write && p.what.through) entry.rw_flags = RWF_DSYNC;
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

  /// Whether the alignment of what `memory` points to permits direct I/O.
  bool may_be_direct(piece const& p, std::uint64_t offset) const {
    if (!p.direct) return false;
    std::uint64_t of_offset = offset, of_memory = 0, bytes = 0;
    for (iovec const& part : p.memory) {
      bytes += part.iov_len;
      of_memory |= reinterpret_cast<std::uintptr_t>(part.iov_base) | part.iov_len;
    }
    of_offset |= bytes;
    return of_offset % file_.offset_alignment_bytes == 0 && of_memory % file_.memory_alignment_bytes == 0;
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
    if ((error == EOPNOTSUPP || error == EINVAL) && p.on_polled) {
      // The other error may be of the alignment. Relaxed: it orders nothing.
      if (error == EOPNOTSUPP) shared_.polling_refused.store(true, std::memory_order_relaxed);
      p.polled = false;
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

  /// Begins what waits, and lets the kernel complete what it can.
  void enter() {
    submitted_ = 0;
    std::swap(again_, retried_);
    for (piece* const p : retried_) prepare(*p);
    retried_.clear();
    ring_.enter();
    if (polled_in_flight() != 0) polled_->enter();
  }

  std::size_t polled_in_flight() const {
    return polled_in_flight_.load(std::memory_order_relaxed);  // it orders nothing
  }

  medium_file const file_;
  shared_state& shared_;
  uring ring_;
  std::optional<uring> polled_;
  std::atomic<std::size_t> polled_in_flight_{0};  ///< changed by the thread that has the port
  std::size_t submitted_ = 0;                     ///< since the kernel was last entered
  bool looked_ = false;                           ///< at the length of the file, since the last `collect`
  std::vector<piece> pieces_;
  std::vector<piece*> free_;
  std::vector<piece*> again_;    ///< for which the ring had no room
  std::vector<piece*> retried_;  ///< of them, by the call that is under way
  std::vector<piece*> refused_;  ///< on what is lost
};

class of_file final : public uring_medium {
 public:
  explicit of_file(medium_file const& file)
      : file_(file), why_no_registered_memory_(uring::why_no_registered_memory()) {}

  std::unique_ptr<medium_port> open(port_use use) override { return std::make_unique<uring_port>(file_, use, shared_); }
  void add_memory(void const* owner, void const* address, std::size_t bytes) override {
    if (why_no_registered_memory_.empty()) shared_.memory.add(owner, address, bytes);
  }
  void remove_memory(void const* owner, void const* address, std::size_t bytes) noexcept override {
    shared_.memory.remove(owner, address, bytes);
  }
  void remove_memory(void const* owner) noexcept override { shared_.memory.remove_all(owner); }
  std::string why_no_fixed_buffers() const override {
    return why_no_registered_memory_.empty() ? shared_.memory.why_refused() : why_no_registered_memory_;
  }
  // Relaxed: it orders nothing.
  bool refused_polling() const override { return shared_.polling_refused.load(std::memory_order_relaxed); }

 private:
  medium_file const file_;
  std::string const why_no_registered_memory_;
  shared_state shared_;
};

}  // namespace

std::unique_ptr<uring_medium> medium_of(medium_file const& file) {
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
