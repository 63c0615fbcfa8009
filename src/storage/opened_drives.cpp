// SPDX-License-Identifier: Apache-2.0
#include "storage/opened_drives.hpp"

#include <algorithm>
#include <utility>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/error.hpp"
#include "storage/client_device.hpp"
#include "storage/options.hpp"

namespace forebay::detail {
namespace {

/// How many pairs to take of a drive that others use too: one is the host's, and a few are for raw queue pairs and more
/// of the host's.
std::uint32_t shared_queues(storage_options const& options, std::size_t drive) {
  std::uint32_t const asked = asked_of(options, drive).count;
  std::uint32_t const count = asked != 0 ? asked : options.queues.per_drive;
  return count == 0 ? 0 : std::max(count + 1, 16u);
}

}  // namespace

std::shared_ptr<opened_drives> open_drives(storage_options const& options, client_device const& device) {
  auto drives = std::make_shared<opened_drives>();
  for (std::size_t i = 0; i < options.drives.size(); ++i) {
    opened_drive d;
    d.uri = options.drives[i];
    d.source = drive::open(d.uri, {.client_memory = &device.shared_memory(),
                                   .gpu = device.on_gpu() ? device.gpu() : 0,
                                   .queues = shared_queues(options, i),
                                   .read_only = options.read_only,
                                   .waiters_serve = !device.on_gpu(),
                                   .cancel = options.cancel,
                                   .faults = {},
                                   .frontend = {}});
    driver::controller_options o;
    o.nsid = d.source->nsid();
    o.io_queue_pairs = d.source->most_queue_pairs();
    o.quirks = d.source->quirks();
    if (auto const priority = asked_of(options, i).priority) {
      nvme::controller_capabilities const found{d.source->registers().read64(nvme::registers::cap)};
      if (!found.weighted_round_robin()) {
        throw refused_input(field_of(i, "priority"), name_of(*priority),
                            "the controller of '" + d.uri +
                                "' arbitrates by round robin only (CAP.AMS): leave the priority out, or use a drive "
                                "with weighted round robin arbitration");
      }
      o.priorities = driver::priority_weights();
    }
    d.controller = std::make_unique<driver::controller>(d.source->registers(), d.source->dma(), o);
    drives->push_back(std::move(d));
  }
  return drives;
}

namespace {

bool all_reach_gpu(opened_drives const& drives) {
  return std::all_of(drives.begin(), drives.end(), [](opened_drive const& d) {
    return d.source->placements().both_ways() != drive::gpu_placement::host;
  });
}

}  // namespace

bool data_on_gpu(opened_drives const& drives, client_device const& device) {
  return device.on_gpu() && all_reach_gpu(drives);
}

bool rings_on_gpu(opened_drives const& drives, std::size_t drive, bool driven_by_gpu) {
  drive::device& its = *drives[drive].source;
  if (!driven_by_gpu || !its.placements().queues_on_gpu()) return false;
  // Where data may be late, a completion in the GPU's memory says nothing of data in the host's.
  return all_reach_gpu(drives) || !its.data_may_be_late(true);
}

drive::gpu_placement placement_of(opened_drive const& drive, bool data_on_gpu) {
  return data_on_gpu ? drive.source->placements().both_ways() : drive::gpu_placement::host;
}

std::vector<driver::drive_identity> identities_of(opened_drives const& drives) {
  std::vector<driver::drive_identity> all;
  for (opened_drive const& d : drives) all.push_back(d.controller->identity());
  return all;
}

std::vector<file_extent> file_extents_of(opened_drives const& drives) {
  for (opened_drive const& d : drives) {
    if (auto found = d.source->file_extents(); !found.empty()) return found;
  }
  return {};
}

bool populate(opened_drives const& drives, storage_layout const& layout, std::uint64_t bytes) {
  bytes = std::min(bytes, layout.size_bytes);
  std::uint64_t const stripe = layout.stripe_bytes;
  std::uint32_t const count = layout.drive_count;
  bool all = true;
  for (std::uint32_t d = 0; d < count; ++d) {
    std::uint64_t part = bytes;
    if (count > 1 && layout.one_after_the_other()) {
      part = bytes <= d * stripe ? 0 : std::min(bytes - d * stripe, stripe);
    } else if (count > 1) {
      part = (bytes + stripe * count - 1) / (stripe * count) * stripe;
    }
    if (part != 0) all = drives[d].source->populate(part) != 0 && all;
  }
  return all;
}

drive_hold::drive_hold(std::shared_ptr<opened_drives> drives) : drives_(std::move(drives)) {
  try {
    for (opened_drive const& d : *drives_) {
      d.source->hold();
      ++held_;
    }
  } catch (...) {
    let_go();
    throw;
  }
}

void drive_hold::let_go() {
  for (; held_ != 0; --held_) (*drives_)[held_ - 1].source->release();
}

}  // namespace forebay::detail
