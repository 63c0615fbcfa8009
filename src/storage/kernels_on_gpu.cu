// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "forebay/memory/cuda_stream.hpp"
#include "forebay/memory/resource.hpp"
#include "forebay/queue/drain.hpp"
#include "forebay/simt/cuda.hpp"
#include "storage/kernels_on_gpu.hpp"

namespace forebay::detail {
namespace {

using simt::cuda;

/// Runs a kernel that `make` makes for a zeroed `Result` which the host reads afterwards. `items`: what its threads
/// share out.
template <class Result, class Make>
Result run_on_gpu(std::uint64_t items, int ordinal, Make make) {
  memory::allocation result(memory::pinned(), sizeof(Result), 128);
  memory::cuda_stream const stream(ordinal);
  constexpr std::uint32_t threads = 128;
  // As many blocks as leave a drive's engine and other kernels room.
  auto const blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>((items + threads - 1) / threads, 1, 64));
  simt::launch<cuda>({.blocks = blocks, .threads_per_block = threads}, make(result.as<Result>()), stream.get());
  stream.synchronize();
  return *result.as<Result>();
}

/// Takes as much stack as a thread has by default (`cudaLimitStackSize`), which no kernel of the library exceeds.
struct take_stack {
  static constexpr std::uint32_t words = 256;
  std::uint32_t* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t volatile stack[words];
    for (std::uint32_t i = 0; i < words; ++i) stack[i * 7 % words] = i;
    if (stack[cuda::thread_rank() % words] == words) *result = 1;
  }
};

template <class Targets>
bool drain(io_queues_ref<cuda, queue_rules, Targets> const& queues, std::uint32_t pairs, int ordinal,
           std::uint64_t timeout_ns) {
  return run_on_gpu<std::uint32_t>(pairs, ordinal, [&](std::uint32_t* busy) {
           return drain_kernel<cuda, Targets>{queues, timeout_ns, busy};
         }) == 0;
}

}  // namespace

void reserve_stacks_on_gpu(int ordinal) {
  run_on_gpu<std::uint32_t>(1, ordinal, [](std::uint32_t* result) { return take_stack{result}; });
}

bool drain_on_gpu(io_queues const& queues, cache const* pages, int ordinal, std::uint64_t timeout_ns) {
  if (pages == nullptr) return drain(queues.ref<cuda>(), queues.pair_count(), ordinal, timeout_ns);
  cache_targets<cuda> const targets(queues.records<cuda>(), pages->core());
  return drain(queues.ref<cuda>(targets), queues.pair_count(), ordinal, timeout_ns);
}

clean_result clean_on_gpu(cache const& pages, int ordinal, std::uint64_t timeout_ns) {
  return run_on_gpu<clean_result>(pages.frame_count(), ordinal, [&](clean_result* result) {
    return clean_kernel<cuda>{pages.frames_ref<cuda>(), timeout_ns, result};
  });
}

clean_result forget_on_gpu(cache const& pages, std::uint64_t first_page, std::uint64_t count, int ordinal,
                           std::uint64_t timeout_ns) {
  return run_on_gpu<clean_result>(count, ordinal, [&](clean_result* result) {
    return forget_kernel<cuda>{pages.frames_ref<cuda>(), first_page, count, timeout_ns, result};
  });
}

clean_result take_back_on_gpu(cache const& pages, std::byte const* first, std::uint64_t bytes, int ordinal,
                              std::uint64_t timeout_ns) {
  return run_on_gpu<clean_result>(pages.options().user_frames, ordinal, [&](clean_result* result) {
    return take_back_kernel<cuda>{pages.frames_ref<cuda>(), first, bytes, timeout_ns, result};
  });
}

}  // namespace forebay::detail
