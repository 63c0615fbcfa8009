// SPDX-License-Identifier: Apache-2.0
#include "build_info.hpp"

namespace forebay::python {

char const* const build_version = FOREBAY_VERSION;
char const* const build_commit = FOREBAY_COMMIT;

}  // namespace forebay::python
