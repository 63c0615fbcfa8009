// SPDX-License-Identifier: Apache-2.0
#include "emulator/own_queue_client.hpp"
#include "emulator/raw_client.hpp"
#include "emulator/raw_launch.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/cuda.hpp"

namespace forebay::bench {

namespace {

struct raw_reads {
  std::byte const* region;
  std::uint64_t blocks;
  std::uint32_t rounds;
  std::byte* to;  ///< null: what was read goes nowhere
  std::uint64_t to_blocks;
  std::uint32_t* sink;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const lane = simt::cuda::this_warp().thread_rank();
    std::uint64_t const warp = simt::cuda::thread_rank() / 32;
    std::uint64_t mixed = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      simt::vec16 part[8];
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < 8; ++j) {
        std::uint64_t const draw = emulator::mix((warp << 32) + round * 8 + j);
        part[j] = simt::cuda::ld(reinterpret_cast<simt::vec16 const*>(region + draw % blocks * 512) + lane);
      }
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < 8; ++j) {
        if (to == nullptr) {
          mixed ^= part[j].low ^ part[j].high;
        } else {
          std::uint64_t const draw = emulator::mix(~((warp << 32) + round * 8 + j));
          simt::cuda::st(reinterpret_cast<simt::vec16*>(to + draw % to_blocks * 512) + lane, part[j]);
        }
      }
    }
    // Never true, which the compiler cannot know.
    if (mixed == 0x6a09e667f3bcc908u) *sink = 1;
  }
};

}  // namespace

void launch_raw_reads(simt::grid const& shape, std::byte const* region, std::uint64_t bytes, std::uint32_t rounds,
                      std::byte* to, std::uint64_t to_bytes, std::uint32_t* sink, cudaStream_t stream) {
  simt::launch<simt::cuda>(shape, raw_reads{region, bytes / 512, rounds, to, to_bytes / 512, sink}, stream);
}

void launch_raw_client(simt::grid const& shape, raw_launch const& what, cudaStream_t stream) {
  if (what.own_queues) {
    simt::launch<simt::cuda>(shape, own_queue_client<simt::cuda>{what.queues, what.area, what.work, what.result},
                             stream);
  } else {
    simt::launch<simt::cuda>(
        shape, raw_client<simt::cuda>{what.queues, what.queue_count, what.told, what.area, what.work, what.result},
        stream);
  }
}

}  // namespace forebay::bench
