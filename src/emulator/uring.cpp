// SPDX-License-Identifier: Apache-2.0
#include "uring.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

/// Names the calling thread.
void const* this_thread() {
  thread_local char const name = 0;
  return &name;
}

constexpr auto most_buffers = static_cast<unsigned>(client_memory::most_ranges);
/// After so much, a call leaves the rest to the next one, since commands wait meanwhile.
constexpr std::uint64_t most_bytes_at_once = std::uint64_t{16} << 20;

/// Whether the process may interrupt its threads by `membarrier`.
bool may_interrupt_threads() {
  static bool const may = syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  return may;
}

/// Sets up a ring, with as much as the kernel can of what makes it fast. Returns 0 or a negative error.
int make_ring(io_uring& ring, unsigned entries, port_use use, unsigned more_flags = 0) {
  unsigned const plain = IORING_SETUP_R_DISABLED;
  // The kernel completes requests only when their thread asks, not by interrupting it (Linux 6.1); the ring then
  // belongs to the thread that enables it.
  unsigned const deferred = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | plain;
  // It completes them when their thread enters it for any reason (Linux 5.19).
  unsigned const cooperative = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | plain;
  unsigned const best = use == port_use::by_one_thread ? deferred : may_interrupt_threads() ? cooperative : plain;
  for (unsigned const flags : {best, plain}) {
    int const result = io_uring_queue_init(entries, &ring, flags | more_flags);
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

std::string why_memory_was_refused(int error) {
  switch (error) {
    case EINVAL:
      return "this kernel cannot add to registered memory; Linux 5.19 or later can";
    case ENOMEM:
      return "the kernel cannot pin as much as clients registered: the limit on locked memory (ulimit -l) is too "
             "small, or there is no memory; raise the limit, or register less";
    case EFAULT:
    case EOPNOTSUPP:
      return "clients registered memory that the kernel cannot pin, such as that of a device or of a file";
    default:
      return std::strerror(error);
  }
}

}  // namespace

uring::uring(unsigned entries, completes how, port_use use, client_memory& memory)
    : polls_(how == completes::by_polling), memory_(memory) {
  free_places_.reserve(most_buffers);
  memory_.add_ring();
  // Last, since what throws here leaves no object that would close it.
  if (int const result = make_ring(ring_, entries, use, polls_ ? unsigned{IORING_SETUP_IOPOLL} : 0); result < 0) {
    throw operation_failed("cannot use io_uring: " + explain(-result));
  }
  cooperative_ = (ring_.flags & IORING_SETUP_COOP_TASKRUN) != 0;
}

void uring::leave() {
  // The kernel takes some time to give up what belongs to a ring that was closed.
  if (has_table_) (void)io_uring_unregister_buffers(&ring_);
  buffers_.clear();
  has_left_ = true;
}

uring::~uring() {
  io_uring_queue_exit(&ring_);
}

std::string uring::why_not(unsigned entries) {
  io_uring ring{};
  int const result = make_ring(ring, entries, port_use::by_one_thread);
  if (result < 0) return explain(-result);
  io_uring_queue_exit(&ring);
  return {};
}

std::string uring::why_no_registered_memory() {
  alignas(4096) static std::byte page[4096];
  io_uring ring{};
  if (int const result = make_ring(ring, 8, port_use::by_one_thread); result < 0) return explain(-result);
  int result = io_uring_register_buffers_sparse(&ring, 1);
  if (result == 0) {
    iovec const memory{page, sizeof page};
    __u64 const no_tag = 0;
    result = io_uring_register_buffers_update_tag(&ring, 0, &memory, &no_tag, 1);
    (void)io_uring_unregister_buffers(&ring);
  }
  io_uring_queue_exit(&ring);
  return result < 0 ? why_memory_was_refused(-result) : std::string{};
}

io_uring_sqe* uring::next_entry() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) {
    enter_kernel();
    entry = io_uring_get_sqe(&ring_);
  }
  return entry;
}

int uring::registered(void const* address, std::uint64_t bytes) {
  keep_up();
  auto const first = reinterpret_cast<std::uint64_t>(address);
  auto const after = std::upper_bound(buffers_.begin(), buffers_.end(), first,
                                      [](std::uint64_t at, buffer const& b) { return at < b.address; });
  if (after == buffers_.begin()) return -1;
  buffer const& found = *std::prev(after);
  bool const holds = first - found.address <= found.bytes && bytes <= found.bytes - (first - found.address);
  return holds ? static_cast<int>(found.place) : -1;
}

void uring::keep_up() {
  // Read before the ranges: a change in between is followed twice.
  std::uint64_t const version = memory_.version();
  if (version == version_ || has_left_) return;
  // What was prepared may name a place that is about to be emptied.
  if (has_prepared()) enter_kernel();
  if (has_prepared()) return;
  enable();
  if (!std::exchange(has_table_, true)) {
    if (int const result = io_uring_register_buffers_sparse(&ring_, most_buffers); result < 0) {
      memory_.refused(why_memory_was_refused(-result));
    } else {
      for (unsigned place = most_buffers; place-- > 0;) free_places_.push_back(place);
    }
  }
  if (follow(memory_.ranges(), version)) version_ = version;
}

/// Returns whether all is followed; if not, a later call goes on.
bool uring::follow(std::vector<client_memory::range> const& ranges, std::uint64_t version) {
  auto const is_there = [&](std::uint64_t id) {
    auto const at = std::lower_bound(ranges.begin(), ranges.end(), id,
                                     [](client_memory::range const& r, std::uint64_t wanted) { return r.id < wanted; });
    return at != ranges.end() && at->id == id;
  };
  std::size_t const gone = std::erase_if(buffers_, [&](buffer const& b) {
    if (is_there(b.id)) return false;
    // Requests that use it keep it pinned until they are done.
    if (put(0, 0, b.place) == 0) free_places_.push_back(b.place);
    return true;
  });
  if (gone != 0) refused_.clear();  // there may be room now
  std::vector<std::uint64_t> known;
  known.reserve(buffers_.size() + refused_.size());
  for (buffer const& b : buffers_) known.push_back(b.id);
  known.insert(known.end(), refused_.begin(), refused_.end());
  std::sort(known.begin(), known.end());
  bool all = true;
  std::uint64_t pinned_bytes = 0;
  for (client_memory::range const& r : ranges) {
    if (std::binary_search(known.begin(), known.end(), r.id)) continue;
    if (pinned_bytes >= most_bytes_at_once) {
      all = false;
      break;
    }
    pinned_bytes += r.bytes;
    int const error = free_places_.empty() ? ENOMEM : put(r.address, r.bytes, free_places_.back());
    if (error == 0) {
      buffers_.push_back({r.address, r.bytes, r.id, free_places_.back()});
      free_places_.pop_back();
      continue;
    }
    // The client may have freed it since; then a later call does not find it.
    refused_.push_back(r.id);
    if (memory_.version() == version) memory_.refused(why_memory_was_refused(error));
  }
  std::sort(buffers_.begin(), buffers_.end(), [](buffer const& a, buffer const& b) { return a.address < b.address; });
  return all;
}

/// Returns 0 or an error.
int uring::put(std::uint64_t address, std::uint64_t bytes, unsigned place) {
  iovec const memory{reinterpret_cast<void*>(address), bytes};
  __u64 const no_tag = 0;
  int const result = io_uring_register_buffers_update_tag(&ring_, place, &memory, &no_tag, 1);
  return result < 0 ? -result : 0;
}

/// The ring belongs to the thread that makes the first call.
void uring::enable() {
  if (std::exchange(enabled_, true)) return;
  // liburing 2.3 declares a function for this, which its shared library does not have.
  (void)syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
}

void uring::enter() {
  enable();
  // Relaxed: a later call looks again.
  unsigned const flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
  // The kernel polls a device only in a call that asks for it.
  if (polls_ || has_prepared() || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) enter_kernel();
  if (cooperative_) prod_submitters();
}

void uring::enter_kernel() {
  enable();
  if (cooperative_ && has_prepared()) note_submitter();
  // If the kernel is short of memory or of room for completions, the entries stay, and a later call submits them.
  (void)io_uring_submit_and_get_events(&ring_);
}

void uring::note_submitter() {
  unsigned const count = io_uring_sq_ready(&ring_);
  if (std::exchange(submitter_, this_thread()) == this_thread()) {
    others_in_flight_max_ -= std::min(others_in_flight_max_, count);
  } else {
    others_in_flight_max_ = ring_.cq.ring_entries;
  }
}

/// A thread that computes without a call of the kernel would complete what it submitted only at its next clock tick,
/// some milliseconds later. Others may wait for that.
void uring::prod_submitters() {
  // Relaxed: a later call looks again.
  unsigned const flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
  if ((flags & IORING_SQ_TASKRUN) == 0 || (submitter_ == this_thread() && others_in_flight_max_ == 0)) return;
  // This interrupts every thread of the process that runs, and on the way back a thread does what waits for it.
  (void)syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

io_uring_cqe* uring::peek() {
  io_uring_cqe* completion = nullptr;
  return io_uring_peek_cqe(&ring_, &completion) == 0 ? completion : nullptr;
}

void uring::wait(std::uint64_t most_ns) const {
  __kernel_timespec a_while{.tv_sec = static_cast<long long>(most_ns / 1'000'000'000),
                            .tv_nsec = static_cast<long long>(most_ns % 1'000'000'000)};
  // liburing's own function looks into the ring, which may be another thread's at the moment.
  io_uring_getevents_arg how{};
  how.ts = reinterpret_cast<std::uint64_t>(&a_while);
  long const result = syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                              &how, sizeof how);
  if (result < 0 && errno == EINVAL) (void)sched_yield();  // before Linux 5.11
}

}  // namespace forebay::emulator
