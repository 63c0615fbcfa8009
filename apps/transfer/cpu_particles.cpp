// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_cpu.hpp"
#include "apps/transfer/workloads/kmeans.hpp"
#include "apps/transfer/workloads/lavamd.hpp"
#include "apps/transfer/workloads/nw.hpp"

namespace forebay::transfer {

template void launch_on_cpu(lavamd const&, stage_kind, views);
template void launch_on_cpu(nw const&, stage_kind, views);
template void launch_on_cpu(kmeans const&, stage_kind, views);

}  // namespace forebay::transfer
