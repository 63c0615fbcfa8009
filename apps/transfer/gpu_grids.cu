// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_gpu.hpp"
#include "apps/transfer/workloads/backprop.hpp"
#include "apps/transfer/workloads/hotspot.hpp"
#include "apps/transfer/workloads/pathfinder.hpp"
#include "apps/transfer/workloads/srad.hpp"

namespace forebay::transfer {

template void launch_on_gpu(srad const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(hotspot const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(pathfinder const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(backprop const&, stage_kind, views, CUstream_st*);

}  // namespace forebay::transfer
