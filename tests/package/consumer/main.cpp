// SPDX-License-Identifier: Apache-2.0
//! \file
//! A program outside the source tree: headers and libraries come from the installed package.
#include <cstdio>

#include "forebay/nvme/command.hpp"

int main() {
  forebay::nvme::submission_entry const entry{};
  std::puts(sizeof entry == 64 ? "consumer: PASS" : "consumer: FAIL");
  return sizeof entry == 64 ? 0 : 1;
}
