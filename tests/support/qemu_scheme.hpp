// SPDX-License-Identifier: Apache-2.0
//! \file
//! `qemu:` drives: a test that takes a drive's URI runs on QEMU's controller, which this project did not write.
#pragma once

#include <string>

#include "support/qemu_nvme.hpp"

namespace forebay::test {

/// Makes `drive::open` take `qemu:` URIs, in this process. The first call counts. Thread-safe. All keys may be left
/// out:
///
///   size=64M        the size of the drive
///   lba_bytes=512   the size of a block: 512 or 4096
///   mdts=7          a command moves at most 4096 << mdts bytes; 0: no limit
///   nsid=1          the namespace that is the drive; with 2 there is another one, which loses what is written to it
///   queues=16       how many I/O queue pairs the controller grants
///   depth=64        how many entries a queue may have, 2 to 1024. Memory is scattered on purpose, and 64 entries fit a
///                   page. With more, each allocation of at most 64 KiB, the longest ring, is in one piece on the bus
///   to=15           CAP.TO, how long the controller may take to become ready, in units of 500 ms
///   fail=...        errors of the backing store, joined by +, as in fail=read@2048:5:once+flush:28. That is the first
///                   read of sector 2048 (of 512 bytes), whose errno is 5, and each flush
///   hold=1          `qemu_nvme::hold` will be used
///   as=NAME         what `opened_qemu` finds the controller by
///
/// All such drives of a process have one RAM, so a storage can have several of them. Those whose client is a GPU have
/// one of their own, which is page-locked. Their controllers reach memory that a drive allocated, and no other:
/// `storage::register_buffer` is refused. QEMU ends with the thread that opened it.
void add_qemu_scheme();

/// The controller of the drive that is open now and has `as=name` in its URI. Throws `std::out_of_range` if there is
/// none.
qemu_nvme& opened_qemu(std::string const& name);

/// What the only drive of a storage did, as `storage::report()` says.
qemu_traffic traffic_in(std::string const& report);

/// The `qemu:` URI for `emulated`, the URI of an emulated drive, with `keys` (`,key=value...`) added. Keys that say how
/// fast an emulated drive is have no counterpart and are left out. Also does `add_qemu_scheme`.
std::string qemu_instead_of(std::string const& emulated, std::string const& keys = "");

}  // namespace forebay::test
