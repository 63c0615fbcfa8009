// SPDX-License-Identifier: Apache-2.0
//! \file
//! The pipeline's part of forebay._transfer.
#pragma once

#include <nanobind/nanobind.h>

namespace forebay::transfer {

void define_pipeline(nanobind::module_& m);

}  // namespace forebay::transfer
