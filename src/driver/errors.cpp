// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/driver/errors.hpp"

#include <fmt/core.h>

#include "forebay/detail/nvme/status_text.hpp"

namespace forebay::driver {

command_error::command_error(std::string const& what, std::uint16_t status_field)
    : operation_failed(fmt::format("{}: {} (SCT {:x}h, SC {:02x}h{})", what, nvme::status_text(status_field),
                                   status_field >> 8 & 7, status_field & 0xff,
                                   (status_field & nvme::do_not_retry) != 0 ? ", do not retry" : "")),
      status_field_(status_field) {}

std::uint16_t command_error::status_field() const {
  return static_cast<std::uint16_t>(status_field_ & nvme::status_code_mask);
}

}  // namespace forebay::driver
