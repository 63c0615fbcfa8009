// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_gpu.hpp"
#include "apps/transfer/workloads/bayesian.hpp"
#include "apps/transfer/workloads/knn.hpp"
#include "apps/transfer/workloads/lud.hpp"

namespace forebay::transfer {

template void launch_on_gpu(lud const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(bayesian const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(knn const&, stage_kind, views, CUstream_st*);

}  // namespace forebay::transfer
