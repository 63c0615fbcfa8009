// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the files that compile kernels for the CPU executor instantiate.
#pragma once

#include "apps/transfer/launch.hpp"

namespace forebay::transfer {

template <class W>
void launch_on_cpu(W const& work, stage_kind how, views memory) {
  launch_with(work, how, apps::executor<simt::fiber>(), memory);
}

}  // namespace forebay::transfer
