// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the host asks of a dispatcher, and how the requests reach it.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/nvme/command.hpp"

namespace forebay::emulator {

/// What the host asks of the dispatcher that serves a submission queue.
struct dispatcher_request {
  enum class kind : std::uint32_t {
    attach,
    share_cq,         ///< from now on other dispatchers post to the completion queue too
    detach,           ///< complete what is outstanding as aborted, then let go
    detach_silently,  ///< forget what is outstanding (controller reset), then let go
    abort
  };
  kind what = kind::attach;
  std::uint32_t slot = 0;
  std::uint32_t ticket = 0;      ///< `answers[slot]` becomes (ticket << 1) + whether an abort found its command
  std::uint32_t command_id = 0;  ///< of an abort
  // Of an attach:
  submission_queue_addresses queue = {};
  void* pending_storage = nullptr;
  std::uint32_t pending_commands = 0;
  nvme::submission_entry* held = nullptr;
  bool owns_cq = false;
  bool waits = false;  ///< waits for the answer `after_ticket` of slot `after_slot`
  std::uint32_t after_slot = 0;
  std::uint32_t after_ticket = 0;
};

/// Requests on their way to one dispatcher.
struct alignas(128) dispatcher_mailbox {
  static constexpr std::uint32_t capacity = 32;

  std::uint32_t posted = 0;                ///< counted by the host
  alignas(128) std::uint32_t handled = 0;  ///< counted by the dispatcher
  dispatcher_request ring[capacity];
};

}  // namespace forebay::emulator
