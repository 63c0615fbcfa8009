// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where QEMU 7.2 answers otherwise than the specification has it.
#pragma once

#include <array>

#include "conformance/conformance.hpp"
#include "forebay/detail/nvme/status_code.hpp"

namespace forebay::conformance {

inline constexpr std::array qemu_leniencies = {
    leniency{"identify_namespace_of_all_needs_namespace_management",
             nvme::status_field(nvme::generic_status::invalid_namespace_or_format),
             "QEMU offers namespace management but not the common namespace structure"},
    leniency{"unknown_log_page_is_refused", nvme::status_field(nvme::generic_status::invalid_field_in_command),
             "QEMU answers invalid field, not invalid log page"},
    leniency{"delete_refuses_unknown_queues",
             nvme::status_field(nvme::command_specific_status::completion_queue_invalid),
             "QEMU answers completion queue invalid, not invalid queue identifier"},
    leniency{"memory_that_nobody_mapped_is_refused", 0, "QEMU drops data for an unmapped address"},
    leniency{"deallocate_out_of_range_is_refused", 0, "QEMU skips a range that is out of range"},
};

}  // namespace forebay::conformance
