// SPDX-License-Identifier: Apache-2.0
#include "storage/launch_report_on_gpu.hpp"

namespace forebay::detail {

launch_report report_cuda_launch(void const*, simt::grid const&, int) {
  throw operation_failed("launch report: CUDA is not built in: configure with FOREBAY_CUDA=ON");
}

}  // namespace forebay::detail
