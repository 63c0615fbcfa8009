// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/run_on_cpu.hpp"

#include <chrono>
#include <vector>

#include "forebay/memory.hpp"

namespace forebay::transfer {

cpu_run run_on_cpu(workload const& work, stage_kind how, std::uint64_t seed) {
  constexpr std::size_t alignment_bytes = 256;  // as CUDA's
  std::vector<memory::allocation> memory;
  std::vector<std::byte*> addresses;
  for (buffer const& b : work.buffers()) {
    memory.emplace_back(memory::host(), b.bytes, alignment_bytes);
    addresses.push_back(memory.back().as<std::byte>());
  }
  views const all(addresses);
  work.init(seed, all);
  auto const begin = std::chrono::steady_clock::now();
  work.run_on_cpu(how, all);
  std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - begin;
  return {work.mismatch(seed, all), taken.count()};
}

}  // namespace forebay::transfer
