// SPDX-License-Identifier: Apache-2.0
//! \file
//! A program outside the source tree, built against the installed package. README.md quotes it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

namespace simt = forebay::simt;

/// Each thread reads one block of the drive and adds up its bytes.
template <class M>
struct sum_blocks {
  forebay::storage_ref<M> drive;
  forebay::buffer_ref buffer;
  std::uint64_t* sums;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const block = M::thread_rank();
    std::uint32_t const bytes = drive.block_bytes();
    forebay::buffer_ref const mine = buffer.subspan(std::uint64_t{block} * bytes, bytes);

    auto token = drive.read_async(mine, std::uint64_t{block} * bytes, bytes);
    // ... the thread is free to compute ...
    if (forebay::status const status = token.wait(); !status)
      return;  // an error is a value, with the NVMe status in it

    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < bytes; ++i) sum += static_cast<std::uint64_t>(M::ld(mine.data() + i));
    M::st(sums + block, sum);
  }
};

int main() {
  forebay::storage storage({.drives = {"emulated:size=1M,latency_us=50"}, .device = "cpu"});
  std::vector<unsigned char> bytes(64 * storage.block_bytes());
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  storage.pwrite(bytes.data(), bytes.size(), 0);

  auto const buffer = storage.allocate_buffer(bytes.size());
  std::vector<std::uint64_t> sums(64);
  simt::launch<simt::fiber>({.blocks = 2, .threads_per_block = 32},
                            sum_blocks<simt::fiber>{storage.ref<simt::fiber>(), buffer.ref(), sums.data()});

  bool const right = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) ==
                     std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  std::puts(right ? "consumer: PASS" : "consumer: FAIL");
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
