// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the kernels of workloads are compiled: each workload once for the CPU executor and once for the GPU.
#pragma once

#include "apps/common/executor.hpp"
#include "apps/transfer/workload.hpp"
#include "forebay/stager.hpp"

namespace forebay::transfer {

/// Starts the kernels of `work` with the policy of `how`.
template <class W, class Run>
void launch_with(W const& work, stage_kind how, Run const& run, views memory) {
  namespace policy = simt::stage_policy;
  switch (how) {
    case stage_kind::plain:
      return work.template launch<policy::plain>(run, memory);
    case stage_kind::async4:
      return work.template launch<policy::async4>(run, memory);
    case stage_kind::async16:
      return work.template launch<policy::async16>(run, memory);
    case stage_kind::bulk:
      break;
  }
  work.template launch<policy::bulk>(run, memory);
}

/// Instantiated in the `.cpp` file that compiles the kernels of `W`.
template <class W>
void launch_on_cpu(W const& work, stage_kind how, views memory);

/// Instantiated in the `.cu` file that compiles the kernels of `W`. Returns before they have run.
template <class W>
void launch_on_gpu(W const& work, stage_kind how, views memory, CUstream_st* stream);

}  // namespace forebay::transfer
