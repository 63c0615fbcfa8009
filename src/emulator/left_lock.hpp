// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace forebay::emulator {

/// Whether the file's lock (`flock`) is that of a process which has ended. The system keeps such a lock until the last
/// request of the process's io_uring is over. False if that cannot be told, as for a process of another container.
bool is_lock_left_over(int fd);

}  // namespace forebay::emulator
