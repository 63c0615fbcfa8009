// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/launch_on_cpu.hpp"
#include "apps/transfer/workloads/gemv.hpp"
#include "apps/transfer/workloads/saxpy.hpp"
#include "apps/transfer/workloads/vector_rand.hpp"
#include "apps/transfer/workloads/vector_seq.hpp"

namespace forebay::transfer {

template void launch_on_cpu(vector_seq const&, stage_kind, views);
template void launch_on_cpu(vector_rand const&, stage_kind, views);
template void launch_on_cpu(saxpy const&, stage_kind, views);
template void launch_on_cpu(gemv const&, stage_kind, views);

}  // namespace forebay::transfer
