// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a row of results says of its drives, beside its figures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace forebay::bench {

/// Takes the reports of the drives of one row.
class row_drives {
 public:
  /// `report`: of a storage or of one drive, on the commands of `seconds`.
  void add(nlohmann::json const& report, double seconds);

  /// Adds four members to `row`:
  ///
  /// - `fidelity`: the worst that the drives reported; `none` if they served no command;
  /// - `link` and `residency` of the drives; `none` if there was no report;
  /// - `beyond_link`: whether the drives moved more bytes a second, in one direction, than their link carries. Without
  /// a
  ///   link: than a PCI Express 5.0 x16 link, the fastest that GPUs have today.
  void describe(nlohmann::json& row) const;

 private:
  bool used_ = false;
  bool beyond_link_ = false;
  std::string worst_ = "ok", link_ = "none", residency_ = "none";
};

/// The rows anywhere in a document whose `fidelity` is neither `ok` nor `none`, each with the way to it and its name.
std::vector<std::string> rows_not_ok(nlohmann::json const& document);
/// Prints them on standard error, and returns whether there are none.
bool all_rows_ok(nlohmann::json const& document);

}  // namespace forebay::bench
