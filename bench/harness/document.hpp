// SPDX-License-Identifier: Apache-2.0
//! \file
//! The JSON document of a benchmark on a GPU: how each begins, and how it ends.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "harness/command_line.hpp"
#include "harness/machine.hpp"
#include "harness/row_drives.hpp"

namespace forebay::bench {

/// The members of every document, of a benchmark `name` that ran as `command` says.
inline nlohmann::json document_of(std::string const& name, std::string const& command) {
  return {{"schema_version", 1}, {"benchmark", name}, {"machine", machine()}, {"command", command}};
}

/// The exit status of a benchmark whose results are in `document`.
inline int exit_status(command_line const& given, nlohmann::json const& document, bool verified) {
  bool const as_asked = !given.has("--require-ok") || all_rows_ok(document);
  return verified && as_asked ? 0 : 1;
}

/// Writes a document that says whether all was `verified`. Returns the exit status.
inline int finish(command_line const& given, nlohmann::json document, bool verified) {
  document["verified"] = verified;
  given.write(document.dump(2));
  return exit_status(given, document, verified);
}

}  // namespace forebay::bench
