// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/host_data.hpp"

#include <fmt/format.h>

namespace forebay::transfer {

void comparison::note(std::uint64_t at, std::string const& text) {
  std::lock_guard const lock(mutex_);
  if (!text_.empty() && at >= first_) return;
  first_ = at;
  text_ = fmt::format("{}[{}] {}", what_, at, text);
}

void comparison::note_far(std::uint64_t at, double found, double expected, double bound) {
  note(at, fmt::format("is {:.9g} instead of {:.9g}, which may be {:.2g} off", found, expected, bound));
}

}  // namespace forebay::transfer
