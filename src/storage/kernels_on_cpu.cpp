// SPDX-License-Identifier: Apache-2.0
#include "storage/kernels_on_cpu.hpp"

#include "forebay/detail/queue/drain.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::detail {
namespace {

using simt::native;

cache_targets<native, staged_frames> targets_of(io_queues const& queues, cache const& pages) {
  return {queues.records<native>(), pages.core()};
}

}  // namespace

bool drain_on_cpu(io_queues const& queues, cache const* pages, std::uint64_t timeout_ns) {
  std::uint32_t busy = 0;
  if (pages != nullptr) {
    auto const to_frames = queues.ref<native>(targets_of(queues, *pages));
    drain_kernel<native, cache_targets<native, staged_frames>>{to_frames, timeout_ns, &busy}();
  } else {
    drain_kernel<native>{queues.ref<native>(), timeout_ns, &busy}();
  }
  return busy == 0;
}

std::uint32_t settle_on_cpu(io_queues const& queues, cache const* pages) {
  std::uint32_t given_up = 0;
  if (pages != nullptr) {
    settle_kernel<native, cache_targets<native, staged_frames>>{queues.ref<native>(targets_of(queues, *pages)),
                                                                &given_up}();
  } else {
    settle_kernel<native>{queues.ref<native>(), &given_up}();
  }
  return given_up;
}

clean_result clean_on_cpu(cache const& pages) {
  clean_result result;
  clean_kernel<native>{pages.frames_ref<native>(), &result}();
  return result;
}

clean_result clean_range_on_cpu(cache const& pages, std::uint64_t first_page, std::uint64_t count) {
  clean_result result;
  clean_range_kernel<native>{pages.frames_ref<native>(), first_page, count, &result}();
  return result;
}

clean_result forget_on_cpu(cache const& pages, std::uint64_t first_page, std::uint64_t count) {
  clean_result result;
  forget_kernel<native>{pages.frames_ref<native>(), first_page, count, &result}();
  return result;
}

clean_result take_back_on_cpu(cache const& pages, std::byte const* first, std::uint64_t bytes) {
  clean_result result;
  take_back_kernel<native>{pages.frames_ref<native>(), first, bytes, &result}();
  return result;
}

}  // namespace forebay::detail
