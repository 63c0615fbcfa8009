// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "harness/event_timer.hpp"
#include "harness/gpu_use.hpp"
#include "library/ctc_bench.hpp"

namespace forebay::bench {

namespace {

using storage_type = storage_ref<simt::cuda>;
using reader = ctc_kernel<simt::cuda, storage_type, buffer_ref>;
using writer = ctc_fill<simt::cuda, storage_type, buffer_ref>;
constexpr simt::grid one_block{.blocks = 1, .threads_per_block = ctc_on_gpu::threads};

storage_options options_for(std::vector<std::string> const& drives, ctc_work const& work) {
  storage_options o;
  o.drives = drives;
  o.device = "cuda:0";
  o.queues.records = ctc_on_gpu::threads * work.slots() + 1024;
  o.stripe_bytes = work.block_bytes;
  // A pair for each warp, with room for all commands that it has in flight: no command goes to another pair, and no
  // thread looks at another pair.
  o.queues.per_drive = ctc_on_gpu::threads / 32;
  o.queues.depth = std::max(1024u, 2 * 32 * work.slots());
  return o;
}

}  // namespace

struct ctc_on_gpu::impl {
  impl(std::vector<std::string> const& uris, ctc_work const& largest)
      : drives(options_for(uris, largest)),
        run(drives.gpu_ordinal()),
        buffer(drives, std::size_t{threads} * largest.slots() * largest.block_bytes),
        tokens(run.memory(), std::size_t{threads} * largest.slots()),
        result(run.memory(), 1),
        running(drives.lease()),
        block_bytes(largest.block_bytes) {
    if (drives.size_bytes() < largest.block_bytes) {
      throw refused_input("drive", uris[0], "is smaller than one read");
    }
  }

  storage drives;
  apps::executor<simt::cuda> run;
  apps::io_buffer buffer;
  apps::device_array<reader::token_type> tokens;
  apps::device_array<ctc_result> result;
  storage_lease running;
  std::uint32_t block_bytes;
};

ctc_on_gpu::ctc_on_gpu(std::vector<std::string> const& drives, ctc_work const& work)
    : impl_(std::make_unique<impl>(drives, work)) {
  impl& i = *impl_;
  ctc_work all = work;
  all.blocks = blocks();
  i.run({.blocks = threads / 128, .threads_per_block = 128},
        writer{i.drives.ref<simt::cuda>(), i.buffer.ref(), all, i.result.data()});
  i.run.synchronize();
  if (std::uint64_t const failed = i.result.to_host()[0].failed; failed != 0) {
    throw operation_failed(std::to_string(failed) + " writes failed while the drives were filled");
  }
}
ctc_on_gpu::~ctc_on_gpu() = default;

std::uint64_t ctc_on_gpu::blocks() const {
  return impl_->drives.size_bytes() / impl_->block_bytes;
}

double ctc_on_gpu::seconds(ctc_work const& work, ctc_result& result) {
  impl& i = *impl_;
  i.result.assign(std::vector<ctc_result>(1));
  double const seconds = seconds_of(i.run.stream(), [&] {
    i.run(one_block, reader{i.drives.ref<simt::cuda>(), i.buffer.ref(), work, i.tokens.data(), i.result.data()});
  });
  ctc_result const seen = i.result.to_host()[0];
  result.reads += seen.reads;
  result.failed += seen.failed;
  result.wrong += seen.wrong;
  result.computed += seen.computed;
  return seconds;
}

double ctc_on_gpu::seconds_to_compute(ctc_work work) {
  ctc_result ignored;
  work.commands = 0;
  return seconds(work, ignored);
}

std::string ctc_on_gpu::report() const {
  return impl_->drives.report();
}

void ctc_on_gpu::reset_statistics() {
  impl_->drives.reset_statistics();
}

std::uint32_t ctc_on_gpu::registers() const {
  return gpu_use_of<reader>().registers_per_thread;
}
std::uint64_t ctc_on_gpu::local_bytes() const {
  return gpu_use_of<reader>().local_bytes_per_thread;
}

}  // namespace forebay::bench
