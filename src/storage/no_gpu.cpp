// SPDX-License-Identifier: Apache-2.0
#include "forebay/error.hpp"
#include "storage/kernels_on_gpu.hpp"

namespace forebay::detail {
namespace {

/// Unreachable: no storage can be opened for a GPU.
[[noreturn]] void no_gpu() {
  throw operation_failed("storage: CUDA is not built in: configure with FOREBAY_CUDA=ON");
}

}  // namespace

void prepare_gpu(int) {
  no_gpu();
}
void load_kernels(int) {
  no_gpu();
}
bool drain_on_gpu(io_queues const&, cache const*, int, std::uint64_t) {
  no_gpu();
}
std::uint32_t settle_on_gpu(io_queues const&, cache const*, int) {
  no_gpu();
}
clean_result clean_on_gpu(cache const&, int) {
  no_gpu();
}
clean_result clean_range_on_gpu(cache const&, std::uint64_t, std::uint64_t, int) {
  no_gpu();
}
clean_result forget_on_gpu(cache const&, std::uint64_t, std::uint64_t, int) {
  no_gpu();
}
clean_result take_back_on_gpu(cache const&, std::byte const*, std::uint64_t, int) {
  no_gpu();
}

}  // namespace forebay::detail
