// SPDX-License-Identifier: Apache-2.0
//! \file
//! How fast a GPU multiplies and adds in fp32 without tensor cores.
#pragma once

#include "forebay/cuda_stream.hpp"

namespace forebay::bench {

/// Operations a second, of which a fused multiplication and addition is two: every lane of the current GPU does only
/// that, in eight chains that do not depend on each other. Throws `operation_failed` if CUDA fails.
double fma_rate(memory::cuda_stream const& stream);

}  // namespace forebay::bench
