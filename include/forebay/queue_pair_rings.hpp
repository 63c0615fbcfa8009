// SPDX-License-Identifier: Apache-2.0
//! \file
//! The rings and doorbells of an NVMe queue pair.
#pragma once

#include <cstdint>

#include "forebay/detail/nvme/command.hpp"

namespace forebay {

/// One queue pair as the driver created it: zeroed rings, in memory that both the controller and the submitting threads
/// reach.
struct queue_pair_rings {
  nvme::submission_entry* sq = nullptr;  ///< the submission queue
  nvme::completion_entry* cq = nullptr;  ///< the completion queue
  std::uint32_t* sq_doorbell = nullptr;  ///< where a new tail of the submission queue is stored
  std::uint32_t* cq_doorbell = nullptr;  ///< where a new head of the completion queue is stored
  std::uint32_t sq_entries = 0;          ///< 2 to 65536
  std::uint32_t cq_entries = 0;          ///< 2 to 65536
  std::uint32_t queue_id = 0;            ///< of both queues
};

}  // namespace forebay
