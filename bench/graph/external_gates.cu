// SPDX-License-Identifier: Apache-2.0
#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "graph/external_gates.hpp"
#include "graph/external_gates_bench.hpp"
#include "harness/event_timer.hpp"
#include "harness/gpu_use.hpp"

namespace forebay::bench {
namespace {

using runner = gate_runner<apps::executor<simt::cuda>>;

constexpr std::uint32_t threads_per_block = 256;

}  // namespace

struct gates_on_gpu::impl {
  impl(std::uint64_t device_bytes, std::uint64_t pinned_bytes)
      : device(run.memory(), device_bytes / 4),
        pinned(memory::pinned(), pinned_bytes / 4),
        rows(run, device.data(), pinned.data()) {
    for (auto const* words : {&device, &pinned}) {
      run({.blocks = 1024, .threads_per_block = threads_per_block},
          gate_fill<simt::cuda>{words->data(), words->size()});
    }
    run.synchronize();
  }

  apps::executor<simt::cuda> run{0};
  apps::device_array<std::uint32_t> device;
  apps::device_array<std::uint32_t> pinned;
  runner rows;
};

gates_on_gpu::gates_on_gpu(std::uint64_t device_bytes, std::uint64_t pinned_bytes)
    : impl_(std::make_unique<impl>(device_bytes, pinned_bytes)) {}
gates_on_gpu::~gates_on_gpu() = default;

gate_run gates_on_gpu::run(gate_row const& row, std::uint64_t seed) {
  auto const shape_of = [](auto const& kernel, gate_reader reader) {
    auto const use = gpu_use_of<std::remove_cvref_t<decltype(kernel)>>(threads_per_block);
    // A thread for each lane makes more clients than any limit needs; with more of them each only waits longer.
    std::uint32_t const per_sm = reader == gate_reader::warp ? use.resident_blocks_per_sm : 1;
    return simt::grid{.blocks = use.sms * per_sm, .threads_per_block = threads_per_block};
  };
  auto const seconds = [this](auto const& launch) { return seconds_of(impl_->run.stream(), launch); };
  return impl_->rows.run(row, seed, shape_of, seconds);
}

std::vector<gate_kernel> gates_on_gpu::kernels() {
  std::vector<gate_kernel> all;
  auto const add = [&]<class Kernel>(char const* name, Kernel const&) {
    auto const use = gpu_use_of<Kernel>(threads_per_block);
    all.push_back(
        {name, use.registers_per_thread, use.local_bytes_per_thread, use.resident_blocks_per_sm * threads_per_block});
  };
  add("reads by warps", runner::warp_reads{});
  add("reads by threads", runner::thread_reads{});
  add("chase", runner::external_chase{});
  add("plain reads", runner::plain_reads{});
  add("plain chase", runner::plain_chase{});
  return all;
}

}  // namespace forebay::bench
