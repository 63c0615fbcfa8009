// SPDX-License-Identifier: Apache-2.0
//! \file
//! The stager, compiled for each target: bulk copies where they exist, or, with FOREBAY_BULK_ON_EVERY_TARGET, on
//! targets where the compiler must refuse them.
#include "forebay/stager.hpp"

namespace {

using forebay::simt::cuda;

template <class Policy>
struct reversed {
  float const* from;
  float* to;
  std::uint32_t tile;

  FOREBAY_DEVICE void operator()() const {
    auto const block = cuda::this_block();
    forebay::simt::stager<cuda, Policy, float> staged(block, &block.template shared<std::byte>(), tile, 1);
    staged.copy(staged.acquire(), from + std::size_t{block.rank} * tile, tile);
    staged.commit();
    float const* const values = staged.wait();
    for (std::uint32_t i = block.thread_rank(); i < tile; i += block.size()) {
      to[std::size_t{block.rank} * tile + i] = values[tile - 1 - i];
    }
    staged.release();
  }
};

}  // namespace

namespace policy = forebay::simt::stage_policy;

__global__ void stage_on_every_target(float const* from, float* to, std::uint32_t tile) {
  reversed<policy::plain>{from, to, tile}();
  reversed<policy::async4>{from, to, tile}();
  reversed<policy::async16>{from, to, tile}();
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900 || defined(FOREBAY_BULK_ON_EVERY_TARGET))
  reversed<policy::bulk>{from, to, tile}();
#endif
}
