// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/queue/drain.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/memory.hpp"
#include "storage/kernels_on_gpu.hpp"

namespace forebay::detail {
namespace {

using simt::cuda;

/// Runs a kernel that `make` makes for a zeroed `Result`, which the host reads afterwards. `items`: how many items its
/// threads share out.
template <class Result, class Make>
Result run_on_gpu(std::uint64_t items, int ordinal, Make make) {
  memory::current_device const here(ordinal);
  memory::allocation result(memory::pinned(), sizeof(Result), 128);
  // A user's stream may wait for a transfer that needs this kernel, while other kernels of the user fill the GPU.
  memory::cuda_stream const stream(ordinal, memory::urgency::first);
  constexpr std::uint32_t threads = 128;
  // A number of blocks that leaves room for a drive's engine and other kernels.
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

/// Calls `use(queues)` with the queues, whose commands complete to records, or to frames of `pages` too.
template <class Use>
auto with_queues(io_queues const& queues, cache const* pages, Use&& use) {
  if (pages == nullptr) return use(queues.ref<cuda>());
  return use(queues.ref<cuda>(cache_targets<cuda, staged_frames>(queues.records<cuda>(), pages->core())));
}

/// The number of threads that write `items` pages back, each one page at a time. With more in flight a drive would take
/// so long for the last of them that it would look lost.
std::uint64_t writers_of(cache const& pages, std::uint64_t items) {
  constexpr std::uint64_t bytes_in_flight = 32 << 20;
  return std::min(items, bytes_in_flight / pages.options().page_bytes);
}

}  // namespace

void load_kernels(int ordinal) {
  memory::current_device const here(ordinal);
  simt::load_kernels(ordinal);
}

void prepare_gpu(int ordinal) {
  load_kernels(ordinal);
  run_on_gpu<std::uint32_t>(1, ordinal, [](std::uint32_t* result) { return take_stack{result}; });
}

bool drain_on_gpu(io_queues const& queues, cache const* pages, int ordinal, std::uint64_t timeout_ns) {
  return with_queues(queues, pages, [&]<class Targets>(io_queues_ref<cuda, queue_rules, Targets> const& ref) {
    return run_on_gpu<std::uint32_t>(queues.pair_count(), ordinal, [&](std::uint32_t* busy) {
             return drain_kernel<cuda, Targets>{ref, timeout_ns, busy};
           }) == 0;
  });
}

std::uint32_t settle_on_gpu(io_queues const& queues, cache const* pages, int ordinal) {
  return with_queues(queues, pages, [&]<class Targets>(io_queues_ref<cuda, queue_rules, Targets> const& ref) {
    constexpr std::uint32_t threads = 1024;  // about as many as a queue has command ids
    return run_on_gpu<std::uint32_t>(
        threads, ordinal, [&](std::uint32_t* given_up) { return settle_kernel<cuda, Targets>{ref, given_up}; });
  });
}

clean_result clean_on_gpu(cache const& pages, int ordinal) {
  return run_on_gpu<clean_result>(writers_of(pages, pages.frame_count()), ordinal, [&](clean_result* result) {
    return clean_kernel<cuda>{pages.frames_ref<cuda>(), result};
  });
}

clean_result clean_range_on_gpu(cache const& pages, std::uint64_t first_page, std::uint64_t count, int ordinal) {
  return run_on_gpu<clean_result>(writers_of(pages, count), ordinal, [&](clean_result* result) {
    return clean_range_kernel<cuda>{pages.frames_ref<cuda>(), first_page, count, result};
  });
}

clean_result forget_on_gpu(cache const& pages, std::uint64_t first_page, std::uint64_t count, int ordinal) {
  return run_on_gpu<clean_result>(writers_of(pages, count), ordinal, [&](clean_result* result) {
    return forget_kernel<cuda>{pages.frames_ref<cuda>(), first_page, count, result};
  });
}

clean_result take_back_on_gpu(cache const& pages, std::byte const* first, std::uint64_t bytes, int ordinal) {
  return run_on_gpu<clean_result>(writers_of(pages, pages.options().user_frames), ordinal, [&](clean_result* result) {
    return take_back_kernel<cuda>{pages.frames_ref<cuda>(), first, bytes, result};
  });
}

}  // namespace forebay::detail
