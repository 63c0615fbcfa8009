// SPDX-License-Identifier: Apache-2.0
//! \file
//! How many queries a device has room for.
#pragma once

#include <cstdint>

namespace forebay::search {

/// How many bytes of memory a block can have at most, and how many blocks run at a time that have so many.
struct block_room {
  std::uint32_t bytes_max;
  std::uint32_t blocks;
};

/// Of blocks of one warp. Compiled for simt::fiber in a .cpp file, and for simt::cuda in a .cu file.
template <class M>
block_room room_for(int gpu, std::uint32_t warp_bytes);

}  // namespace forebay::search
