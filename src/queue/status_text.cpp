// SPDX-License-Identifier: Apache-2.0
#include "forebay/status_text.hpp"

#include <fmt/format.h>

#include "forebay/detail/nvme/status_text.hpp"

namespace forebay {

std::string to_string(status s) {
  switch (s.kind()) {
    case fault::none:
      break;
    case fault::timed_out:
      return "timed out";
    case fault::out_of_range:
      return "range outside of the storage or the buffer";
    case fault::bad_alignment:
      return "offset, length or address not aligned as the drive requires";
    case fault::not_registered:
      return "memory not registered";
    case fault::no_frame:
      return "no evictable cache frame";
    case fault::no_record:
      return "no free completion record";
    case fault::read_only:
      return "storage opened read-only";
    case fault::cancelled:
      return "cancelled by recovery";
    case fault::busy:
      return "busy";
  }
  if (s.ok()) return "success";
  return fmt::format("NVMe status: {} (status code type {}, status code {:#04x})",
                     nvme::status_text(static_cast<std::uint16_t>(s.bits() & 0x7ff)), s.nvme_status_code_type(),
                     s.nvme_status_code());
}

}  // namespace forebay
