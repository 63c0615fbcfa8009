// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_gpu.hpp"
#include "apps/transfer/workloads/conv2d.hpp"
#include "apps/transfer/workloads/conv3d.hpp"
#include "apps/transfer/workloads/gemm.hpp"

namespace forebay::transfer {

template void launch_on_gpu(gemm const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(conv2d const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(conv3d const&, stage_kind, views, CUstream_st*);

}  // namespace forebay::transfer
