// SPDX-License-Identifier: Apache-2.0
//! \file
//! Arguments of Python's that are words.
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "forebay/error.hpp"

namespace forebay::python {

/// The value with this name. Throws `refused_input` if there is none.
template <class Value>
Value named(char const* field, std::string_view name, std::initializer_list<std::pair<std::string_view, Value>> known) {
  std::string names;
  for (auto const& [each, value] : known) {
    if (each == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(each);
  }
  throw refused_input(field, std::string(name), "must be one of " + names);
}

/// The number of a GPU, or -1.
inline int gpu_of(std::string const& device) {
  if (device == "cpu") return -1;
  std::string const prefix = "cuda:";
  std::size_t read = 0;
  int number = -1;
  if (device.starts_with(prefix)) {
    try {
      number = std::stoi(device.substr(prefix.size()), &read);
    } catch (std::exception const&) {
      number = -1;
    }
  }
  if (number < 0 || prefix.size() + read != device.size()) {
    throw refused_input("device", device, "must be cpu or cuda:N, N being the number of a GPU");
  }
  return number;
}

}  // namespace forebay::python
