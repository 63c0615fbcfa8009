// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "apps/common/executor.hpp"
#include "forebay/memory.hpp"
#include "harness/event_timer.hpp"
#include "transfer/fma_rate.hpp"

namespace forebay::bench {
namespace {
constexpr std::uint32_t chains = 8, rounds = 4096, blocks = 4096, threads = 256;
}

template <class M>
struct fma_kernel {
  float factor;
  float* never;

  FOREBAY_DEVICE void operator()() const {
    float value[chains];
    FOREBAY_UNROLL for (std::uint32_t i = 0; i < chains; ++i) value[i] = static_cast<float>(i);
    for (std::uint32_t round = 0; round < rounds; ++round) {
      FOREBAY_UNROLL for (std::uint32_t i = 0; i < chains; ++i) value[i] = factor * value[i] + factor;
    }
    float sum = 0;
    FOREBAY_UNROLL for (std::uint32_t i = 0; i < chains; ++i) sum += value[i];
    // Never so, since all values are positive. Without a use the compiler leaves the chains out.
    if (sum < 0) *never = sum;
  }
};

double fma_rate(memory::cuda_stream const& stream) {
  memory::allocation const place(memory::device(0), sizeof(float), sizeof(float));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    double const seconds = seconds_of(stream, [&] {
      simt::launch<simt::cuda>({blocks, threads, 0}, fma_kernel<simt::cuda>{0.5f, place.as<float>()}, stream.get());
    });
    best = std::max(best, 2.0 * chains * rounds * blocks * threads / seconds);
  }
  return best;
}

}  // namespace forebay::bench
