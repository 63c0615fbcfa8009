// SPDX-License-Identifier: Apache-2.0
//! \file
//! When a command is complete on the drive that is emulated: a cost for each command and byte on interleaved channels,
//! and a least latency. Times are picoseconds since the engine's epoch, which 64 bits hold for 213 days.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

/// A due time that never comes.
inline constexpr std::uint64_t never_ps = ~std::uint64_t{0};

/// Spreads the bits of `x` (the finaliser of MurmurHash3).
FOREBAY_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

/// What the model tells apart.
enum class operation : std::uint8_t { read, write, other };

/// cost(bytes) = per_command + per_byte * round_up(bytes, granule).
struct operation_cost {
  std::uint64_t per_command_ps = 0;
  std::uint64_t per_byte_fs = 0;  ///< femtoseconds: a drive of 100 GB/s takes 10 ps a byte
  std::uint32_t granule_bytes = 512;
  std::uint64_t latency_min_ps = 0;

  FOREBAY_DEVICE constexpr std::uint64_t bytes_ps(std::uint64_t bytes) const {
    return (bytes + granule_bytes - 1) / granule_bytes * granule_bytes * per_byte_fs / 1000;
  }
  FOREBAY_DEVICE constexpr std::uint64_t cost_ps(std::uint64_t bytes) const { return per_command_ps + bytes_ps(bytes); }
};

struct timing_parameters {
  static constexpr std::uint32_t max_channels = 64;

  operation_cost read;
  operation_cost write;
  operation_cost other;  ///< Flush, Write Zeroes, Dataset Management: no byte moves
  std::uint32_t channels = 1;
  std::uint32_t channel_stride_bytes = 4096;  ///< consecutive stretches of the drive that lie on one channel each
  std::uint64_t jitter_ps = 0;                ///< largest addition to a command's latency; uniform from 0
  std::uint64_t seed = 0;                     ///< of the jitter

  FOREBAY_DEVICE constexpr operation_cost const& cost_of(operation op) const {
    return op == operation::read ? read : op == operation::write ? write : other;
  }
  /// Whether every command is due on arrival: a drive as fast as the engine.
  FOREBAY_DEVICE constexpr bool immediate() const {
    auto const zero = [](operation_cost const& c) {
      return c.per_command_ps == 0 && c.per_byte_fs == 0 && c.latency_min_ps == 0;
    };
    return zero(read) && zero(write) && zero(other) && jitter_ps == 0;
  }
};

/// One command of a batch, as the model sees it.
struct timed_command {
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;     ///< 0 for a command without a range, which occupies every channel
  std::uint64_t sequence = 0;  ///< identifies the command: the jitter is a function of seed and sequence
  operation op = operation::read;
  bool charged = true;  ///< false for a command that failed its checks: due on arrival
  std::uint64_t target_ps = 0;
};

/// Calls `visit(channel, charge_ps)` once for each of the k channels that a command touches:
/// charge = (per_command / k + per_byte * its rounded bytes) * K.
template <class Visit>
FOREBAY_DEVICE void for_each_charge(timing_parameters const& model, timed_command const& command, Visit&& visit) {
  operation_cost const& cost = model.cost_of(command.op);
  std::uint64_t const channels = model.channels;
  if (command.bytes == 0) {
    for (std::uint32_t channel = 0; channel < channels; ++channel) visit(channel, cost.per_command_ps);
    return;
  }
  std::uint64_t const stride = model.channel_stride_bytes;
  std::uint64_t const first = command.offset_bytes / stride;
  std::uint64_t const stripes = (command.offset_bytes + command.bytes - 1) / stride - first + 1;
  if (channels == 1 || stripes == 1) {
    visit(static_cast<std::uint32_t>(first % channels),
          (cost.per_command_ps + cost.bytes_ps(command.bytes)) * channels);
    return;
  }
  std::uint64_t const touched = stripes < channels ? stripes : channels;
  std::uint64_t const skipped = command.offset_bytes - first * stride;
  std::uint64_t const unused = (first + stripes) * stride - (command.offset_bytes + command.bytes);
  for (std::uint64_t j = 0; j < touched; ++j) {
    std::uint64_t bytes = ((stripes - 1 - j) / channels + 1) * stride;
    if (j == 0) bytes -= skipped;
    if ((stripes - 1) % channels == j) bytes -= unused;
    visit(static_cast<std::uint32_t>((first + j) % channels),
          cost.per_command_ps * channels / touched + cost.bytes_ps(bytes) * channels);
  }
}

/// The shared state: when each channel is next free. One for a drive; every unit advances it. Wait-free.
template <class M>
class timing_model {
 public:
  timing_model() = default;
  /// `next_free_ps`: `parameters.channels` zeroed words that all units reach.
  timing_model(timing_parameters const& parameters, std::uint64_t* next_free_ps)
      : parameters_(parameters), next_free_ps_(next_free_ps) {}

  FOREBAY_DEVICE timing_parameters const& parameters() const { return parameters_; }

  /// Sets the target of each of the `count` commands that arrived at `arrival_ps`. Each channel's clock is advanced
  /// once; targets equal those that `count` calls with one command each would give. `scratch_ps`: `max_channels` words
  /// of the caller's own.
  FOREBAY_DEVICE void assign(timed_command* batch, std::uint32_t count, std::uint64_t arrival_ps,
                             std::uint64_t* scratch_ps) const {
    std::uint64_t touched = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!batch[i].charged) continue;
      for_each_charge(parameters_, batch[i], [&](std::uint32_t channel, std::uint64_t charge_ps) {
        std::uint64_t const bit = std::uint64_t{1} << channel;
        scratch_ps[channel] = (touched & bit) != 0 ? scratch_ps[channel] + charge_ps : charge_ps;
        touched |= bit;
      });
    }
    for (std::uint32_t channel = 0; channel < parameters_.channels; ++channel) {
      if ((touched >> channel & 1) == 0) continue;
      // Relaxed: the clocks order nothing but themselves. Another unit may come between the two: then this batch starts
      // after that unit's, still not before `arrival_ps`.
      auto const clock = simt::atomic<M, simt::scope::device>(next_free_ps_[channel]);
      clock.fetch_max(arrival_ps, simt::order::relaxed);
      scratch_ps[channel] = clock.fetch_add(scratch_ps[channel], simt::order::relaxed);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      timed_command& command = batch[i];
      if (!command.charged) {
        command.target_ps = arrival_ps;
        continue;
      }
      std::uint64_t finish_ps = arrival_ps;
      for_each_charge(parameters_, command, [&](std::uint32_t channel, std::uint64_t charge_ps) {
        scratch_ps[channel] += charge_ps;
        if (scratch_ps[channel] > finish_ps) finish_ps = scratch_ps[channel];
      });
      command.target_ps = finish_ps + latency_ps(command);
    }
  }

 private:
  /// What a command waits beyond its channels: max(0, latency_min - cost(granule) * K) + jitter.
  FOREBAY_DEVICE std::uint64_t latency_ps(timed_command const& command) const {
    operation_cost const& cost = parameters_.cost_of(command.op);
    std::uint64_t const lone_ps =
        command.bytes == 0 ? cost.per_command_ps : cost.cost_ps(cost.granule_bytes) * parameters_.channels;
    std::uint64_t const wait_ps = cost.latency_min_ps > lone_ps ? cost.latency_min_ps - lone_ps : 0;
    if (parameters_.jitter_ps == 0) return wait_ps;
    return wait_ps + mix(parameters_.seed ^ mix(command.sequence)) % (parameters_.jitter_ps + 1);
  }

  timing_parameters parameters_;
  std::uint64_t* next_free_ps_ = nullptr;
};

}  // namespace forebay::emulator
