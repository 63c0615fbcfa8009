// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes an emulated controller: plays the sessions of tests/emulator/fuzz_session.hpp, as `emulator_fuzz_test` does
//! without libFuzzer.
#include <cstddef>
#include <cstdint>

#include "emulator/fuzz_behaviour.hpp"
#include "emulator/fuzz_session.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace forebay::emulator::testing;
  if (size == 0 || size > longest_input) return 0;
  behaviour shown;
  session(fuzz_input(data, data + size), shown).run();
  return 0;
}
