// SPDX-License-Identifier: Apache-2.0
//! \file
//! Programs that must not compile, one for each macro definition; without a definition this file compiles.
#include <string>

#include "forebay/machine.hpp"
#include "forebay/pipeline.hpp"
#include "forebay/storage.hpp"

using M = forebay::simt::native;

void program(forebay::storage& drives, forebay::storage_ref<M> past, forebay::buffer_ref buffer) {
  auto const through = drives.ref<M, forebay::cached>();
  auto const values = through.array<int>();
  values[0] = 5;
  values[1] += 5;
  values[2] = values[3];
  int const value = values[0];
  (void)value;
#if defined(MISTAKE_assigns_to_a_named_reference)
  auto x = values[0];
  x = 5;
#endif
  (void)past.read(buffer, 0, 512);
  (void)past.read_async(buffer, 0, 512);
#if defined(MISTAKE_drops_a_status)
  past.read(buffer, 0, 512);
#elif defined(MISTAKE_drops_a_token)
  past.read_async(buffer, 0, 512);
#elif defined(MISTAKE_has_an_array_of_strings)
  (void)through.array<std::string>();
#elif defined(MISTAKE_goes_through_a_number)
  (void)forebay::pipeline<4>(
      10, [&](int i, std::uint32_t) { return past.read_async(buffer, i * 512ull, 512); }, [](int, std::uint32_t) {});
#elif defined(MISTAKE_takes_traits_of_no_kind)
  (void)drives.ref<M, int>();
#endif
}
