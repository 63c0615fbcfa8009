// SPDX-License-Identifier: Apache-2.0
//! \file
//! Numbers in text that users write, and names that they may have meant.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::memory {

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

}  // namespace forebay::memory
