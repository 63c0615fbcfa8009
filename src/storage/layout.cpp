// SPDX-License-Identifier: Apache-2.0
#include "storage/layout.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "forebay/error.hpp"
#include "storage/drive_limits.hpp"
#include "storage/options.hpp"

namespace forebay::detail {
namespace {

/// Drives that lie one after the other begin at multiples of the largest page. So their positions do not depend on the
/// cache, and even the largest page of a cache lies on one drive.
constexpr std::uint64_t drive_alignment_bytes = 65536;

std::vector<drive_queues> choose_queues(storage_options const& options, std::span<driver::drive_identity const> drives,
                                        bool on_gpu) {
  // The queues of drives that are not set one by one: all get what the weakest drive offers.
  std::uint32_t pairs_left = ~0u;
  std::uint32_t entries_max = 65536;
  for (std::size_t i = 0; i < drives.size(); ++i) {
    driver::drive_identity const& id = drives[i];
    std::uint32_t const left = id.io_queue_pairs - 1;  // one is the host's
    drive_queues const asked = asked_of(options, i);
    if (asked.count > left) {
      throw refused_input(field_of(i, "count"), std::to_string(asked.count),
                          "the drive has fewer queue pairs for kernels; give at most " + std::to_string(left));
    }
    if (asked.depth > id.max_queue_entries) {
      throw refused_input(field_of(i, "depth"), std::to_string(asked.depth),
                          "the drive has no deeper queues; give at most " + std::to_string(id.max_queue_entries));
    }
    if (asked.count == 0) pairs_left = std::min(pairs_left, left);
    if (asked.depth == 0) entries_max = std::min(entries_max, id.max_queue_entries);
  }
  if (options.queues.per_drive > pairs_left) {
    throw refused_input("queues.per_drive", std::to_string(options.queues.per_drive),
                        "the drives have fewer queue pairs for kernels; give at most " + std::to_string(pairs_left));
  }
  if (options.queues.depth > entries_max) {
    throw refused_input("queues.depth", std::to_string(options.queues.depth),
                        "the drives have no deeper queues; give at most " + std::to_string(entries_max));
  }
  std::uint32_t const wanted = options.queues.per_drive != 0 ? options.queues.per_drive : on_gpu ? 64 : 4;
  std::uint32_t const depth = options.queues.depth != 0 ? options.queues.depth : std::min(1024u, entries_max);
  std::vector<drive_queues> chosen;
  for (std::size_t i = 0; i < drives.size(); ++i) {
    drive_queues q = asked_of(options, i);
    if (q.count == 0) q.count = std::min(wanted, pairs_left);
    if (q.depth == 0) q.depth = depth;
    chosen.push_back(q);
  }
  return chosen;
}

/// How many pairs the host gets on each drive: half of what kernels leave on all of them, since raw queue pairs may
/// want some, up to a number with which the drives reach their bandwidth. A warp of an engine on a GPU serves a pair,
/// and moves 3.5 GB/s.
std::uint32_t choose_host_pairs(std::span<driver::drive_identity const> drives, std::span<drive_queues const> kernels,
                                bool on_gpu) {
  std::uint32_t pairs = on_gpu ? 8 : 1;
  for (std::size_t i = 0; i < drives.size(); ++i) {
    pairs = std::min(pairs, (drives[i].io_queue_pairs - kernels[i].count + 1) / 2);
  }
  return pairs;
}

storage_layout choose_layout(storage_options const& options, std::span<driver::drive_identity const> drives,
                             drive_limits const& limits) {
  driver::drive_identity const& first = drives.front();
  std::uint64_t const smallest = limits.bytes;
  storage_layout layout;
  layout.drive_count = static_cast<std::uint32_t>(drives.size());
  while (1u << layout.block_shift != first.block_bytes) ++layout.block_shift;
  layout.nsid = first.nsid;
  layout.command_bytes_max = limits.command_bytes_max;
  layout.stripe_bytes = options.stripe_bytes;
  layout.size_bytes = smallest;
  if (layout.drive_count == 1) return layout;
  if (options.stripe_bytes == 0) {
    layout.stripe_bytes = smallest / drive_alignment_bytes * drive_alignment_bytes;
    if (layout.stripe_bytes == 0) {
      throw refused_input("stripe_bytes", "0",
                          "drives one after the other hold at least " + std::to_string(drive_alignment_bytes) +
                              " bytes each, the smallest " + std::to_string(smallest) + ": give a stripe");
    }
  } else if (options.stripe_bytes % first.block_bytes != 0) {
    throw refused_input("stripe_bytes", std::to_string(options.stripe_bytes),
                        "give a multiple of the block, " + std::to_string(first.block_bytes) +
                            " bytes, or 0 for the drives one after the other");
  }
  std::uint64_t const striped_bytes = smallest / layout.stripe_bytes * layout.stripe_bytes;
  if (striped_bytes == 0) {
    throw refused_input("stripe_bytes", std::to_string(options.stripe_bytes),
                        "give at most what the smallest drive holds, " + std::to_string(smallest) + " bytes");
  }
  if (striped_bytes > ~std::uint64_t{0} / layout.drive_count) {
    throw refused_input("drives", std::to_string(layout.drive_count) + " of " + std::to_string(smallest) + " bytes",
                        "use fewer: together they must hold less than 2^64 bytes");
  }
  layout.size_bytes = striped_bytes * layout.drive_count;
  return layout;
}

/// Makes the storage the file. `stripe_bytes` becomes what all extents begin at a multiple of, so that a page of a
/// cache lies in one.
void place_file(drive_plan& plan, std::vector<file_extent> file, storage_options const& options,
                std::uint64_t drive_bytes) {
  if (options.drives.size() != 1) {
    throw refused_input("drives", std::to_string(options.drives.size()) + " drives",
                        "a storage of a file has only that: open one storage for each file");
  }
  std::uint64_t const block = std::uint64_t{1} << plan.layout.block_shift;
  std::uint64_t begins = 0;
  for (file_extent const& e : file) {
    if ((e.byte | e.byte_on_drive | e.bytes) % block != 0 || e.bytes > drive_bytes ||
        e.byte_on_drive > drive_bytes - e.bytes) {
      throw refused_input("drive", options.drives.front(),
                          "the file does not lie in whole blocks of that drive: name the drive that it is on");
    }
    begins |= e.byte;
  }
  plan.layout.size_bytes = file.back().byte + file.back().bytes;
  plan.layout.stripe_bytes = begins & (0 - begins);
  plan.writable = false;
  plan.file_extents = std::move(file);
}

}  // namespace

drive_plan plan_drives(storage_options const& options, std::span<driver::drive_identity const> drives, bool on_gpu,
                       std::vector<file_extent> file) {
  constexpr std::uint64_t list_page_names = page_bytes / 8 * page_bytes;
  drive_limits const limits = limits_of_all(drives, options.drives, list_page_names);
  drive_plan plan;
  plan.writable = !options.read_only && !limits.write_protected;
  plan.queues = choose_queues(options, drives, on_gpu);
  plan.host_pairs = choose_host_pairs(drives, plan.queues, on_gpu);
  plan.layout = choose_layout(options, drives, limits);
  if (!file.empty()) place_file(plan, std::move(file), options, limits.bytes);
  return plan;
}

}  // namespace forebay::detail
