// SPDX-License-Identifier: Apache-2.0
//! \file
//! What every NVMe controller must do: one list of checks, run against each controller that Forebay can drive.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/detail/driver/spaces.hpp"

namespace forebay::conformance {

class fixture;

/// A check for which a controller is known to answer with another status than the specification demands.
struct leniency {
  std::string_view check;
  std::uint16_t instead;  ///< as `nvme::status_field()` composes it
  std::string_view why;
};

/// A controller under test. Its last namespace is the drive, whose content the checks may destroy.
class target {
 public:
  virtual ~target() = default;
  virtual driver::register_space& registers() = 0;
  virtual driver::dma_space& dma() = 0;
  virtual std::string serial() const = 0;
  virtual std::uint64_t drive_bytes() const = 0;
  virtual std::uint32_t block_bytes() const = 0;
  /// The id of that namespace. Ids start at 1, and none is left out.
  virtual std::uint32_t nsid() const { return 1; }
  /// Bus addresses of pages that the controller touched and that nobody gave it, where that can be known.
  virtual std::vector<std::uint64_t> stray_pages() { return {}; }
  /// Nothing else is excused, and an entry that is no longer needed is a failure.
  virtual std::span<leniency const> leniencies() const { return {}; }
};

struct check {
  char const* name;
  void (*run)(fixture&);
};
void PrintTo(check const& c, std::ostream* os);  // GoogleTest looks for this name

/// All checks, the same for every target.
std::vector<check> const& checks();

/// Runs one check as (part of) a GoogleTest test.
void run(target& on, check const& what);

}  // namespace forebay::conformance
