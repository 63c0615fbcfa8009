// SPDX-License-Identifier: Apache-2.0
//! \file
//! The rules that dispatchers follow on a machine that looks beside its work.
#pragma once

namespace forebay::emulator {

/// A test plants a bug by specialising `dispatcher_rules_of` for a machine of its own.
struct dispatcher_rules {
  /// Whether a look finds mail.
  static constexpr bool looks_for_mail = true;
  /// Whether all lanes of an idle dispatcher go on when one of them sees something.
  static constexpr bool all_hear_of_a_look = true;
  /// Whether a dispatcher that waits for the time to post looks at doorbells meanwhile.
  static constexpr bool looks_while_it_waits = true;
};

template <class M>
struct dispatcher_rules_of : dispatcher_rules {};

}  // namespace forebay::emulator
