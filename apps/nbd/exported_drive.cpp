// SPDX-License-Identifier: Apache-2.0
#include "apps/nbd/exported_drive.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "apps/nbd/shared_wait.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

namespace forebay::nbd {
namespace {

/// A host thread that has a rank, so that threads spread over the drive's queue pairs.
struct host_thread : simt::native {
  static block this_block() {
    static std::atomic<std::uint32_t> next{0};
    // Relaxed: the numbers only have to differ.
    thread_local std::uint32_t const rank = next.fetch_add(1, std::memory_order_relaxed);
    return {rank};
  }
};

using drive_ref = storage_ref<host_thread>;

/// The longest part of a request that is in flight at a time: several of the drive's largest commands.
constexpr std::uint64_t part_bytes_max = 4 << 20;
constexpr std::uint64_t buffer_bytes_min = 64 << 10;

/// Registered buffers: as many as were ever in use at once, each as large as what was moved through it. Thread-safe.
class buffer_pool {
 public:
  explicit buffer_pool(storage& of) : storage_(of) {}

  registered_buffer take(std::uint64_t bytes) {
    std::optional<registered_buffer> too_small;  // destroyed after the lock is released
    {
      std::lock_guard const lock(mutex_);
      auto const fits = [&](registered_buffer const& b) { return b.size_bytes() >= bytes; };
      if (auto const found = std::find_if(free_.rbegin(), free_.rend(), fits); found != free_.rend()) {
        registered_buffer taken = std::move(*found);
        free_.erase(std::next(found).base());
        return taken;
      }
      if (!free_.empty()) {
        too_small = std::move(free_.back());
        free_.pop_back();
      }
    }
    return storage_.allocate_buffer(std::bit_ceil(std::max(bytes, buffer_bytes_min)));
  }
  /// `of_last`: how the last request that used the buffer ended. One that never did may use it still.
  void give_back(registered_buffer buffer, status of_last) {
    std::lock_guard const lock(mutex_);
    (of_last.kind() == fault::timed_out ? lost_ : free_).push_back(std::move(buffer));
  }

 private:
  storage& storage_;
  std::mutex mutex_;
  std::vector<registered_buffer> free_;
  std::vector<registered_buffer> lost_;
};

storage opened(options const& wanted) {
  return storage({.drives = {wanted.uri},
                  .device = "cpu",
                  .read_only = wanted.read_only,
                  .allow_destroy = wanted.allow_destroy,
                  .cancel = wanted.cancel});
}

void require_writable(storage const& drive, options const& wanted) {
  if (wanted.read_only || drive.raw_writable()) return;
  throw refused_input("URI", wanted.uri,
                      wanted.allow_destroy
                          ? "the drive is write protected; add --read-only"
                          : "the drive is write protected, or has a catalogue of extents, which clients would "
                            "overwrite; add --read-only, or --allow-destroy to overwrite the catalogue");
}

}  // namespace

struct exported_drive::parts {
  explicit parts(options const& wanted) : drive(opened(wanted)), buffers(drive) {
    require_writable(drive, wanted);
    all = drive.ref<host_thread>();
    running = drive.lease();
    drive.reset_statistics();  // the report is on what clients ask for
  }

  /// Runs `step(buffer, done, bytes)`, which starts a request, for consecutive parts of `bytes` bytes.
  template <class Step>
  status in_parts(std::uint64_t bytes, Step&& step) {
    registered_buffer buffer = buffers.take(std::min(bytes, part_bytes_max));
    status outcome;
    for (std::uint64_t done = 0; done < bytes && outcome.ok();) {
      std::uint64_t const part = std::min(bytes - done, part_bytes_max);
      outcome = step(buffer, done, part);
      done += part;
    }
    buffers.give_back(std::move(buffer), outcome);
    return outcome;
  }
  status finish(drive_ref::token_type const& request) { return waiting.wait(request, defaults.timeout_ns); }

  storage drive;
  buffer_pool buffers;
  storage_options const defaults;
  std::optional<storage_lease> running;
  drive_ref all;
  shared_wait<host_thread, drive_ref::token_type> waiting;
};

exported_drive::exported_drive(options const& wanted) : parts_(std::make_unique<parts>(wanted)) {}
exported_drive::~exported_drive() = default;

std::uint64_t exported_drive::size_bytes() const {
  return parts_->all.size_bytes();
}
std::uint32_t exported_drive::block_bytes() const {
  return parts_->all.block_bytes();
}
bool exported_drive::writable() const {
  return parts_->drive.raw_writable();
}

status exported_drive::read(void* to, std::uint64_t bytes, std::uint64_t offset_bytes) {
  return parts_->in_parts(bytes, [&](registered_buffer const& buffer, std::uint64_t done, std::uint64_t part) {
    status const outcome = parts_->finish(parts_->all.read_async(buffer.ref(), offset_bytes + done, part));
    if (outcome.ok()) std::memcpy(static_cast<std::byte*>(to) + done, buffer.data(), part);
    return outcome;
  });
}

status exported_drive::write(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes) {
  return parts_->in_parts(bytes, [&](registered_buffer const& buffer, std::uint64_t done, std::uint64_t part) {
    std::memcpy(buffer.data(), static_cast<std::byte const*>(from) + done, part);
    return parts_->finish(parts_->all.write_async(buffer.ref(), offset_bytes + done, part));
  });
}

status exported_drive::write_zeroes(std::uint64_t bytes, std::uint64_t offset_bytes) {
  return parts_->finish(parts_->all.write_zeroes_async(offset_bytes, bytes));
}

status exported_drive::deallocate(std::uint64_t bytes, std::uint64_t offset_bytes) {
  registered_buffer scratch = parts_->buffers.take(sizeof(nvme::dataset_management_range));
  status const outcome = parts_->finish(parts_->all.deallocate_async(scratch.ref(), offset_bytes, bytes));
  parts_->buffers.give_back(std::move(scratch), outcome);
  return outcome;
}

status exported_drive::flush() {
  return parts_->waiting.wait(parts_->all.flush_async(), parts_->defaults.flush_timeout_ns);
}

std::string exported_drive::report() const {
  return parts_->drive.report();
}

}  // namespace forebay::nbd
