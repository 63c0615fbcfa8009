// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_cpu.hpp"
#include "apps/transfer/workloads/networks.hpp"

namespace forebay::transfer {

template void launch_on_cpu(resnet18_inference const&, stage_kind, views);
template void launch_on_cpu(resnet50_inference const&, stage_kind, views);
template void launch_on_cpu(yolov3_inference const&, stage_kind, views);
template void launch_on_cpu(yolov3_tiny_inference const&, stage_kind, views);

}  // namespace forebay::transfer
