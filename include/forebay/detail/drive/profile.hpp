// SPDX-License-Identifier: Apache-2.0
//! \file
//! Profiles: the timing of a drive, each number with its source, in a TOML file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forebay/detail/emulator/timing_model.hpp"

namespace forebay::drive {

struct profile {
  std::string name = "ideal";
  std::string description = "as fast as the engine";
  emulator::timing_parameters timing;
  std::uint32_t lba_bytes = 512;
  /// (key, where its number comes from), in the order of docs/reference/profiles.md.
  std::vector<std::pair<std::string, std::string>> sources;
};

/// Reads and checks a profile. Throws `refused_input` that names the file and the line.
profile load_profile(std::string const& path);

/// A profile by name, from the first of `profile_folders()` that has `<name>.toml`. A name with a slash or that ends in
/// `.toml` is a path. Throws `refused_input` that lists the profiles found.
profile find_profile(std::string const& name);

/// The folders in which profiles are looked for, in order: FOREBAY_PROFILE_DIR; the folder of the installed copy, for
/// programs that were built against one; the folder of the source tree.
std::vector<std::string> profile_folders();

}  // namespace forebay::drive
