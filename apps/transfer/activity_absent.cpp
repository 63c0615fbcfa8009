// SPDX-License-Identifier: Apache-2.0
// In place of activity.cpp, where the build found no headers of CUPTI.
#include "apps/transfer/activity.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {

class activity_recorder::implementation {};

activity_recorder::activity_recorder(std::vector<std::string> const&, bool, int) {
  throw operation_failed(
      "this build has no traces, because it found no cupti.h: install the toolkit's CUPTI (scripts/setup --cuda takes "
      "it "
      "from PyPI), and build again");
}
activity_recorder::~activity_recorder() = default;
void activity_recorder::begin() {}
activity_trace activity_recorder::end() {
  return {};
}

}  // namespace forebay::transfer
