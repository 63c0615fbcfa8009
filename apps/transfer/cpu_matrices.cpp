// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_cpu.hpp"
#include "apps/transfer/workloads/conv2d.hpp"
#include "apps/transfer/workloads/conv3d.hpp"
#include "apps/transfer/workloads/gemm.hpp"

namespace forebay::transfer {

template void launch_on_cpu(gemm const&, stage_kind, views);
template void launch_on_cpu(conv2d const&, stage_kind, views);
template void launch_on_cpu(conv3d const&, stage_kind, views);

}  // namespace forebay::transfer
