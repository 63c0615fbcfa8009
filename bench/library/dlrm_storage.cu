// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <vector>

#include "apps/recommender/tables_on_storage.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "harness/gpu_use.hpp"
#include "library/dlrm_on_gpu.hpp"
#include "library/dlrm_storage.hpp"

namespace forebay::bench {

namespace {

using storage_view = storage_ref<simt::cuda, cached>;
using table_view = storage_view::view_type<dlrm_quad const>;

}  // namespace

struct dlrm_on_storage::impl {
  impl(dlrm_config const& config, dlrm_trace const& trace, std::uint32_t samples_max, cublas_math math,
       storage_options const& options)
      : drives(options),
        inputs(drives.device_memory(), trace),
        quads(trace.rows_of_all_tables() * config.floats / dlrm_quad_floats),
        gpu(config, drives.ref<simt::cuda, cached>().array<dlrm_quad const>(0, quads),
            options.cache.page_bytes / sizeof(dlrm_quad), samples_max, math) {
    if (drives.size_bytes() < quads * sizeof(dlrm_quad)) {
      throw refused_input("drive", options.drives[0],
                          "is too small for tables of " + std::to_string(quads * sizeof(dlrm_quad)) + " bytes");
    }
    // cuBLAS loads its code when it is first used, and waits for an idle GPU, which the GPU no longer is while a
    // drive's engine runs.
    for (std::uint32_t samples = 1; samples <= samples_max && samples <= inputs.samples(); samples *= 2) {
      gpu.seconds_to_infer(inputs.batches(samples, 1));
    }
    running.emplace(drives.lease());
    recommender::dlrm_write_tables(gpu.run(), drives, quads, options.cache.page_bytes);
    drives.reset_statistics();
  }

  storage drives;
  dlrm_inputs inputs;
  std::uint64_t quads;
  dlrm_on_gpu<table_view> gpu;
  std::optional<storage_lease> running;
  std::vector<dlrm_batch> batches;
  std::uint64_t next_sample = 0;
  bool some_failed = false;
};

dlrm_on_storage::dlrm_on_storage(dlrm_config const& config, dlrm_trace const& trace, std::uint32_t samples_max,
                                 cublas_math math, storage_options const& options)
    : impl_(std::make_unique<impl>(config, trace, samples_max, math, options)) {}
dlrm_on_storage::~dlrm_on_storage() = default;

std::uint64_t dlrm_on_storage::take(std::uint32_t samples, std::uint64_t batches) {
  impl& i = *impl_;
  if (i.next_sample + samples * batches > i.inputs.samples()) i.next_sample = 0;
  i.batches = i.inputs.batches(samples, batches, i.next_sample);
  i.next_sample += samples * i.batches.size();
  return i.batches.size();
}

double dlrm_on_storage::seconds_in_turn() {
  return impl_->gpu.seconds_in_turn(impl_->batches);
}
double dlrm_on_storage::seconds_ahead(std::uint64_t patience_ns) {
  std::uint32_t const samples = impl_->batches.empty() ? 1 : impl_->batches[0].samples;
  return impl_->gpu.seconds_ahead(impl_->batches,
                                  {.batches = dlrm_lookahead::batches_of(samples), .patience_ns = patience_ns});
}
double dlrm_on_storage::seconds_to_gather() {
  return impl_->gpu.seconds_to_gather(impl_->batches);
}
double dlrm_on_storage::seconds_to_infer() {
  return impl_->gpu.seconds_to_infer(impl_->batches);
}

std::uint64_t dlrm_on_storage::wrong_floats() {
  return impl_->gpu.wrong_floats(impl_->batches.back());
}

std::uint64_t dlrm_on_storage::prefetch_distance_max() const {
  return impl_->drives.ref<simt::cuda, cached>().cache().prefetch_distance_max();
}

bool dlrm_on_storage::failed() {
  if (!impl_->drives.take_errors().first.ok()) impl_->some_failed = true;
  return impl_->some_failed || impl_->gpu.failures().failures != 0;
}

std::string dlrm_on_storage::report() {
  std::string const text = impl_->drives.report();
  impl_->drives.reset_statistics();
  return text;
}

std::uint32_t dlrm_on_storage::gather_registers() const {
  return gpu_use_of<recommender::dlrm_gather<simt::cuda, table_view>>().registers_per_thread;
}
std::uint32_t dlrm_on_storage::prefetch_registers() const {
  return gpu_use_of<recommender::dlrm_prefetch<simt::cuda, table_view>>().registers_per_thread;
}

}  // namespace forebay::bench
