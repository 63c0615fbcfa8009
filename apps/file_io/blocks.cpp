// SPDX-License-Identifier: Apache-2.0
#include "apps/file_io/blocks.hpp"

#include <cstring>

namespace forebay::file_io {
namespace {

constexpr std::size_t host_page_bytes = 4096;
constexpr std::size_t gpu_page_bytes = 64 << 10;  // what cuFile maps at once

}  // namespace

blocks::blocks(std::uint32_t count, std::uint64_t block_bytes, int gpu)
    : gpu_(gpu), count_(count), block_bytes_(block_bytes), host_(memory::host(), size_bytes(), host_page_bytes) {
#ifdef FOREBAY_HAS_CUDA
  if (gpu >= 0) {
    device_ = memory::allocation(memory::device(gpu), size_bytes(), gpu_page_bytes);
    locked_ = page_locked(host_.data(), size_bytes());
  }
#endif
}

std::unique_ptr<gpu_copies> blocks::copies() const {
#ifdef FOREBAY_HAS_CUDA
  if (gpu_ >= 0) return make_gpu_copies(*this);
#endif
  return nullptr;
}

void blocks::take_from_gpu(std::uint32_t slot) const {
  if (gpu_ < 0) return;
  // A copy that moves nothing must not leave what another engine had put there.
  std::memset(host(slot), 0, block_bytes_);
  device_.from().copy_out(host(slot), end(slot), block_bytes_);
}

void blocks::give_to_gpu(std::uint32_t slot) const {
  if (gpu_ < 0) return;
  device_.from().copy_in(end(slot), host(slot), block_bytes_);
  std::memset(host(slot), 0, block_bytes_);
}

}  // namespace forebay::file_io
