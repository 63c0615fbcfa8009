// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the transfer suite runs: workloads with named buffers, whose kernels bring tiles to shared memory by a policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct CUstream_st;  // what a cudaStream_t points to

namespace forebay::transfer {

/// How much the buffers hold: tiny 1 to 8 MB, small 8 to 64 MB, medium 64 to 512 MB, large 0.5 to 1 GB, super 1 to 4
/// GB, mega 4 to 32 GB.
enum class problem_size : std::uint8_t { tiny, small, medium, large, super, mega };
inline constexpr std::string_view size_names[] = {"tiny", "small", "medium", "large", "super", "mega"};

/// How a kernel brings tiles to shared memory: `simt::stage_policy`.
enum class stage_kind : std::uint8_t { plain, async4, async16, bulk };
inline constexpr std::string_view stage_names[] = {"plain", "async4", "async16", "bulk"};
inline constexpr stage_kind all_stages[] = {stage_kind::plain, stage_kind::async4, stage_kind::async16,
                                            stage_kind::bulk};

enum class workload_group : std::uint8_t { micro, application, network };
inline constexpr std::string_view group_names[] = {"micro", "application", "network"};

/// How a workload is launched. A member that is 0 stands for the workload's own choice.
struct launch_shape {
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;  ///< of a block
  std::uint32_t tile = 0;     ///< in the workload's own unit, which its facts name
  std::uint32_t stages = 0;   ///< buffers for tiles, 1 to 8
};

struct workload_facts {
  std::string_view name;
  workload_group group;
  std::string_view tile_unit;  ///< what `launch_shape::tile` counts
  std::string_view summary;    ///< what it computes
};

/// Which way a buffer's bytes go. `scratch` stays where the kernels run, uninitialised.
enum class buffer_use : std::uint8_t { in, out, in_out, scratch };

struct buffer {
  std::string name;
  std::uint64_t bytes;
  buffer_use use;
};

/// What one launch does, counted over all threads. It depends on the workload, not on what the hardware does.
struct workload_costs {
  double operations = 0;       ///< of arithmetic; a multiplication with an addition counts two
  double staged_bytes = 0;     ///< that tiles bring to shared memory, each time that they do
  double shared_accesses = 0;  ///< loads and stores of shared memory by threads
  /// That kernels read and write in device memory at least, each kernel its own. 0: each buffer but scratch once, and
  /// twice if it is in and out.
  double device_bytes = 0;
};

/// The addresses of a workload's buffers, in the order of `buffers()`: all of the host, or all of the device.
class views {
 public:
  views() = default;
  explicit views(std::span<std::byte* const> addresses) : addresses_(addresses) {}
  template <class T>
  T* at(std::size_t buffer) const {
    return reinterpret_cast<T*>(addresses_[buffer]);
  }

 private:
  std::span<std::byte* const> addresses_;
};

/// A workload of some class, with one size and shape.
///
/// A workload is a class `W` in `workloads/`, one header each:
///
///     static constexpr workload_facts facts;
///     W(problem_size, launch_shape given);   // fills in what `given` leaves 0; throws refused_input
///     launch_shape shape() const;            // without zeros
///     std::vector<buffer> buffers() const;
///     workload_costs costs() const;
///     void init(std::uint64_t seed, views host) const;            // fills the buffers that the kernels read
///     std::string mismatch(std::uint64_t seed, views host) const; // "" if the results are right, else the first wrong
///     template <class Policy, class Run> void launch(Run const& run, views device) const;
///
/// `init` and `mismatch` run on the host, with several threads. `launch` only starts kernels: `run(simt::grid,
/// kernel)`. A workload has no state: each call with the same arguments does the same. Results do not depend on the
/// policy, to the last bit.
class workload {
 public:
  virtual ~workload() = default;
  virtual workload_facts const& facts() const = 0;
  virtual launch_shape shape() const = 0;
  virtual std::vector<buffer> buffers() const = 0;
  virtual workload_costs costs() const = 0;
  virtual void init(std::uint64_t seed, views host) const = 0;
  virtual std::string mismatch(std::uint64_t seed, views host) const = 0;
  /// Returns when the kernels have run. Throws `operation_failed`.
  virtual void run_on_cpu(stage_kind how, views memory) const = 0;
  /// Starts the kernels in a stream of the current GPU, a `cudaStream_t`, and returns before they have run. Throws
  /// `operation_failed`, also where CUDA is not built in.
  virtual void start_on_gpu(stage_kind how, views memory, CUstream_st* stream) const = 0;
};

}  // namespace forebay::transfer
