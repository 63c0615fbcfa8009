// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the build was told of itself, in a file of its own: a new commit compiles this alone again.
#pragma once

namespace forebay::python {

extern char const* const build_version;
extern char const* const build_commit;

}  // namespace forebay::python
