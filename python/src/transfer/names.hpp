// SPDX-License-Identifier: Apache-2.0
//! \file
//! The suite's enumerations as words of Python's.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "forebay/error.hpp"

namespace forebay::transfer {

/// The enumerator with this name.
template <class Enum, std::size_t N>
Enum named_in(std::string_view const (&names)[N], char const* field, std::string const& name) {
  auto const* const found = std::find(std::begin(names), std::end(names), name);
  if (found != std::end(names)) return static_cast<Enum>(found - std::begin(names));
  std::string known;
  for (std::string_view const each : names) known += (known.empty() ? "" : ", ") + std::string(each);
  throw refused_input(field, name, "must be one of " + known);
}

inline nanobind::str text_of(std::string_view text) {
  return nanobind::str(text.data(), text.size());
}
template <std::size_t N>
nanobind::list list_of(std::string_view const (&names)[N]) {
  nanobind::list list;
  for (std::string_view const name : names) list.append(text_of(name));
  return list;
}

}  // namespace forebay::transfer
