// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_gpu.hpp"
#include "apps/transfer/workloads/networks.hpp"

namespace forebay::transfer {

template void launch_on_gpu(resnet18_inference const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(resnet50_inference const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(yolov3_inference const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(yolov3_tiny_inference const&, stage_kind, views, CUstream_st*);

}  // namespace forebay::transfer
