// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_cpu.hpp"
#include "apps/transfer/workloads/bayesian.hpp"
#include "apps/transfer/workloads/knn.hpp"
#include "apps/transfer/workloads/lud.hpp"

namespace forebay::transfer {

template void launch_on_cpu(lud const&, stage_kind, views);
template void launch_on_cpu(bayesian const&, stage_kind, views);
template void launch_on_cpu(knn const&, stage_kind, views);

}  // namespace forebay::transfer
