// SPDX-License-Identifier: Apache-2.0
//! \file
//! Host errors. Each message says what was asked for, what was found, and what to do.
#pragma once

#include <stdexcept>
#include <string>

#include "forebay/detail/simt/language.hpp"

namespace forebay {

/// Input that is rejected before anything starts. `what()` is one line: "field: 'value': remedy". It shows line ends
/// and other control characters as escapes.
class refused_input : public std::invalid_argument {
 public:
  /// `field` names the input, `value` is what was given, and `remedy` says what to give instead.
  refused_input(std::string const& field, std::string const& value, std::string const& remedy)
      : std::invalid_argument(one_line(field + ": '" + value + "': " + remedy)),
        field_(field),
        value_(value),
        remedy_(remedy) {}
  /// The parts of the message: the name of the input, its value, and what to give instead.
  std::string const& field() const { return field_; }
  std::string const& value() const { return value_; }
  std::string const& remedy() const { return remedy_; }

 private:
  static std::string one_line(std::string const& text) {
    std::string line;
    for (char const c : text) {
      auto const code = static_cast<unsigned char>(c);
      if (code >= 0x20 && code != 0x7f) {
        line += c;
      } else {
        line += {'\\', 'x', "0123456789abcdef"[code >> 4], "0123456789abcdef"[code & 15]};
      }
    }
    return line;
  }

  std::string field_, value_, remedy_;
};

/// An operation that was started and failed, in a controller, the operating system or a GPU.
class operation_failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace forebay
