// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drive URIs: `scheme:[name][,key=value]...`, the one way to name a drive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forebay/detail/memory/parse.hpp"

namespace forebay::drive {

/// The parts of a URI, key by key, before their values are interpreted. Schemes are `emulated`, `file`, `pci`, and
/// those of `add_scheme`.
class uri {
 public:
  /// Throws `refused_input` for an unknown scheme, a missing or unwanted name, a key that the scheme does not have
  /// (naming the nearest that it has), and a key given twice.
  static uri parse(std::string_view text);

  std::string const& text() const { return text_; }
  std::string const& scheme() const { return scheme_; }
  /// The path of `file`, the bus address of `pci`; empty for `emulated`, and for all schemes that have no name.
  std::string const& name() const { return name_; }
  std::optional<std::string> value(std::string_view key) const;

 private:
  std::string text_, scheme_, name_;
  std::vector<std::pair<std::string, std::string>> values_;
};

using memory::nearest;
using memory::parse_bytes;
using memory::parse_count;
using memory::parse_microseconds;
using memory::parse_rate;

}  // namespace forebay::drive
