// SPDX-License-Identifier: Apache-2.0
//! \file
//! A hostile client of a drive daemon.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::test {

/// Does to the daemon at `socket` anything that a client can do, at random from `seed` on, until the clock (of
/// `simt::native`) says `until_ns` or it ends itself in the middle of something. `drives`: URIs whose data is not
/// needed. Of `read_only_drive` it changes no byte by a command that is allowed to.
void do_harm(std::string const& socket, std::string const& drives, std::string const& read_only_drive,
             std::uint64_t seed, std::uint64_t until_ns);

}  // namespace forebay::test
