// SPDX-License-Identifier: Apache-2.0
#include "apps/file_io/file_io.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "apps/block_io/job.hpp"
#include "apps/block_io/kernel.hpp"
#include "apps/block_io/launch_result.hpp"
#include "apps/file_io/blocks.hpp"
#include "apps/file_io/engine.hpp"
#include "apps/file_io/file.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
#include "forebay/memory.hpp"

namespace forebay::file_io {
namespace {

constexpr std::uint32_t iodepth_max = 1024;  // an engine may have a thread for each

/// The machine of the threads: plain CPU threads that are numbered.
struct numbered_threads : simt::native {
  static inline thread_local std::uint32_t rank = 0;
  static std::uint32_t thread_rank() { return rank; }
};

/// The parts of the blocks that CPU threads reach: what the kernel takes for its buffer.
struct host_blocks {
  std::byte* first = nullptr;
  std::byte* data() const { return first; }
  host_blocks subspan(std::uint64_t offset_bytes, std::uint64_t) const { return {first + offset_bytes}; }
};

/// What the threads of one launch share.
struct shared_state {
  engine const& with;
  blocks const& memory;
  bool verify;  ///< the host's part of a block shows what the memory holds where the data ends
  std::vector<std::unique_ptr<channel>> channels;  ///< by the thread's number
  std::mutex mutex;
  std::string first_error;

  void note(int error) {
    std::lock_guard const lock(mutex);
    if (first_error.empty()) first_error = with.text(error);
  }
};

/// A transfer that was started. Used by the thread that started it.
class file_token {
 public:
  file_token() = default;
  file_token(shared_state& shared, std::uint32_t slot, bool is_write)
      : shared_(&shared), slot_(slot), is_write_(is_write) {}
  bool ready(std::uint32_t = 1) const { return mine().ended(slot_); }
  /// Only once it is ready.
  status wait(std::uint64_t = 0) const {
    if (int const error = mine().take_error(slot_)) {
      shared_->note(error);
      constexpr std::uint32_t data_transfer_error = 0x04;  // NVM Express Base 1.4, Figure 128
      return status::from_nvme(data_transfer_error);
    }
    if (shared_->verify && !is_write_) shared_->memory.take_from_gpu(slot_);
    return {};
  }
  void detach() const {}

 private:
  channel& mine() const { return *shared_->channels[numbered_threads::thread_rank()]; }

  shared_state* shared_;
  std::uint32_t slot_;
  bool is_write_;
};

/// A model of `storage_ref` over a file.
class file_ref {
 public:
  explicit file_ref(shared_state& shared) : shared_(&shared) {}
  file_token read_async(host_blocks block, std::uint64_t offset_bytes, std::uint64_t) const {
    return start(block, {false, offset_bytes});
  }
  file_token write_async(host_blocks block, std::uint64_t offset_bytes, std::uint64_t) const {
    return start(block, {true, offset_bytes});
  }

 private:
  file_token start(host_blocks block, transfer const& what) const {
    blocks const& memory = shared_->memory;
    auto const slot =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(block.data() - memory.host(0)) / memory.block_bytes());
    if (shared_->verify && what.is_write) memory.give_to_gpu(slot);
    shared_->channels[numbered_threads::thread_rank()]->start(slot, what);
    return {*shared_, slot, what.is_write};
  }

  shared_state* shared_;
};

using file_kernel = block_io::kernel<numbered_threads, file_ref, host_blocks>;

/// Runs `body(rank)` on threads of its own once `set_up(rank)` has returned on all of them, and `tear_down(rank)` in
/// the end. If any of the calls throws, the first exception is thrown again when all threads have ended.
template <class SetUp, class Body, class TearDown>
void run_threads(std::uint32_t count, SetUp&& set_up, Body&& body, TearDown&& tear_down) {
  std::latch ready(count);
  std::mutex mutex;
  std::exception_ptr failure;
  auto const guarded = [&](auto&& call) {
    try {
      call();
    } catch (...) {
      std::lock_guard const lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  auto const any_failed = [&] {
    std::lock_guard const lock(mutex);
    return failure != nullptr;
  };
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    guarded([&] {
      threads.emplace_back([&, rank] {
        guarded([&] { set_up(rank); });
        ready.arrive_and_wait();
        if (!any_failed()) guarded([&] { body(rank); });
        guarded([&] { tear_down(rank); });
      });
    });
    if (threads.size() == rank) ready.count_down();  // a thread that the system did not grant
  }
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

block_io::launch_result launch(shared_state& shared, block_io::workload const& work) {
  block_io::control control;
  std::vector<file_kernel::slot_type> slots(work.iodepth);
  std::vector<block_io::thread_result> results(work.threads);
  std::vector<std::uint32_t> written(work.region_bytes / work.block_bytes / 32 + 1);
  block_io::launch_result total;
  shared.channels.clear();
  shared.channels.resize(work.threads);
  std::vector<std::unique_ptr<gpu_copies>> copies(work.threads);

  auto const set_up = [&](std::uint32_t rank) {
    numbered_threads::rank = rank;
    copies[rank] = shared.memory.copies();
    auto const mine = apps::in_flight_share::of(work.iodepth, work.threads, rank);
    shared.channels[rank] = shared.with.open_channel(mine, copies[rank].get());
  };
  file_kernel const kernel{file_ref(shared),
                           {shared.memory.host(0)},
                           nullptr,  // the engines end where they say
                           work,
                           &control,
                           slots.data(),
                           results.data(),
                           total.read.completion.bins.data(),
                           total.write.completion.bins.data(),
                           written.data()};
  auto const tear_down = [&](std::uint32_t rank) {
    shared.channels[rank].reset();
    copies[rank].reset();
  };
  run_threads(work.threads, set_up, [&](std::uint32_t) { kernel(); }, tear_down);

  total.threads = work.threads;
  total.epoch_ns = control.epoch_ns;
  for (block_io::thread_result const& r : results) total.merge(r);
  total.written = std::move(written);
  return total;
}

block_io::options with_threads(options const& wanted, engine_kind const& kind) {
  block_io::options o = wanted.job;
  if (o.iodepth < 1 || o.iodepth > iodepth_max) {
    throw refused_input("--iodepth", std::to_string(o.iodepth),
                        "must be 1 to " + std::to_string(iodepth_max) + " with --ioengine " + kind.name);
  }
  if (kind.thread_each) {
    if (o.gpu_threads != 1) {
      throw refused_input("--gpu-threads", std::to_string(o.gpu_threads),
                          std::string(kind.name) + " has a thread for each command of --iodepth; leave it out");
    }
    o.gpu_threads = o.iodepth;
  }
  // What a system call has begun cannot be given up.
  constexpr double years_s = 1e9;
  o.timeout_s = years_s;
  return o;
}

std::string way_of(engine const& with, engine_kind const& kind, file const& from) {
  std::string const cache = from.direct() ? ", O_DIRECT"
                            : kind.direct ? ", through the page cache: the file system has no O_DIRECT"
                                          : ", through the page cache";
  return with.way() + cache;
}

}  // namespace

result run(options const& wanted, block_io::progress const& tell) {
  engine_kind const& kind = find_engine(wanted.engine);
  block_io::options const job = with_threads(wanted, kind);
  if (kind.needs_gpu && wanted.gpu < 0) {
    throw refused_input("--ioengine", kind.name,
                        "moves data to and from a GPU, and --device is the CPU; give --device cuda:N on a machine with "
                        "a GPU, in a build with CUDA, or use --ioengine io_uring");
  }
  bool const writes = job.read_percent < 100 || (job.verify && job.lay_down);
  file const from(wanted.path, {.writable = writes, .direct = kind.direct, .random = job.random});
  block_io::workload const work = validated(job, {"file", from.size_bytes(), from.block_bytes()});
  blocks const memory(work.iodepth, work.block_bytes, wanted.gpu);
  auto const with = kind.open(from, memory);
  shared_state shared{
      .with = *with, .memory = memory, .verify = work.verify, .channels = {}, .mutex = {}, .first_error = {}};

  result r;
  r.job = block_io::run(
      {.read = [&](void* to, std::uint64_t bytes, std::uint64_t at) { from.read(to, bytes, at); },
       .write = [&](void const* data, std::uint64_t bytes, std::uint64_t at) { from.write(data, bytes, at); },
       .launch = [&] { return launch(shared, work); }},
      work, tell);
  r.first_error = shared.first_error;
  r.way = way_of(*with, kind, from);
  r.cufile = with->cufile();
  r.direct = from.direct();
  r.block_device = from.block_device();
  r.has_holes = from.has_holes();
  r.file_bytes = from.size_bytes();
  r.block_bytes = from.block_bytes();
  return r;
}

}  // namespace forebay::file_io
