// SPDX-License-Identifier: Apache-2.0
//! \file
//! The pipeline suite on a GPU: in placement 1, with drives on CPU threads, and in placement 3, with drives on the GPU
//! itself.
#include <string>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "storage/pipeline_suite.hpp"

namespace forebay::storage_test {

struct pipeline_on_gpu {
  using machine = simt::cuda;
  static std::string device() { return "cuda:0"; }
  static std::string drive_keys() { return ""; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>(shape, kernel, stream.get());
    stream.synchronize();
  }
};
struct pipeline_with_drives_in_hbm : pipeline_on_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=4"; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, PipelineSuite, pipeline_on_gpu);
INSTANTIATE_TYPED_TEST_SUITE_P(ResidentDrives, PipelineSuite, pipeline_with_drives_in_hbm);

}  // namespace forebay::storage_test
