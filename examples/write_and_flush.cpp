// SPDX-License-Identifier: Apache-2.0
//! \file
//! Threads write an array on a drive; the host makes it durable and reads it back.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"

namespace simt = forebay::simt;

/// Each warp writes whole pages, so that none is read first.
template <class Ref>
struct write_squares {
  Ref drive;
  std::uint32_t* failures;

  FOREBAY_DEVICE void operator()() const {
    using M = typename Ref::machine;
    auto const values = drive.template array<std::uint64_t>();
    std::uint64_t const per_page = drive.page_bytes() / sizeof(std::uint64_t);
    std::uint32_t const lane = M::this_warp().thread_rank(), lanes = M::this_warp().size();
    auto page = values.warp_page();
    for (std::uint64_t first = M::thread_rank() / lanes * per_page; first < values.size();
         first += M::thread_count() / lanes * per_page) {
      if (!page.seek_overwrite(first).ok()) {
        simt::atomic<M>(*failures).fetch_add(1, simt::order::relaxed);
        continue;
      }
      for (std::uint64_t i = page.first() + lane; i < page.end(); i += lanes) page[i] = i * i;
    }
  }
};

int main() try {
  forebay::storage storage({.drives = {"emulated:size=4M"}, .device = "cpu", .cache = {.size_bytes = 1 << 20}});
  std::uint32_t failures = 0;
  simt::launch<simt::fiber>({.blocks = 2, .threads_per_block = 64},
                            write_squares{storage.ref<simt::fiber, forebay::cached>(), &failures});
  storage.flush();  // throws where a drive does not take what was written

  std::vector<std::uint64_t> found(storage.size_bytes() / sizeof(std::uint64_t));
  storage.pread(found.data(), storage.size_bytes(), 0);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < found.size(); ++i) wrong += found[i] != i * i;
  std::printf("%zu elements, %llu wrong, %u failures\n", found.size(), static_cast<unsigned long long>(wrong),
              failures);
  return wrong == 0 && failures == 0 ? 0 : 1;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "write_and_flush: %s\n", failed.what());
  return 1;
}
