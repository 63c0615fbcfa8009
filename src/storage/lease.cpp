// SPDX-License-Identifier: Apache-2.0
#include "storage/lease.hpp"

namespace forebay {

storage_lease::storage_lease(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
storage_lease::storage_lease(storage_lease&&) noexcept = default;
storage_lease& storage_lease::operator=(storage_lease&&) noexcept = default;
storage_lease::~storage_lease() = default;

}  // namespace forebay
