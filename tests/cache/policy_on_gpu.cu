// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "docs/examples/lru.hpp"
#include "forebay/clock.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/memory.hpp"
#include "forebay/s3_fifo.hpp"
#include "policy_hits.hpp"

namespace forebay::test {

namespace {

/// One thread for each set uses the pages of the trace that belong to the set.
template <class Policy>
struct replays {
  policy_set<simt::cuda, Policy>* cache;
  std::uint64_t const* trace;
  std::uint64_t accesses;
  std::uint32_t sets;
  std::uint64_t* hits;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const set = simt::cuda::thread_rank();
    if (set >= sets) return;
    std::uint64_t count = 0;
    for (std::uint64_t k = 0; k < accesses; ++k) {
      if (trace[k] % sets == set && cache[set].use(static_cast<std::uint32_t>(trace[k] / sets))) ++count;
    }
    hits[set] = count;
  }
};

}  // namespace

template <class Policy>
std::vector<std::uint64_t> hits_by_set_on_gpu(trace_of_pages const& trace, std::uint32_t sets, std::uint32_t ways) {
  using set_on_gpu = policy_set<simt::cuda, Policy>;
  memory::resource& gpu = memory::device(0);
  std::vector<set_on_gpu> const empty(sets, set_on_gpu(ways));
  apps::device_array<set_on_gpu> const cache(gpu, empty);
  apps::device_array<std::uint64_t> const pages(gpu, trace);
  apps::device_array<std::uint64_t> const hits(gpu, sets);
  memory::cuda_stream const stream(0);
  simt::launch<simt::cuda>({.blocks = (sets + 31) / 32, .threads_per_block = 32},
                           replays<Policy>{cache.data(), pages.data(), trace.size(), sets, hits.data()}, stream.get());
  stream.synchronize();
  return hits.to_host();
}

template std::vector<std::uint64_t> hits_by_set_on_gpu<replacement::clock>(trace_of_pages const&, std::uint32_t,
                                                                           std::uint32_t);
template std::vector<std::uint64_t> hits_by_set_on_gpu<replacement::s3_fifo>(trace_of_pages const&, std::uint32_t,
                                                                             std::uint32_t);
template std::vector<std::uint64_t> hits_by_set_on_gpu<lru>(trace_of_pages const&, std::uint32_t, std::uint32_t);

}  // namespace forebay::test
