// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage suite on a GPU, in placement 1: queues and data in page-locked host memory.
#include "forebay/memory/cuda_stream.hpp"
#include "forebay/simt/cuda.hpp"
#include "storage/storage_suite.hpp"

namespace forebay::storage_test {

struct on_gpu {
  using machine = simt::cuda;
  static std::string device() { return "cuda:0"; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>(shape, kernel, stream.get());
    stream.synchronize();
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, StorageSuite, on_gpu);

}  // namespace forebay::storage_test
