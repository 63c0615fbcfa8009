// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a `raw_queue_pair` is made of.
#pragma once

#include <memory>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/driver/io_queue.hpp"
#include "forebay/storage.hpp"
#include "storage/opened_drives.hpp"
#include "storage/relay_thread.hpp"

namespace forebay {

struct raw_queue_pair::parts {
  /// Of drive `drive`; `admitted`: kept for as long. Throws as `storage::make_raw_queue_pair` does.
  parts(std::shared_ptr<void> admitted, std::shared_ptr<detail::opened_drives> of,
        std::shared_ptr<detail::relay_thread const> relay, std::uint32_t drive, driver::queue_options const& options);

  std::shared_ptr<void> admission;
  std::shared_ptr<detail::opened_drives> drives;
  std::shared_ptr<detail::relay_thread const> relay;
  driver::drive_identity identity;
  driver::io_queue queue;
  relayed_pair pair;  ///< after `queue`, at whose rings a relay looks
};

}  // namespace forebay
