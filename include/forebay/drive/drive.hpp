// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a controller comes from.
#pragma once

#include <memory>
#include <string>

#include "forebay/driver/spaces.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay::drive {

/// A controller that a driver can be given: what stands behind one drive URI. Destroy it after its driver.
class drive {
 public:
  virtual ~drive() = default;
  virtual driver::register_space& registers() = 0;
  virtual driver::dma_space& dma() = 0;
  /// One JSON object: `uri`, `profile`, `residency`, `statistics`, `lateness` and `fidelity` as docs/reference/json.md tells.
  /// Thread-safe, also while I/O runs.
  virtual std::string report() const = 0;
  /// Forgets what `report()` has counted, so that a benchmark's warm-up stays out of its result. Thread-safe.
  virtual void reset_statistics() = 0;
};

/// Opens what `uri` names (docs/reference/drive-uri.md). Memory that its `dma()` allocates comes from `dma_memory`: host, or
/// pinned where a GPU drives the queues; it must outlive the drive. Throws `refused_input`.
std::unique_ptr<drive> open(std::string const& uri, memory::resource& dma_memory);

}  // namespace forebay::drive
