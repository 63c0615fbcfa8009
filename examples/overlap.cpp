// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each thread adds up blocks of a drive and keeps four reads under way while it computes.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/pipeline.hpp"
#include "forebay/slots.hpp"
#include "forebay/storage.hpp"

namespace simt = forebay::simt;

template <class M>
struct add_up_blocks {
  static constexpr std::uint32_t depth = 4;
  static constexpr std::uint32_t block_bytes = 4096;

  forebay::storage_ref<M> drive;
  forebay::slots<M, depth> buffers;
  std::uint64_t* sum;
  std::uint32_t* failures;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t own = 0;
    forebay::status const outcome = forebay::pipeline<depth>(
        forebay::grid_stride<M>(drive.size_bytes() / block_bytes),
        [&](std::uint64_t block, std::uint32_t slot) {
          return drive.read_async(buffers[slot], block * block_bytes, block_bytes);
        },
        [&](std::uint64_t, std::uint32_t slot) {
          auto const* words = reinterpret_cast<std::uint32_t const*>(buffers[slot].data());
          for (std::uint32_t w = 0; w < block_bytes / sizeof(std::uint32_t); ++w) own += M::ld(words + w);
        });
    simt::atomic<M>(*sum).fetch_add(own, simt::order::relaxed);
    if (!outcome.ok()) simt::atomic<M>(*failures).fetch_add(1, simt::order::relaxed);
  }
};

int main() try {
  using kernel = add_up_blocks<simt::fiber>;
  constexpr simt::grid shape{.blocks = 2, .threads_per_block = 32};
  forebay::storage storage({.drives = {"emulated:size=4M,latency_us=50"}, .device = "cpu"});
  std::vector<std::uint32_t> const ones(storage.size_bytes() / sizeof(std::uint32_t), 1);
  storage.pwrite(ones.data(), storage.size_bytes(), 0);

  forebay::registered_buffer buffer = storage.allocate_buffer(forebay::slots<simt::fiber, kernel::depth>::size_bytes(
      shape.blocks * shape.threads_per_block, kernel::block_bytes));
  std::uint64_t sum = 0;
  std::uint32_t failures = 0;
  simt::launch<simt::fiber>(shape,
                            kernel{storage.ref<simt::fiber>(), {buffer.ref(), kernel::block_bytes}, &sum, &failures});
  std::printf("sum %llu, %u failures\n", static_cast<unsigned long long>(sum), failures);
  return failures == 0 && sum == ones.size() ? 0 : 1;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "overlap: %s\n", failed.what());
  return 1;
}
