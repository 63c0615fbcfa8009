// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_gpu.hpp"
#include "apps/transfer/workloads/kmeans.hpp"
#include "apps/transfer/workloads/lavamd.hpp"
#include "apps/transfer/workloads/nw.hpp"

namespace forebay::transfer {

template void launch_on_gpu(lavamd const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(nw const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(kmeans const&, stage_kind, views, CUstream_st*);

}  // namespace forebay::transfer
