// SPDX-License-Identifier: Apache-2.0
// io_uring: a thread queues transfers, hands all of them over with one system call, and waits in it for the first end.
#include <fmt/format.h>
#include <liburing.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "apps/file_io/engine.hpp"
#include "forebay/error.hpp"

namespace forebay::file_io {
namespace {

/// A kernel before 6.0 knows less and is asked for less.
constexpr unsigned setup_flags[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
                                    0};

[[noreturn]] void refuse(std::string const& remedy) {
  throw refused_input("--ioengine", "io_uring", remedy);
}

std::string remedy_for(int error) {
  switch (error) {
    case ENOSYS:
      return "the kernel has none; use Linux 5.1 or newer, or --ioengine pread";
    case EPERM:
    case EACCES:
      return "the system forbids it: see the sysctl kernel.io_uring_disabled and, in a container, its seccomp profile "
             "(`forebay doctor` says which); or use --ioengine pread";
    case ENOMEM:
      return "too little memory may be locked for it; raise `ulimit -l`, or lower --iodepth or --bs";
    default:
      return fmt::format("cannot be set up: {}; use --ioengine pread", std::strerror(error));
  }
}

/// With the file and the blocks of `mine` registered, so that the kernel looks neither up for each transfer. Destroying
/// it waits for what is under way.
class ring {
 public:
  ring(file const& from, blocks const& memory, apps::in_flight_share mine) {
    int error = 0;
    for (unsigned const flags : setup_flags) {
      error = -::io_uring_queue_init(mine.count, &ring_, flags);
      if (error != EINVAL) break;
    }
    if (error != 0) refuse(remedy_for(error));
    int const descriptor = from.descriptor();
    std::vector<iovec> buffers;
    for (std::uint32_t i = 0; i < mine.count; ++i)
      buffers.push_back({memory.host(mine.first + i), memory.block_bytes()});
    error = -::io_uring_register_files(&ring_, &descriptor, 1);
    if (error == 0) error = -::io_uring_register_buffers(&ring_, buffers.data(), mine.count);
    if (error == 0) return;
    ::io_uring_queue_exit(&ring_);
    refuse(remedy_for(error));
  }
  ring(ring const&) = delete;
  ring& operator=(ring const&) = delete;
  ~ring() {
    // The kernel takes a ring down later, and would keep the file, perhaps a device that nothing else may open, until
    // then.
    ::io_uring_unregister_files(&ring_);
    ::io_uring_queue_exit(&ring_);
  }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
};

class io_uring_channel final : public channel {
 public:
  io_uring_channel(file const& from, blocks const& memory, apps::in_flight_share mine, gpu_copies* copies)
      : ring_(from, memory, mine), memory_(memory), copies_(copies), first_(mine.first), slots_(mine.count) {}

  void start(std::uint32_t slot, transfer const& what) override {
    at(slot) = {what, stage::under_way, 0};
    if (what.is_write && copies_ != nullptr) {
      copies_->start_to_host(slot);
      copying_.push_back(slot);
    } else {
      queue(slot);
    }
  }

  bool ended(std::uint32_t slot) override {
    // A thread that has not looked at all that ended must not wait for more.
    if (at(slot).now != stage::ended && unseen_ == 0) go_on();
    return at(slot).now == stage::ended;
  }

  int take_error(std::uint32_t slot) override {
    at(slot).now = stage::idle;
    --unseen_;
    return at(slot).error;
  }

 private:
  enum class stage : std::uint8_t { idle, under_way, ended };
  struct slot_state {
    transfer what;
    stage now = stage::idle;
    int error = 0;
  };

  slot_state& at(std::uint32_t slot) { return slots_[slot - first_]; }

  /// The file is number 0 of those that are registered, and buffers have the numbers of the thread's slots.
  void queue(std::uint32_t slot) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(ring_.get());  // there are as many as slots
    transfer const& what = at(slot).what;
    auto const bytes = static_cast<unsigned>(memory_.block_bytes());
    auto const buffer = static_cast<int>(slot - first_);
    if (what.is_write) {
      ::io_uring_prep_write_fixed(entry, 0, memory_.host(slot), bytes, what.offset_bytes, buffer);
    } else {
      ::io_uring_prep_read_fixed(entry, 0, memory_.host(slot), bytes, what.offset_bytes, buffer);
    }
    entry->flags |= IOSQE_FIXED_FILE;
    ::io_uring_sqe_set_data64(entry, slot);
  }

  /// Waits for the kernel, unless copies are under way, whose end it does not tell.
  void go_on() {
    int const submitted =
        copying_.empty() ? ::io_uring_submit_and_wait(ring_.get(), 1) : ::io_uring_submit(ring_.get());
    if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY)
      throw operation_failed(fmt::format("io_uring: submitting: {}", std::strerror(-submitted)));
    for (io_uring_cqe* entry = nullptr; ::io_uring_peek_cqe(ring_.get(), &entry) == 0;) {
      auto const slot = static_cast<std::uint32_t>(::io_uring_cqe_get_data64(entry));
      int const moved = entry->res;
      ::io_uring_cqe_seen(ring_.get(), entry);
      leave_file(slot, moved);
    }
    while (!copying_.empty() && copies_->ended(copying_.front())) {
      std::uint32_t const slot = copying_.front();
      copying_.pop_front();
      at(slot).what.is_write ? queue(slot) : end(slot, 0);
    }
  }

  void leave_file(std::uint32_t slot, int moved) {
    int const error = moved < 0 ? -moved : static_cast<std::uint64_t>(moved) < memory_.block_bytes() ? EIO : 0;
    if (error == 0 && !at(slot).what.is_write && copies_ != nullptr) {
      copies_->start_to_gpu(slot);
      copying_.push_back(slot);
    } else {
      end(slot, error);
    }
  }

  void end(std::uint32_t slot, int error) {
    at(slot).now = stage::ended;
    at(slot).error = error;
    ++unseen_;
  }

  ring ring_;
  blocks const& memory_;
  gpu_copies* copies_;
  std::uint32_t first_;
  std::vector<slot_state> slots_;
  std::deque<std::uint32_t> copying_;  ///< in the order in which their copies end
  std::uint32_t unseen_ = 0;           ///< slots that ended and were not taken
};

class io_uring_engine final : public engine {
 public:
  io_uring_engine(file const& from, blocks const& memory) : from_(from), memory_(memory) {
    ring const tried(from, memory, {0, memory.count()});  // refuses before anything is written
  }
  std::unique_ptr<channel> open_channel(apps::in_flight_share mine, gpu_copies* copies) const override {
    return std::make_unique<io_uring_channel>(from_, memory_, mine, copies);
  }
  std::string way() const override { return "io_uring with registered file and memory"; }

 private:
  file const& from_;
  blocks const& memory_;
};

}  // namespace

std::unique_ptr<engine> open_io_uring(file const& from, blocks const& memory) {
  return std::make_unique<io_uring_engine>(from, memory);
}

}  // namespace forebay::file_io
