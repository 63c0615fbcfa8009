// SPDX-License-Identifier: Apache-2.0
//! \file
//! Promises that code under a fuzzer keeps, whatever its input is.
#pragma once

#include <stdexcept>
#include <string>

namespace forebay::test {

/// A promise that was not kept. No code of the library catches it, so libFuzzer stops at it, and a test that replays an
/// input reports it.
class broken_promise : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void demand(bool holds, char const* what) {
  if (!holds) throw broken_promise(what);
}

}  // namespace forebay::test
