// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernels of the transfer suite's workloads alone, verified, under each stage policy, beside a copy within the
//! GPU's memory and a product by cuBLAS.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/recommender/cublas.hpp"
#include "apps/transfer/registry.hpp"
#include "apps/transfer/run_on_gpu.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "harness/benchmark.hpp"
#include "harness/document.hpp"
#include "harness/event_timer.hpp"
#include "transfer/fma_rate.hpp"

namespace {

using nlohmann::json;
namespace bench = forebay::bench;
namespace memory = forebay::memory;
namespace transfer = forebay::transfer;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Bytes read and written in a second by a copy from one half of 4 GiB to the other.
double copy_bandwidth(memory::cuda_stream const& stream) {
  constexpr std::size_t bytes = std::size_t{2} << 30;
  memory::allocation const all(memory::device(0), 2 * bytes, 4096);
  std::vector<double> rates;
  for (int i = 0; i < 7; ++i) {
    double const seconds = bench::seconds_of(stream, [&] {
      memory::check_cuda(
          cudaMemcpyAsync(all.as<std::byte>() + bytes, all.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()),
          "cudaMemcpyAsync");
    });
    if (i != 0) rates.push_back(2.0 * bytes / seconds);
  }
  return median(rates);
}

/// Operations a second of a product of square matrices in fp32, without tensor cores.
double cublas_rate(memory::cuda_stream const& stream) {
  constexpr std::uint32_t side = 8192;
  memory::allocation const all(memory::device(0), std::size_t{3} * side * side * sizeof(float), 4096);
  forebay::recommender::dlrm_cublas const cublas(stream.get(), memory::device(0),
                                                 forebay::recommender::cublas_math::fp32);
  auto* const a = all.as<float>();
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    double const seconds = bench::seconds_of(stream, [&] {
      cublas.multiply(a, a + std::size_t{side} * side, a + std::size_t{2} * side * side, side, side, side, side);
    });
    if (i != 0) rates.push_back(2.0 * side * side * side / seconds);
  }
  return median(rates);
}

/// What the kernels read and write in device memory at least.
double device_bytes(transfer::workload const& work) {
  double bytes = work.costs().device_bytes;
  if (bytes != 0) return bytes;
  for (transfer::buffer const& b : work.buffers()) {
    if (b.use == transfer::buffer_use::scratch) continue;
    bytes += static_cast<double>(b.bytes) * (b.use == transfer::buffer_use::in_out ? 2 : 1);
  }
  return bytes;
}

template <std::size_t N>
std::size_t index_of(std::string_view const (&names)[N], std::string const& option, std::string const& name) {
  auto const found = std::find(std::begin(names), std::end(names), name);
  if (found != std::end(names)) return static_cast<std::size_t>(found - std::begin(names));
  std::string known;
  for (std::string_view const n : names) known += (known.empty() ? "" : ", ") + std::string(n);
  throw forebay::refused_input(option, name, "must be one of " + known);
}

int run(bench::command_line const& given) {
  auto const size =
      static_cast<transfer::problem_size>(index_of(transfer::size_names, "--size", given.text("--size", "medium")));
  auto const transfer_kind = static_cast<transfer::transfer_kind>(
      index_of(transfer::transfer_names, "--transfer", given.text("--transfer", "pinned")));
  transfer::launch_shape const shape{.blocks = given.number("--blocks", 0u),
                                     .threads = given.number("--threads", 0u),
                                     .tile = given.number("--tile", 0u),
                                     .stages = given.number("--stages", 0u)};
  std::string const only = given.text("--workload", "");
  auto const repetitions = given.number("--repetitions", 5u);

  memory::cuda_stream const stream(0);
  json document = bench::document_of("transfer_kernels", given.as_typed());
  double const copied = copy_bandwidth(stream);
  double const multiplied = cublas_rate(stream);
  double const fma = bench::fma_rate(stream);
  document["copy_bytes_per_second"] = copied;
  document["cublas_operations_per_second"] = multiplied;
  document["fma_operations_per_second"] = fma;
  std::printf("copy %.0f GB/s, cuBLAS %.1f TFLOP/s, multiplications with additions %.1f TFLOP/s\n", copied / 1e9,
              multiplied / 1e12, fma / 1e12);
  bool verified = true;
  for (transfer::registered_workload const& w : transfer::workloads()) {
    if (!only.empty() && w.facts->name != only) continue;
    for (transfer::stage_kind const stage : transfer::all_stages) {
      std::string const stage_name(transfer::stage_names[static_cast<int>(stage)]);
      json row{
          {"workload", w.facts->name}, {"stage", stage_name}, {"size", transfer::size_names[static_cast<int>(size)]}};
      try {
        auto const work = w.make(size, shape);
        transfer::gpu_run const result = transfer::run_on_gpu(
            *work, {transfer_kind, transfer::allocation_kind::malloc, stage}, 1, {.timed = repetitions}, 0);
        std::vector<double> seconds;
        for (transfer::run_times const& t : result.warm) seconds.push_back(t.kernels);
        double const moved = device_bytes(*work);
        double const operations = work->costs().operations;
        double const typical = median(seconds);
        bool const right = result.mismatch.empty();
        verified = verified && right;
        auto const used = work->shape();
        row["shape"] = {
            {"blocks", used.blocks}, {"threads", used.threads}, {"tile", used.tile}, {"stages", used.stages}};
        row["verified"] = right;
        row["mismatch"] = result.mismatch;
        row["kernel_seconds"] = seconds;
        row["device_bytes_per_second"] = right ? moved / typical : 0;
        row["operations_per_second"] = right ? operations / typical : 0;
        // Of the time that the copy would take for these bytes, or the other kernel for these operations: the longer.
        double const bound = std::max(moved / copied, operations / fma);
        row["part_of_bound"] = right ? bound / typical : 0;
        std::printf("%-22s %-8s %10.3f ms %8.0f GB/s (%3.0f %%) %8.2f TFLOP/s (%3.0f %%)%s%s\n",
                    std::string(w.facts->name).c_str(), stage_name.c_str(), typical * 1e3, moved / typical / 1e9,
                    100 * moved / typical / copied, operations / typical / 1e12, 100 * operations / typical / fma,
                    right ? "" : "  WRONG: ", result.mismatch.c_str());
      } catch (forebay::operation_failed const& failure) {
        verified = false;
        row["failed"] = failure.what();
        std::printf("%-22s %-8s FAILED: %s\n", std::string(w.facts->name).c_str(), stage_name.c_str(), failure.what());
      }
      std::fflush(stdout);
      document["results"].push_back(row);
    }
  }
  return bench::finish(given, document, verified);
}

}  // namespace

bench::benchmark const bench::this_benchmark{
    .with_value = {{"--size", "tiny, small, medium (default), large, super or mega"},
                   {"--transfer", "how buffers get to the GPU, default pinned"},
                   {"--workload", "only this one"},
                   {"--repetitions", "timed runs of each, default 5"},
                   {"--blocks", "of a launch; default: the workload's own, as for the next three"},
                   {"--threads", "of a block"},
                   {"--tile", "in the workload's own unit"},
                   {"--stages", "buffers for tiles, 1 to 8"}},
    .switches = {},
    .environment = {bench::load_all_code},
    .run = run};
