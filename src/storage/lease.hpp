// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a `storage_lease` is made of.
#pragma once

#include "forebay/storage.hpp"
#include "storage/opened_drives.hpp"

namespace forebay {

struct storage_lease::parts {
  explicit parts(std::shared_ptr<detail::opened_drives> drives) : hold(std::move(drives)) {}

  detail::drive_hold hold;
};

}  // namespace forebay
