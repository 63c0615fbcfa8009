// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_gpu.hpp"
#include "apps/transfer/workloads/gemv.hpp"
#include "apps/transfer/workloads/saxpy.hpp"
#include "apps/transfer/workloads/vector_rand.hpp"
#include "apps/transfer/workloads/vector_seq.hpp"

namespace forebay::transfer {

template void launch_on_gpu(vector_seq const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(vector_rand const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(saxpy const&, stage_kind, views, CUstream_st*);
template void launch_on_gpu(gemv const&, stage_kind, views, CUstream_st*);

}  // namespace forebay::transfer
