// SPDX-License-Identifier: Apache-2.0
//! \file
//! The options of a benchmark, and the text that explains them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace forebay::bench {

struct option {
  std::string name;
  std::string help;  ///< what it does, and its default

  // Implicit, so that a list of names is a list of options.
  option(char const* option_name, std::string explanation = "") : name(option_name), help(std::move(explanation)) {}
};

/// `first`, then `more`.
inline std::vector<option> joined(std::vector<option> first, std::vector<option> const& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

/// One option a line, then those that every benchmark has.
inline std::string usage(std::string const& program, std::vector<option> const& with_value,
                         std::vector<option> const& switches) {
  std::vector<std::pair<std::string, std::string>> lines;
  bool says_json = false;
  for (option const& o : with_value) {
    lines.emplace_back(o.name + (o.name == "--json" ? " FILE" : " VALUE"), o.help);
    says_json = says_json || o.name == "--json";
  }
  for (option const& o : switches) lines.emplace_back(o.name, o.help);
  if (!says_json) lines.emplace_back("--json FILE", "where the JSON document goes; - is standard output, the default");
  lines.emplace_back("--help", "print this text and end");
  std::size_t widest = 0;
  for (auto const& [left, right] : lines) widest = std::max(widest, left.size());
  std::string text = "usage: " + program + " [OPTION...]\n";
  for (auto const& [left, right] : lines) {
    text += "  " + left;
    if (!right.empty()) text += std::string(widest - left.size() + 2, ' ') + right;
    text += '\n';
  }
  return text;
}

}  // namespace forebay::bench
