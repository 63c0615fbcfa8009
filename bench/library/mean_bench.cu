// SPDX-License-Identifier: Apache-2.0
#include "apps/common/executor.hpp"
#include "apps/common/memory_view.hpp"
#include "harness/event_timer.hpp"
#include "library/mean.hpp"
#include "library/mean_bench.hpp"

namespace forebay::bench {

struct mean_in_memory::impl {
  explicit impl(std::uint64_t elements)
      : vector(run.memory(), elements),
        work(run, apps::memory_view<float>(vector.data(), elements)),
        sum(run.memory(), 1),
        sink(run.memory(), 1) {
    run(all(), mean_fill<simt::cuda>{0, elements, vector.data()});
    run(all(), mean_exact<simt::cuda>{elements, sum.data()});
    run.synchronize();
  }
  simt::grid all() const { return {.blocks = run.warps() / 4, .threads_per_block = 256}; }

  apps::executor<simt::cuda> run{0};
  apps::device_array<float> vector;
  mean<apps::executor<simt::cuda>, apps::memory_view<float>> work;
  apps::device_array<std::uint64_t> sum;
  apps::device_array<std::uint32_t> sink;
};

mean_in_memory::mean_in_memory(std::uint64_t elements) : impl_(std::make_unique<impl>(elements)) {}
mean_in_memory::~mean_in_memory() = default;

double mean_in_memory::seconds() {
  return seconds_of(impl_->run.stream(), [&] { impl_->work(); });
}

double mean_in_memory::seconds_to_read() {
  impl& i = *impl_;
  return seconds_of(i.run.stream(), [&] {
    i.run(i.all(), mean_read_all<simt::cuda>{reinterpret_cast<simt::vec16 const*>(i.vector.data()), i.vector.size() / 4,
                                             i.sink.data()});
  });
}

double mean_in_memory::value() const {
  return impl_->work.value();
}

double mean_in_memory::exact() const {
  return static_cast<double>(impl_->sum.to_host()[0]) * 0x1p-24 / static_cast<double>(impl_->vector.size());
}

}  // namespace forebay::bench
