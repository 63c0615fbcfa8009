// SPDX-License-Identifier: Apache-2.0
//! \file
//! Two drives as arrays of their own: each thread compares elements of the one with those of the other.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

namespace simt = forebay::simt;

template <class Ref>
struct count_differences {
  Ref drives;
  std::uint32_t* differences;

  FOREBAY_DEVICE void operator()() const {
    using M = typename Ref::machine;
    auto const values = drives.template drive_arrays<std::uint32_t const>();
    std::uint32_t own = 0;
    for (std::uint64_t i = M::thread_rank(); i < values[0].size(); i += M::thread_count()) {
      own += values[0][i] != values[1][i];
    }
    simt::atomic<M>(*differences).fetch_add(own, simt::order::relaxed);
  }
};

int main() try {
  // With stripe_bytes = 0 the drives lie one after the other; else the storage's bytes are striped over them.
  forebay::storage storage({.drives = {"emulated:size=1M", "emulated:size=1M"},
                            .device = "cpu",
                            .stripe_bytes = 0,
                            .cache = {.size_bytes = 1 << 20}});
  std::uint64_t const half_bytes = storage.size_bytes() / 2;
  std::vector<std::uint32_t> values(half_bytes / sizeof(std::uint32_t), 7);
  storage.pwrite(values.data(), half_bytes, 0);
  values[3] = values[70'000] = 8;
  storage.pwrite(values.data(), half_bytes, half_bytes);

  std::uint32_t differences = 0;
  simt::launch<simt::fiber>({.blocks = 4, .threads_per_block = 64},
                            count_differences{storage.ref<simt::fiber, forebay::cached>(), &differences});
  std::printf("%u differences, %llu errors\n", differences,
              static_cast<unsigned long long>(storage.take_errors().count));
  return differences == 2 ? 0 : 1;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "several_drives: %s\n", failed.what());
  return 1;
}
