// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "forebay/error.hpp"
#include "harness/event_timer.hpp"
#include "library/drives_bench.hpp"

namespace forebay::bench {

namespace {

using simt::cuda;
using direct = storage_ref<cuda>;
using through_cache = storage_ref<cuda, cached>;
constexpr std::uint32_t threads_per_block = 256;

}  // namespace

struct drives_on_gpu::impl {
  impl(storage_options const& options, std::uint32_t client_sms, std::uint32_t block_bytes)
      : drives(options),
        shape{.blocks = client_sms, .threads_per_block = threads_per_block},
        buffers(drives, std::size_t{client_sms} * threads_per_block * block_bytes),
        result(run.memory(), 1),
        has_cache(options.cache.size_bytes != 0),
        running(drives.lease()) {
    work.block_bytes = block_bytes;
    work.blocks = drives.size_bytes() / block_bytes;
  }

  template <class Kernel>
  timing timed(Kernel const& kernel) {
    result.assign(std::vector<drives_result>(1));
    timing out{};
    out.seconds = seconds_of(run.stream(), [&] { run(shape, kernel); });
    out.seen = result.to_host()[0];
    return out;
  }
  template <class Storage>
  timing transfer(Storage const& storage, drives_work const& how) {
    return timed(transfer_blocks<cuda, Storage, buffer_ref>{storage, buffers.ref(), how, result.data()});
  }
  template <class Storage>
  timing fill(Storage const& storage) {
    return timed(fill_blocks<cuda, Storage, buffer_ref>{storage, buffers.ref(), work, result.data()});
  }

  storage drives;
  simt::grid shape;
  apps::executor<simt::cuda> run{0};
  apps::io_buffer buffers;
  apps::device_array<drives_result> result;
  bool has_cache;
  drives_work work;
  std::optional<storage_lease> running;
};

drives_on_gpu::drives_on_gpu(storage_options const& options, std::uint32_t client_sms, std::uint32_t block_bytes)
    : impl_(std::make_unique<impl>(options, client_sms, block_bytes)) {
  impl& i = *impl_;
  timing const filled = i.has_cache ? i.fill(i.drives.ref<cuda, cached>()) : i.fill(i.drives.ref<cuda>());
  if (filled.seen.failed != 0) {
    throw operation_failed(std::to_string(filled.seen.failed) + " writes failed while the drives were filled");
  }
  i.drives.flush();
}
drives_on_gpu::~drives_on_gpu() = default;

drives_on_gpu::timing drives_on_gpu::run(bool writes, std::uint64_t run_ns, std::uint64_t seed) {
  impl& i = *impl_;
  drives_work how = i.work;
  how.writes = writes;
  how.run_ns = run_ns;
  how.seed = seed;
  if (!i.has_cache) return i.transfer(i.drives.ref<cuda>(), how);
  if (writes) return i.transfer(i.drives.ref<cuda, cached>(), how);
  auto const words = i.drives.ref<cuda, cached>().array<std::uint64_t const>();
  return i.timed(load_blocks<cuda, through_cache::view_type<std::uint64_t const>>{words, how, i.result.data()});
}

std::uint64_t drives_on_gpu::wrong_blocks() {
  impl& i = *impl_;
  // Past the cache, from the drives themselves.
  i.drives.flush();
  std::uint64_t wrong = 0;
  constexpr std::uint64_t at_a_time = 16 << 20;
  std::vector<std::uint64_t> words(at_a_time / 8);
  for (std::uint64_t at = 0; at < i.drives.size_bytes(); at += at_a_time) {
    std::uint64_t const bytes = std::min(at_a_time, i.drives.size_bytes() - at);
    i.drives.pread(words.data(), bytes, at);
    for (std::uint64_t b = 0; b + i.work.block_bytes <= bytes; b += i.work.block_bytes) {
      std::uint64_t const stamp = drives_stamp((at + b) / i.work.block_bytes);
      if (words[b / 8] != stamp || words[(b + i.work.block_bytes) / 8 - 1] != ~stamp) ++wrong;
    }
  }
  return wrong;
}

storage& drives_on_gpu::drives() {
  return impl_->drives;
}
std::uint32_t drives_on_gpu::threads() const {
  return impl_->shape.blocks * threads_per_block;
}

}  // namespace forebay::bench
