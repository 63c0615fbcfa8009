// SPDX-License-Identifier: Apache-2.0
#include "storage/options.hpp"

#include "forebay/error.hpp"

namespace forebay::detail {
namespace {

void check_depth(std::string const& field, std::uint32_t depth) {
  if (depth == 0 || (depth >= 2 && depth <= 65536)) return;
  throw refused_input(field, std::to_string(depth), "give 2 to 65536, or 0 for the default");
}

}  // namespace

void check_options(storage_options const& options) {
  if (options.drives.empty()) throw refused_input("drives", "", "name at least one drive URI");
  if (options.drives.size() > 64) {
    throw refused_input("drives", std::to_string(options.drives.size()) + " URIs", "name at most 64");
  }
  cache::check_page(options.cache.page_bytes);
  cache_options const& cached = options.cache;
  if (cached.size_bytes == 0 &&
      (cached.user_frames != 0 || cached.host_size_bytes != 0 || cached.staging_pages != 0 || cached.statistics)) {
    throw refused_input("cache.size_bytes", "0",
                        "cache.user_frames, cache.host_size_bytes, cache.staging_pages and cache.statistics need a "
                        "cache: give it a size");
  }
  check_depth("queues.depth", options.queues.depth);
  if (!options.queues.of_drives.empty() && options.queues.of_drives.size() != options.drives.size()) {
    throw refused_input("queues.of_drives", "of " + std::to_string(options.queues.of_drives.size()) + " drives",
                        "give those of all " + std::to_string(options.drives.size()) + " drives, or of none");
  }
  for (std::size_t i = 0; i < options.queues.of_drives.size(); ++i)
    check_depth(field_of(i, "depth"), options.queues.of_drives[i].depth);
  // A completion names its record, or its frame of the cache, by 28 bits.
  if (options.queues.records > cache_targets<void>::max_frames) {
    throw refused_input("queues.records", std::to_string(options.queues.records),
                        "give 1 to 2^28 requests that may be open at once");
  }
  if (options.queues.prp_list_pages == 0) throw refused_input("queues.prp_list_pages", "0", "give at least 1");
  // Added to a clock that may count from 1970.
  if (options.timeout_ns == 0 || options.timeout_ns >> 63 != 0) {
    throw refused_input("timeout_ns", std::to_string(options.timeout_ns),
                        "give the nanoseconds after which a wait gives up, 1 to 2^63 - 1");
  }
  if (options.flush_timeout_ns == 0 || options.flush_timeout_ns >> 63 != 0) {
    throw refused_input("flush_timeout_ns", std::to_string(options.flush_timeout_ns),
                        "give the nanoseconds that a Flush may take, 1 to 2^63 - 1");
  }
}

drive_queues asked_of(storage_options const& options, std::size_t drive) {
  return options.queues.of_drives.empty() ? drive_queues() : options.queues.of_drives[drive];
}

std::string field_of(std::size_t drive, char const* what) {
  return "queues.of_drives[" + std::to_string(drive) + "]." + what;
}

char const* name_of(nvme::queue_priority priority) {
  switch (priority) {
    case nvme::queue_priority::urgent:
      return "urgent";
    case nvme::queue_priority::high:
      return "high";
    case nvme::queue_priority::medium:
      return "medium";
    case nvme::queue_priority::low:
      return "low";
  }
  return "";
}

std::uint32_t records_of(storage_options const& options, bool on_gpu) {
  if (options.queues.records != 0) return options.queues.records;
  return on_gpu ? 1u << 20 : 1u << 16;
}

}  // namespace forebay::detail
