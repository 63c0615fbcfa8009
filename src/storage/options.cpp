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
  cache::check_page(options.page_bytes);
  if (options.cache_bytes == 0 && (options.user_frames != 0 || options.host_bytes != 0 || options.cache_statistics)) {
    throw refused_input("cache_bytes", "0",
                        "user_frames, host_bytes and cache_statistics need a cache: give it a size");
  }
  check_depth("queue_depth", options.queue_depth);
  if (!options.queues.empty() && options.queues.size() != options.drives.size()) {
    throw refused_input("queues", "of " + std::to_string(options.queues.size()) + " drives",
                        "give those of all " + std::to_string(options.drives.size()) + " drives, or of none");
  }
  for (std::size_t i = 0; i < options.queues.size(); ++i) check_depth(field_of(i, "depth"), options.queues[i].depth);
  // What commands complete to names a record, or a frame of the cache, by 28 bits.
  if (options.records > cache_targets<void>::max_frames) {
    throw refused_input("records", std::to_string(options.records), "give 1 to 2^28 requests that may be open at once");
  }
  if (options.prp_list_pages == 0) throw refused_input("prp_list_pages", "0", "give at least 1");
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
  return options.queues.empty() ? drive_queues() : options.queues[drive];
}

std::string field_of(std::size_t drive, char const* what) {
  return "queues[" + std::to_string(drive) + "]." + what;
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
  if (options.records != 0) return options.records;
  return on_gpu ? 1u << 20 : 1u << 16;
}

cache_options cache_options_of(storage_options const& options) {
  cache_options o;
  o.bytes = options.cache_bytes;
  o.page_bytes = options.page_bytes;
  o.overflow_frames = options.overflow_frames;
  o.statistics = options.cache_statistics;
  o.policy = options.policy;
  o.user_frames = options.user_frames;
  o.host_bytes = options.host_bytes;
  o.host_policy = options.host_policy;
  return o;
}

}  // namespace forebay::detail
