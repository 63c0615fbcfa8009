// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes the recommender's traces.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "apps/recommender/trace.hpp"
#include "fuzz/file_in_memory.hpp"
#include "fuzz/refusals.hpp"

namespace {

using namespace forebay;
using test::demand;

void check(recommender::dlrm_trace const& found) {
  demand(found.rows.size() == found.samples() * found.tables(), "each sample names a row of each table");
  demand(found.dense_values.size() == found.samples() * found.dense, "each sample has all dense features");
  auto const numbers = found.rows_in_one_table();
  demand(std::all_of(numbers.begin(), numbers.end(), [&](std::uint32_t n) { return n < found.rows_of_all_tables(); }),
         "each row is in the one table");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::file_in_memory const file(data, size);
  fuzz::refuses([&] { check(recommender::read_trace(file.path())); });
  return 0;
}
