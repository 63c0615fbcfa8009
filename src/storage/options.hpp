// SPDX-License-Identifier: Apache-2.0
//! \file
//! What `storage_options` ask for: checked, and handed on to the parts of a storage in their own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/storage.hpp"

namespace forebay::detail {

/// What the memory page of a controller is, and so of all registered memory.
constexpr std::size_t page_bytes = 4096;

/// Throws `refused_input` for what is wrong whatever the drives are. `device` is not looked at.
void check_options(storage_options const& options);

/// What was asked for of one drive by name: 0 or nothing where all drives are alike.
drive_queues asked_of(storage_options const& options, std::size_t drive);
/// Where that stands, for errors.
std::string field_of(std::size_t drive, char const* what);
/// As it is written in options and reports.
char const* name_of(nvme::queue_priority priority);

/// Requests of kernels that may be open at once.
std::uint32_t records_of(storage_options const& options, bool on_gpu);

}  // namespace forebay::detail
