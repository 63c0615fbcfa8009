// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"
#include "library/soak_bench.hpp"

namespace forebay::bench {

namespace {

using simt::cuda;
struct sharing : cached {
  using pools = frame_pools<share_all>;
};
using soaked = storage_ref<cuda, sharing>;
constexpr std::uint32_t threads_per_block = 128;

std::vector<std::uint64_t> first_words(std::uint64_t bytes) {
  std::vector<std::uint64_t> words(bytes / 8);
  for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = soak_word(i, 0);
  return words;
}

}  // namespace

struct soak_on_gpu::impl {
  impl(storage_options const& options, std::uint32_t stream_count, std::uint32_t threads_of_stream,
       soak_work const& common)
      : drives(options),
        blocks(threads_of_stream / threads_per_block),
        work(common),
        buffers(drives, std::uint64_t{stream_count} * threads_of_stream * options.cache.page_bytes),
        written(drives.device_memory(), first_words(drives.size_bytes())),
        numbers(drives.device_memory(), std::size_t{stream_count} * threads_of_stream),
        result(drives.device_memory(), 1) {
    work.all_threads = stream_count * threads_of_stream;
    if (work.all_threads > drives.size_bytes() / options.cache.page_bytes) {
      throw refused_input("--threads", std::to_string(threads_of_stream), "is more than there are pages");
    }
    for (std::uint32_t s = 0; s < stream_count; ++s) streams.push_back(std::make_unique<apps::executor<cuda>>(0));
    std::vector<std::uint64_t> const first = written.to_host();
    if (in_spite_of_failures([&] { drives.pwrite(first.data(), first.size() * 8, 0); }) == 1000) {
      throw operation_failed("the drives cannot be written");
    }
    running.emplace(drives.lease());
  }

  storage drives;
  std::uint32_t blocks;
  soak_work work;
  apps::io_buffer buffers;
  apps::device_array<std::uint64_t> written;
  apps::device_array<std::uint32_t> numbers;
  apps::device_array<soak_result> result;
  std::vector<std::unique_ptr<apps::executor<cuda>>> streams;
  std::optional<storage_lease> running;  ///< last: what is above is freed when the engine may leave
};

soak_on_gpu::soak_on_gpu(storage_options const& options, std::uint32_t streams, std::uint32_t threads_of_stream,
                         soak_work const& work)
    : impl_(std::make_unique<impl>(options, streams, threads_of_stream, work)) {}
soak_on_gpu::~soak_on_gpu() = default;

void soak_on_gpu::start(std::uint64_t run_ns, std::uint64_t seed) {
  impl& i = *impl_;
  auto const ref = i.drives.ref<cuda, sharing>();
  std::uint32_t const threads = i.blocks * threads_per_block;
  std::uint64_t const page = ref.page_bytes();
  for (std::uint32_t s = 0; s < i.streams.size(); ++s) {
    soak_work work = i.work;
    work.run_ns = run_ns;
    work.seed = seed;
    work.first_thread = s * threads;
    (*i.streams[s])({.blocks = i.blocks, .threads_per_block = threads_per_block},
                    soak_kernel<cuda, soaked>{ref, i.buffers.ref().subspan(s * threads * page, threads * page), work,
                                              i.written.data(), i.numbers.data(), i.result.data()});
  }
  memory::check_cuda(cudaGetLastError(), "launch");
}
bool soak_on_gpu::running() const {
  for (auto const& stream : impl_->streams) {
    cudaError_t const found = cudaStreamQuery(stream->stream().get());
    if (found == cudaErrorNotReady) return true;
    memory::check_cuda(found, "cudaStreamQuery");
  }
  return false;
}
void soak_on_gpu::finish() {
  for (auto const& stream : impl_->streams) stream->synchronize();
}

soak_result soak_on_gpu::seen() const {
  return impl_->result.to_host()[0];
}
std::vector<std::uint64_t> soak_on_gpu::written() const {
  return impl_->written.to_host();
}
storage& soak_on_gpu::drives() {
  return impl_->drives;
}

}  // namespace forebay::bench
