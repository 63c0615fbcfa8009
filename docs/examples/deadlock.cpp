// SPDX-License-Identifier: Apache-2.0
//! \file
//! Two threads that each hold half of a cache and want more of it.
#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

using machine = forebay::simt::fiber;
constexpr std::uint64_t page_bytes = 4096;

// Holds `pages` pages from `first` on, all at a time: one cursor each.
void hold(auto const& bytes, std::uint64_t first, int pages) {
  auto page = bytes.thread_page();
  if (pages == 1) machine::this_block().sync();  // both hold all but one
  if (!page.seek(first * page_bytes).ok()) return;
  if (pages > 1) hold(bytes, first + 1, pages - 1);
}

int main() {
  forebay::storage_options options;
  options.drives = {"emulated:size=1M"};
  options.device = "cpu";
  options.cache.size_bytes = 16 * page_bytes;  // one set
  options.cache.overflow_frames = 0;
  options.timeout_ns = 2'000'000'000;
  forebay::storage drive(options);
  auto const bytes = drive.ref<machine, forebay::cached>().array<std::uint8_t const>();

  auto const dog = drive.watch({.interval_ns = 100'000'000});
  forebay::simt::launch<machine>({.blocks = 1, .threads_per_block = 2},
                                 [&] { hold(bytes, machine::thread_rank() * 16, 9); });
}
