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

/// A whole number of bytes: digits and at most one of K, M, G, T (powers of 1024; `KiB` and so on mean the same).
/// Throws `refused_input` with `field`.
std::uint64_t parse_bytes(std::string const& field, std::string const& value);

/// A number greater than 0 with at most one of k, M, G (powers of 1000): rates. Throws `refused_input` with `field`.
double parse_rate(std::string const& field, std::string const& value);

/// A whole number from `least` to `most`. Throws `refused_input` with `field`.
std::uint64_t parse_count(std::string const& field, std::string const& value, std::uint64_t least, std::uint64_t most);

/// A number of microseconds, 0 or more, at most an hour. Throws `refused_input` with `field`.
double parse_microseconds(std::string const& field, std::string const& value);

/// The member of `known` with the least edit distance to `word`; `known` is not empty.
std::string nearest(std::string_view word, std::vector<std::string_view> const& known);

}  // namespace forebay::drive
