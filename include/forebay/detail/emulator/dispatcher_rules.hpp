// SPDX-License-Identifier: Apache-2.0
//! \file
//! What dispatchers must do where their machine looks beside its work.
#pragma once

namespace forebay::emulator {

/// Tests plant a bug by `dispatcher_rules_of` a machine of theirs.
struct dispatcher_rules {
  /// Whether a look finds mail.
  static constexpr bool looks_for_mail = true;
  /// Whether what one lane of an idle dispatcher sees makes all of them go on.
  static constexpr bool all_hear_of_a_look = true;
  /// Whether a dispatcher that waits for the time to post looks at doorbells meanwhile.
  static constexpr bool looks_while_it_waits = true;
};

template <class M>
struct dispatcher_rules_of : dispatcher_rules {};

}  // namespace forebay::emulator
