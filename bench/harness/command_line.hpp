// SPDX-License-Identifier: Apache-2.0
//! \file
//! The command line of a benchmark: `--name value` and `--name`, and where its JSON goes.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "forebay/error.hpp"
#include "harness/option.hpp"

namespace forebay::bench {

/// Throws `refused_input` for any option that it does not know. `--json FILE|-` is always known; without it the
/// document goes to standard output.
class command_line {
 public:
  command_line(int argc, char const* const* argv, std::vector<option> with_value, std::vector<option> const& switches) {
    auto const among = [](std::vector<option> const& options, std::string const& name) {
      return std::any_of(options.begin(), options.end(), [&](option const& o) { return o.name == name; });
    };
    if (!among(with_value, "--json")) with_value.emplace_back("--json");
    program_ = std::filesystem::path(argv[0]).filename().string();
    arguments_.assign(argv + 1, argv + argc);
    for (int i = 1; i < argc; ++i) {
      std::string const name = argv[i];
      typed_ += ' ' + name;
      if (among(switches, name)) {
        given_[name];
        continue;
      }
      if (!among(with_value, name)) {
        std::string known;
        for (option const& o : with_value) known += ' ' + o.name + " VALUE,";
        for (option const& o : switches) known += ' ' + o.name + ',';
        throw refused_input("argument", name, "use" + known + " or --help, which explains them");
      }
      if (++i == argc) throw refused_input(name, "", "needs a value");
      given_[name] = argv[i];
      typed_ += ' ' + (name == "--json" ? std::filesystem::path(argv[i]).filename().string() : argv[i]);
    }
  }

  bool has(std::string const& name) const { return given_.contains(name); }
  std::string text(std::string const& name, std::string const& otherwise) const {
    auto const found = given_.find(name);
    return found == given_.end() ? otherwise : found->second;
  }
  template <class T>
    requires std::integral<T> || std::floating_point<T>
  T number(std::string const& name, T otherwise) const {
    auto const found = given_.find(name);
    return found == given_.end() ? otherwise : parse<T>(name, found->second);
  }
  /// Numbers with commas between them.
  template <class T>
  std::vector<T> numbers(std::string const& name, std::vector<T> otherwise) const {
    auto const found = given_.find(name);
    if (found == given_.end()) return otherwise;
    std::vector<T> values;
    std::string const& all = found->second;
    for (std::size_t at = 0; at <= all.size();) {
      std::size_t const comma = std::min(all.find(',', at), all.size());
      values.push_back(parse<T>(name, all.substr(at, comma - at)));
      at = comma + 1;
    }
    return values;
  }

  /// The command, without the folder of the program and of the JSON file.
  std::string as_typed() const { return program_ + typed_; }
  /// All that follows the name of the program, to start it again.
  std::vector<std::string> const& arguments() const { return arguments_; }
  /// Refuses a file for the document that cannot be written: before the work, which may take minutes.
  void check_json() const {
    std::string const path = text("--json", "-");
    if (path == "-") return;
    bool const was_there = std::filesystem::exists(path);
    if (!std::ofstream(path, std::ios::app)) {
      throw refused_input("--json", path, "cannot be written; name another file, or - for standard output");
    }
    if (!was_there) std::filesystem::remove(path);
  }
  /// Throws `operation_failed` where the document cannot be written.
  void write(std::string const& document) const {
    std::string const path = text("--json", "-");
    std::ofstream file;
    if (path != "-") file.open(path);
    std::ostream& out = path == "-" ? std::cout : file;
    out << document << '\n';
    if (!out.flush()) throw operation_failed("cannot write " + (path == "-" ? "standard output" : path));
  }

 private:
  template <class T>
  static T parse(std::string const& name, std::string const& value) {
    T number{};
    auto const [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) {
      throw refused_input(name, value, "is not a number that it takes");
    }
    // No option of a benchmark has a use for a part below 0, nor for what is no number.
    if constexpr (std::floating_point<T>) {
      if (!(number >= 0) || !std::isfinite(number)) throw refused_input(name, value, "give a number of 0 or more");
    }
    return number;
  }

  std::string program_, typed_;
  std::vector<std::string> arguments_;
  std::map<std::string, std::string> given_;
};

}  // namespace forebay::bench
