// SPDX-License-Identifier: Apache-2.0
//! \file
//! Exceptions for errors of a controller.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/error.hpp"
#include "forebay/status.hpp"

namespace forebay::driver {

/// An admin command completed with a status other than success. The controller still works.
class command_error : public operation_failed {
 public:
  /// `what` names the command and what it was for; the message adds the status in words and in numbers.
  command_error(std::string const& what, std::uint16_t status_field);
  forebay::status status() const { return forebay::status::from_nvme(status_field_); }
  /// Status code type and status code as `nvme::status_field()` composes them, without "more" and "do not retry".
  std::uint16_t status_field() const;

 private:
  std::uint16_t status_field_;
};

/// The controller itself no longer works. `controller::reset()` may bring it back, unless it was removed.
class controller_failure : public operation_failed {
 public:
  enum class cause {
    timed_out,  ///< a register or a command did not change in time
    fatal,      ///< CSTS.CFS is set
    removed,    ///< registers read as all ones: the device has left the bus
    protocol,   ///< it did something that no controller may do
    cancelled,  ///< `controller::reset()` or `shutdown()` overtook the command
  };
  controller_failure(cause why, std::string const& what) : operation_failed(what), why_(why) {}
  cause why() const { return why_; }

 private:
  cause why_;
};

}  // namespace forebay::driver
