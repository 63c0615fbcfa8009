// SPDX-License-Identifier: Apache-2.0
//! \file
//! How code under a fuzzer may refuse an input.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "forebay/error.hpp"
#include "support/demand.hpp"

namespace forebay::fuzz {

inline void demand_clear(std::string_view message) {
  test::demand(!message.empty(), "an error has a message");
  test::demand(std::none_of(message.begin(), message.end(), [](char c) { return c >= 0 && c < ' '; }),
               "a message is one line");
}

/// Runs `action`. Returns whether it refused its input, which it does with a clear error and with no other exception.
template <class Action>
bool refuses(Action&& action) {
  try {
    action();
    return false;
  } catch (refused_input const& refused) {
    demand_clear(refused.what());
    test::demand(!refused.field().empty() && !refused.remedy().empty(), "a refusal has a field and a remedy");
  } catch (operation_failed const& failed) {
    demand_clear(failed.what());
  }
  return true;
}

}  // namespace forebay::fuzz
