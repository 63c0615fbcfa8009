// SPDX-License-Identifier: Apache-2.0
#include "apps/file_io/gpu.hpp"

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "apps/file_io/blocks.hpp"
#include "forebay/cuda_stream.hpp"

namespace forebay::file_io {
namespace {

using memory::check_cuda;

class stream_copies final : public gpu_copies {
 public:
  explicit stream_copies(blocks const& memory)
      : memory_(memory), here_(memory.gpu()), stream_(memory.gpu()), events_(memory.count()) {}
  ~stream_copies() override {
    cudaStreamSynchronize(stream_.get());
    for (cudaEvent_t const event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }

  void start_to_gpu(std::uint32_t slot) override {
    start(slot, memory_.end(slot), memory_.host(slot), cudaMemcpyHostToDevice);
  }
  void start_to_host(std::uint32_t slot) override {
    start(slot, memory_.host(slot), memory_.end(slot), cudaMemcpyDeviceToHost);
  }
  bool ended(std::uint32_t slot) override {
    cudaError_t const state = cudaEventQuery(events_[slot]);
    if (state == cudaErrorNotReady) return false;
    check_cuda(state, "cudaEventQuery");
    return true;
  }
  void wait(std::uint32_t slot) override { check_cuda(cudaEventSynchronize(events_[slot]), "cudaEventSynchronize"); }

 private:
  void start(std::uint32_t slot, void* to, void const* from, cudaMemcpyKind direction) {
    cudaEvent_t& event = events_[slot];
    if (event == nullptr) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    check_cuda(cudaMemcpyAsync(to, from, memory_.block_bytes(), direction, stream_.get()), "cudaMemcpyAsync");
    check_cuda(cudaEventRecord(event, stream_.get()), "cudaEventRecord");
  }

  blocks const& memory_;
  memory::current_device here_;
  memory::cuda_stream stream_;
  std::vector<cudaEvent_t> events_;  ///< null until the first copy of the block
};

}  // namespace

std::unique_ptr<gpu_copies> make_gpu_copies(blocks const& memory) {
  return std::make_unique<stream_copies>(memory);
}

std::shared_ptr<void> page_locked(void* begin, std::size_t bytes) {
  memory::beside_captures const allowed;
  check_cuda(cudaHostRegister(begin, bytes, cudaHostRegisterPortable),
             "page-locking " + std::to_string(bytes) + " bytes of host memory");
  return {begin, [](void* locked) {
            memory::beside_captures const also_allowed;
            cudaHostUnregister(locked);
          }};
}

}  // namespace forebay::file_io
