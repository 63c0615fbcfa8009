// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stream of one GPU, owned. Only in builds with CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "forebay/error.hpp"

namespace forebay::memory {

/// Throws `operation_failed` that names `what` unless `result` is success.
inline void check_cuda(cudaError_t result, std::string const& what) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or the thread's next call might report it again
  throw operation_failed(what + ": " + cudaGetErrorName(result) + ": " + cudaGetErrorString(result));
}

/// While it lives, the calling thread may do what a capture of a CUDA graph by another thread forbids it, such as
/// asking whether an event was reached: that would fail, and end the capture.
class beside_captures {
 public:
  beside_captures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  beside_captures(beside_captures const&) = delete;
  beside_captures& operator=(beside_captures const&) = delete;
  ~beside_captures() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// While it lives, GPU `ordinal` is current for the calling thread, and no capture of a CUDA graph forbids it anything.
class current_device {
 public:
  /// Throws `operation_failed`.
  explicit current_device(int ordinal) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    check_cuda(cudaSetDevice(ordinal), "cudaSetDevice(" + std::to_string(ordinal) + ")");
  }
  current_device(current_device const&) = delete;
  current_device& operator=(current_device const&) = delete;
  ~current_device() { cudaSetDevice(before_); }

 private:
  beside_captures const allowed_;
  int before_ = 0;
};

/// A stream's priority: if several streams have blocks to start, the GPU starts those of a `first` one first.
enum class urgency : std::uint8_t { ordinary, first };

/// Owns a stream of a GPU. It is not ordered with any other stream, not even with the legacy default stream, so it
/// never waits for another client's kernel. Its members throw `operation_failed`. Not copyable.
class cuda_stream {
 public:
  /// A new stream of GPU `ordinal`.
  explicit cuda_stream(int ordinal, urgency how = urgency::ordinary) : ordinal_(ordinal) {
    current_device const here(ordinal);
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, how == urgency::first ? greatest : least),
               "cudaStreamCreate");
  }
  cuda_stream(cuda_stream const&) = delete;
  cuda_stream& operator=(cuda_stream const&) = delete;
  ~cuda_stream() { cudaStreamDestroy(stream_); }

  /// The stream.
  cudaStream_t get() const { return stream_; }
  /// The GPU.
  int ordinal() const { return ordinal_; }
  /// Waits until all work in the stream has ended.
  void synchronize() const {
    beside_captures const allowed;
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  int ordinal_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace forebay::memory
