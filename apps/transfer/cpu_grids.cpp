// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_cpu.hpp"
#include "apps/transfer/workloads/backprop.hpp"
#include "apps/transfer/workloads/hotspot.hpp"
#include "apps/transfer/workloads/pathfinder.hpp"
#include "apps/transfer/workloads/srad.hpp"

namespace forebay::transfer {

template void launch_on_cpu(srad const&, stage_kind, views);
template void launch_on_cpu(hotspot const&, stage_kind, views);
template void launch_on_cpu(pathfinder const&, stage_kind, views);
template void launch_on_cpu(backprop const&, stage_kind, views);

}  // namespace forebay::transfer
