// SPDX-License-Identifier: Apache-2.0
#include "forebay/error.hpp"
#include "storage/drain_on_gpu.hpp"

namespace forebay::detail {

bool drain_on_gpu(io_queues const&, int, std::uint64_t) {
  throw operation_failed("storage: CUDA is not built in");  // unreachable: no storage can be opened for a GPU
}

}  // namespace forebay::detail
