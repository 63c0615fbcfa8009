// SPDX-License-Identifier: Apache-2.0
//! \file
//! Checks `storage_options`, and translates them for the parts of a storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/storage.hpp"

namespace forebay::detail {

/// The size of a controller's memory page, and so of a page of all registered memory.
constexpr std::size_t page_bytes = 4096;

/// Throws `refused_input` for values that are wrong whatever the drives are. `device` is not looked at.
void check_options(storage_options const& options);

/// The value that was asked for one drive by name: 0 or nothing where all drives are alike.
drive_queues asked_of(storage_options const& options, std::size_t drive);
/// The option that has this value, for errors.
std::string field_of(std::size_t drive, char const* what);
/// The word that options and reports use.
char const* name_of(nvme::queue_priority priority);

/// How many requests of kernels may be open at once.
std::uint32_t records_of(storage_options const& options, bool on_gpu);

}  // namespace forebay::detail
