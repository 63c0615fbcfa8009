// SPDX-License-Identifier: Apache-2.0
#include "storage/client.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "storage/kernels_on_cpu.hpp"
#include "storage/kernels_on_gpu.hpp"
#include "storage/options.hpp"

namespace forebay::detail {
namespace {

/// Elements of views are aligned to up to 512 bytes; a page of a CPU or of the bus is 4,096.
constexpr std::size_t frame_alignment_bytes = 4096;

}  // namespace

client::client(client_device const& device, std::shared_ptr<opened_drives> drives, relay_thread const& relay,
               drive_plan const& plan_of_drives, storage_options const& options, buffer_source const& buffers,
               extent_names names)
    : device_(device),
      drives_(std::move(drives)),
      relay_(relay),
      layout_(plan_of_drives.layout),
      kernel_queues_(plan_of_drives.queues),
      group_(*drives_, plan(options), options, buffers),
      names_(std::move(names)) {
  place_pairs();
  place_file(plan_of_drives.file_extents);
  make_cache(options, buffers);
}

queue_group_plan client::plan(storage_options const& options) const {
  return {.queues = kernel_queues_,
          .records = records_of(options, device_.on_gpu()),
          .driven_by_gpu = device_.on_gpu(),
          .relay = &relay_,
          .state_memory = &device_.memory(),
          .shared_memory = &device_.shared_memory()};
}

void client::place_pairs() {
  std::vector<pair_range> pairs;
  std::uint32_t first = 0;
  bool even = true;
  layout_.pairs_per_drive = 0;
  for (drive_queues const& q : kernel_queues_) {
    even = even && q.count == kernel_queues_[0].count;
    layout_.pairs_per_drive = std::max(layout_.pairs_per_drive, q.count);
    pairs.push_back({first, q.count, 1});
    first += q.count;
  }
  if (even) return;
  drive_pairs_ = memory::allocation(device_.memory(), pairs.size() * sizeof(pair_range), 128);
  device_.memory().copy_in(drive_pairs_.data(), pairs.data(), pairs.size() * sizeof(pair_range));
  layout_.drive_pairs = drive_pairs_.as<pair_range>();
}

void client::place_file(std::span<file_extent const> extents) {
  if (extents.empty()) return;
  file_extents_ = memory::allocation(device_.memory(), extents.size_bytes(), 128);
  device_.memory().copy_in(file_extents_.data(), extents.data(), extents.size_bytes());
  layout_.file_extents = file_extents_.as<file_extent>();
  layout_.file_extent_count = static_cast<std::uint32_t>(extents.size());
}

void client::make_cache(storage_options const& options, buffer_source const& buffers) {
  if (options.cache.size_bytes == 0) return;
  cache_options const& o = options.cache;
  cache::check(o, layout_);
  bool const staged = o.staging_pages != 0;
  // What drives read and write: the frames, or the staging pages.
  registered_ = buffers.allocate(staged ? o.staging_bytes() : o.frame_memory_bytes(), data_on_gpu(*drives_, device_));
  buffer_ref frames = registered_->ref();
  if (staged) {
    staged_frames_ = memory::allocation(device_.memory(), o.frame_memory_bytes(), frame_alignment_bytes);
    // No command names these bytes, so they have no address on a bus.
    frames = buffer_ref(staged_frames_.as<std::byte>(), o.frame_memory_bytes(), 0);
  }
  pages_ = std::make_unique<cache>(o, layout_, group_.queues(), frames, device_.memory(), device_.shared_memory(),
                                   staged ? registered_->ref() : buffer_ref());
}

bool client::drain(std::uint64_t timeout_ns) const {
  return device_.on_gpu() ? drain_on_gpu(queues(), pages(), device_.gpu(), timeout_ns)
                          : drain_on_cpu(queues(), pages(), timeout_ns);
}

std::uint32_t client::settle() const {
  drive_hold const running(drives_);
  return device_.on_gpu() ? settle_on_gpu(queues(), pages(), device_.gpu()) : settle_on_cpu(queues(), pages());
}

client::page_range client::pages_of(std::uint64_t at, std::uint64_t bytes) const {
  std::uint64_t const page = pages_->options().page_bytes;
  std::uint64_t const first = at / page;
  return {first, (at + bytes - 1) / page - first + 1};
}

void client::clean() const {
  if (!pages_) return;
  drive_hold const running(drives_);
  throw_if_unwritten(device_.on_gpu() ? clean_on_gpu(*pages_, device_.gpu()) : clean_on_cpu(*pages_));
}

void client::clean(std::uint64_t at, std::uint64_t bytes) const {
  if (!pages_ || bytes == 0) return;
  drive_hold const running(drives_);
  auto const [first, count] = pages_of(at, bytes);
  throw_if_unwritten(device_.on_gpu() ? clean_range_on_gpu(*pages_, first, count, device_.gpu())
                                      : clean_range_on_cpu(*pages_, first, count));
}

void client::forget(std::uint64_t at, std::uint64_t bytes) const {
  if (!pages_ || bytes == 0) return;
  drive_hold const running(drives_);
  auto const [first, count] = pages_of(at, bytes);
  clean_result const result =
      device_.on_gpu() ? forget_on_gpu(*pages_, first, count, device_.gpu()) : forget_on_cpu(*pages_, first, count);
  throw_if_unwritten(result);
  if (result.in_use != 0) {
    throw operation_failed("storage: a kernel has " + std::to_string(result.in_use) +
                           " of the pages in use that the host writes: it may go on to see what was there before");
  }
}

void client::take_back(std::byte const* first, std::uint64_t bytes) const {
  if (!pages_ || bytes == 0) return;
  drive_hold const running(drives_);
  clean_result const result = device_.on_gpu() ? take_back_on_gpu(*pages_, first, bytes, device_.gpu())
                                               : take_back_on_cpu(*pages_, first, bytes);
  throw_if_unwritten(result);
  if (result.in_use != 0) {
    throw operation_failed("storage: a kernel has " + std::to_string(result.in_use) +
                           " pages in use that lie in the buffer: it still belongs to the storage");
  }
}

void client::throw_if_unwritten(clean_result const& result) const {
  std::string all;
  std::uint64_t const page = pages_->options().page_bytes;
  for (std::uint32_t drive = 0; drive < layout_.drive_count; ++drive) {
    clean_result::of_drive const& of = result.drives[drive];
    if (of.unwritten == 0) continue;
    std::uint64_t const first_byte = ~of.first_page * page;
    std::uint64_t const end_byte = std::min((of.last_page + 1) * page, layout_.size_bytes);
    all += (all.empty() ? "" : "; ") + std::to_string(of.unwritten) +
           (of.unwritten == 1 ? " written page" : " written pages") + " of bytes " + std::to_string(first_byte) +
           " to " + std::to_string(end_byte) + names_(first_byte, end_byte) + " cannot be written to drive '" +
           (*drives_)[drive].uri + "'" +
           (of.given_up != 0
                ? ", which completed nothing for " + std::to_string(queues().limits().timeout_ns / 1'000'000) + " ms"
                : "") +
           ": " + to_string(status::from_bits(of.first_failure));
  }
  if (!all.empty()) throw operation_failed("storage: " + all);
}

access_errors client::take_errors() {
  return pages_ ? pages_->take_errors() : access_errors();
}
void client::reset_statistics() {
  if (pages_) pages_->reset_counters();
}

void client::close() const noexcept {
  try {
    clean();
  } catch (operation_failed const& error) {
    std::fprintf(stderr, "forebay: storage: what was written is lost: %s\n", error.what());
  }
  try {
    settle();
  } catch (operation_failed const&) {
    // A GPU that failed no longer drives any queue; deleting the queues, next, keeps memory safe.
  }
}

}  // namespace forebay::detail
