// SPDX-License-Identifier: Apache-2.0
//! \file
//! JSON that another program wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace forebay::drive {

/// The greatest depth to which arrays and objects may nest: deeper than in anything that this library writes.
inline constexpr int max_json_depth = 32;

/// Parses `text`; none where it is not JSON, or is nested deeper than `max_json_depth`. A nested value takes eighty
/// times the memory of its text, so the caller must bound the length.
inline std::optional<nlohmann::json> parse_foreign_json(std::string_view text) {
  struct too_deep {};
  try {
    return nlohmann::json::parse(text, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      if (depth > max_json_depth) throw too_deep();
      return true;
    });
  } catch (nlohmann::json::exception const&) {
    return std::nullopt;
  } catch (too_deep const&) {
    return std::nullopt;
  }
}

}  // namespace forebay::drive
