// SPDX-License-Identifier: Apache-2.0
//! \file
//! `late:` drives: emulated drives whose data comes after its completion.
#pragma once

namespace forebay::test {

/// Makes `drive::open` take `late:` URIs, in this process. The first call counts. Thread-safe. They have the keys
/// `size`, `backing`, `sms`, `queues` and `latency_us` of emulated drives, and these, which may be left out:
///
///   lag_us=100     how long after its completion the data of a read comes
///   ppm=1000000    of how many reads, in a million
///   flushes=1      0: the ordering flush does nothing, so that clients see what they would without it
void add_late_scheme();

}  // namespace forebay::test
