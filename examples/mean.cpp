// SPDX-License-Identifier: Apache-2.0
//! \file
//! The mean of an array on a drive: threads read its elements with `[]`, through a cache.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

namespace simt = forebay::simt;

/// The ref knows its machine, so it is the only template argument.
template <class Ref>
struct add_up {
  Ref drive;
  std::uint64_t* sum;

  FOREBAY_DEVICE void operator()() const {
    using M = typename Ref::machine;
    auto const values = drive.template array<std::uint32_t const>();
    std::uint64_t own = 0;
    for (std::uint64_t i = M::thread_rank(); i < values.size(); i += M::thread_count()) own += values[i];
    simt::atomic<M>(*sum).fetch_add(own, simt::order::relaxed);
  }
};

int main() try {
  // 4 MiB on the drive, a quarter of it in the cache.
  forebay::storage storage({.drives = {"emulated:size=4M"}, .device = "cpu", .cache = {.size_bytes = 1 << 20}});
  std::vector<std::uint32_t> numbers(storage.size_bytes() / sizeof(std::uint32_t));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i % 101);
  storage.pwrite(numbers.data(), storage.size_bytes(), 0);

  std::uint64_t sum = 0;
  simt::launch<simt::fiber>({.blocks = 4, .threads_per_block = 64},
                            add_up{storage.ref<simt::fiber, forebay::cached>(), &sum});

  // An element that cannot be read is zero; this tells.
  forebay::access_errors const errors = storage.take_errors();
  std::uint64_t expected = 0;
  for (std::uint32_t const number : numbers) expected += number;
  std::printf("mean %.3f, %llu errors\n", static_cast<double>(sum) / static_cast<double>(numbers.size()),
              static_cast<unsigned long long>(errors.count));
  return errors.count == 0 && sum == expected ? 0 : 1;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "mean: %s\n", failed.what());
  return 1;
}
