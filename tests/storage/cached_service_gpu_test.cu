// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on a GPU where a service consumes completions.
#include "forebay/detail/simt/native.hpp"
#include "forebay/queue_rules.hpp"
#include "storage/cached_on_gpu.hpp"

namespace forebay::storage_test {

/// A resident kernel consumes completions, not the threads that wait.
template <class Drives>
struct cached_beside_a_service : Drives {
  using completion = service_rules;
  template <class Service, class Kernel>
  static void run_beside(Service const& service, std::uint32_t* stop, simt::grid shape, Kernel const& kernel) {
    // Loaded before, since loading may wait for kernels that run.
    cudaFuncAttributes loaded{};
    memory::check_cuda(
        cudaFuncGetAttributes(&loaded, reinterpret_cast<void const*>(simt::detail::cuda_entry_of<Kernel>())),
        "cudaFuncGetAttributes");
    memory::cuda_stream const serving(0), working(0);
    simt::launch<simt::cuda>({2, 64}, service, serving.get());
    simt::launch<simt::cuda>(shape, kernel, working.get());
    working.synchronize();
    // Release pairs with the service's acquire.
    simt::atomic<simt::native, simt::scope::system>(*stop).store(1, simt::order::release);
    serving.synchronize();
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(ServicedGpu, CachedStorageSuite, cached_beside_a_service<cached_on_gpu>);
INSTANTIATE_TYPED_TEST_SUITE_P(ServicedResidentDrives, CachedStorageSuite,
                               cached_beside_a_service<cached_with_drives_in_hbm>);

}  // namespace forebay::storage_test
