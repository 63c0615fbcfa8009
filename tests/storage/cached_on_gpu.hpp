// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the cached storage suite runs on a GPU: in placement 1, with drives on CPU threads, and in placement 3, with
//! drives on the GPU itself. For CUDA sources.
#pragma once

#include <string>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "storage/cached_storage_suite.hpp"

namespace forebay::storage_test {

/// A launch whose kernel needs more stack than any before waits until no kernel runs. Beside a service, or a drive's
/// resident engine, that is for ever. The kernels of this suite take up to 1,264 bytes in a fast build, and the default
/// is 1,024.
struct stack_for_all : testing::Environment {
  void SetUp() override { memory::check_cuda(cudaDeviceSetLimit(cudaLimitStackSize, 4096), "cudaDeviceSetLimit"); }
};
[[maybe_unused]] inline auto* const enough_stack = testing::AddGlobalTestEnvironment(new stack_for_all);

struct cached_on_gpu {
  using machine = simt::cuda;
  using completion = queue_rules;
  static std::string device() { return "cuda:0"; }
  static std::string drive_keys() { return ""; }
  static std::string file_uri(std::string const& path) { return "file:" + path; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>(shape, kernel, stream.get());
    stream.synchronize();
  }
};
struct cached_with_drives_in_hbm : cached_on_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=4"; }
  static std::string file_uri(std::string const& path) {
    return "emulated:backing=file,path=" + path + ",residency=in_process,sms=2";
  }
};

struct cached_with_queues_in_host_memory : cached_with_drives_in_hbm {
  static std::string drive_keys() { return ",backing=hbm,sms=4,placement=2"; }
};

}  // namespace forebay::storage_test
