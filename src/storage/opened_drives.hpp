// SPDX-License-Identifier: Apache-2.0
//! \file
//! The drives of a storage, each with the driver that runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"

namespace forebay {
struct storage_layout;
struct storage_options;
}  // namespace forebay

namespace forebay::detail {

class client_device;

struct opened_drive {
  std::string uri;
  std::unique_ptr<drive::device> source;
  std::unique_ptr<driver::controller> controller;
};

/// Never changes once the drives are opened; source and controller are thread-safe. Shared with registered memory,
/// leases and raw queues, which may outlive the storage.
using opened_drives = std::vector<opened_drive>;

/// Opens all drives that the options name, in memory that `device` reaches. The options must have been checked. Throws
/// `refused_input` if a drive does not fit the options, `operation_failed` if one does not start.
std::shared_ptr<opened_drives> open_drives(storage_options const& options, client_device const& device);

/// Whether kernels' buffers and the cache's frames lie in the GPU's memory: each drive reads and writes it.
bool data_on_gpu(opened_drives const& drives, client_device const& device);
/// Whether the queues of a drive lie there too. They are of kernels, if a GPU drives them, or of the host.
bool rings_on_gpu(opened_drives const& drives, std::size_t drive, bool driven_by_gpu);
/// In which placement each drive is used then.
drive::gpu_placement placement_of(opened_drive const& drive, bool data_on_gpu);

std::vector<driver::drive_identity> identities_of(opened_drives const& drives);
/// Of the one that is a file; empty: none is.
std::vector<file_extent> file_extents_of(opened_drives const& drives);

/// Makes the drives allocate memory for bytes [0, bytes) of the storage. Returns whether each drive found what its part
/// needs.
bool populate(opened_drives const& drives, storage_layout const& layout, std::uint64_t bytes);

/// While it lives, the engines of the drives run. Several may live at a time.
class drive_hold {
 public:
  /// Throws `operation_failed` if other kernels fill a GPU.
  explicit drive_hold(std::shared_ptr<opened_drives> drives);
  ~drive_hold() { let_go(); }
  drive_hold(drive_hold const&) = delete;
  drive_hold& operator=(drive_hold const&) = delete;

 private:
  void let_go();

  std::shared_ptr<opened_drives> drives_;
  std::size_t held_ = 0;  ///< how many of them, from the first
};

}  // namespace forebay::detail
