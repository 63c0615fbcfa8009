// SPDX-License-Identifier: Apache-2.0
//! \file
//! When a command is complete on the emulated drive: a cost for each command and byte on interleaved channels, and a
//! minimum latency. Times are picoseconds since the engine's epoch; 64 bits of them last 213 days.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/flash_model.hpp"
#include "forebay/detail/emulator/timed_command.hpp"
#include "forebay/detail/memory/service_clock.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// cost(bytes) = per_command + per_byte * round_up(bytes, granule).
struct operation_cost {
  std::uint64_t per_command_ps = 0;
  std::uint64_t per_byte_fs = 0;  ///< femtoseconds: a drive of 100 GB/s takes 10 ps for each byte
  std::uint32_t granule_bytes = 512;
  std::uint64_t latency_min_ps = 0;

  FOREBAY_DEVICE constexpr std::uint64_t bytes_ps(std::uint64_t bytes) const {
    if (per_byte_fs == 0) return 0;  // spares the GPU two divisions
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
  std::uint32_t channel_stride_bytes =
      4096;                     ///< length of the consecutive stretches of the drive that lie on one channel each
  std::uint64_t jitter_ps = 0;  ///< largest addition to a command's latency; uniform from 0
  std::uint64_t seed = 0;       ///< of the jitter
  std::uint64_t link_byte_fs =
      0;                   ///< femtoseconds that a byte occupies the link that drives share; 0: there is no link
  flash_parameters flash;  ///< the flash behind the channels, if the drive has any
  /// Dispatchers that serve commands side by side may bring commands that arrived at the same time to the model at
  /// different times, at most this far apart. Capacity that a channel, or the link, did not use during the last
  /// `disorder_ps` is still available: otherwise a command would wait for those that arrived after it and came first.
  /// No command is finished before its own cost has passed.
  std::uint64_t disorder_ps = 0;

  FOREBAY_DEVICE constexpr operation_cost const& cost_of(operation op) const {
    return op == operation::read ? read : op == operation::write ? write : other;
  }
  /// Whether every command is due on arrival: a drive as fast as the engine.
  FOREBAY_DEVICE constexpr bool immediate() const {
    auto const zero = [](operation_cost const& c) {
      return c.per_command_ps == 0 && c.per_byte_fs == 0 && c.latency_min_ps == 0;
    };
    return zero(read) && zero(write) && zero(other) && jitter_ps == 0 && link_byte_fs == 0 && flash.channels == 0;
  }
};

/// How a command touches channels: one stripe each on `touched` of them, from the channel of its first byte on.
struct channel_span {
  std::uint64_t first_stripe = 0;
  std::uint64_t stripes = 1;
  std::uint64_t touched = 1;

  FOREBAY_DEVICE channel_span(timing_parameters const& model, timed_command const& command) {
    if (command.bytes == 0) {
      touched = stripes = model.channels;
      return;
    }
    std::uint64_t const stride = model.channel_stride_bytes;
    first_stripe = command.offset_bytes / stride;
    stripes = (command.offset_bytes + command.bytes - 1) / stride - first_stripe + 1;
    touched = stripes < model.channels ? stripes : model.channels;
  }
};

/// The charge for the `j`th channel that a command touches: (per_command / k + per_byte * its rounded bytes) * K, for a
/// command that touches k of K channels.
FOREBAY_DEVICE std::uint64_t charge_ps(timing_parameters const& model, timed_command const& command,
                                       channel_span const& span, std::uint64_t j) {
  operation_cost const& cost = model.cost_of(command.op);
  std::uint64_t const channels = model.channels;
  if (command.bytes == 0) return cost.per_command_ps;
  if (channels == 1 || span.stripes == 1) {
    return (cost.per_command_ps + cost.bytes_ps(command.bytes)) * channels;
  }
  std::uint64_t const stride = model.channel_stride_bytes;
  std::uint64_t bytes = ((span.stripes - 1 - j) / channels + 1) * stride;
  if (j == 0) bytes -= command.offset_bytes - span.first_stripe * stride;
  if ((span.stripes - 1) % channels == j) {
    bytes -= (span.first_stripe + span.stripes) * stride - (command.offset_bytes + command.bytes);
  }
  return cost.per_command_ps * channels / span.touched + cost.bytes_ps(bytes) * channels;
}

/// The shared state: when each channel is next free. A drive has one; every unit advances it. Wait-free.
template <class M>
class timing_model {
 public:
  using team = simt::team<M>;

  timing_model() = default;
  /// `next_free_ps`: `parameters.channels` zeroed words that all units reach. `link_free_ps`: two words that all units
  /// of all drives on one link reach, for its two directions; not used without a link. `flash` lies where all units
  /// reach it; null: there is no flash model.
  timing_model(timing_parameters const& parameters, std::uint64_t* next_free_ps, std::uint64_t* link_free_ps = nullptr,
               flash_model<M> const* flash = nullptr, flash_geometry const& geometry = {})
      : parameters_(parameters), next_free_ps_(next_free_ps), link_free_ps_(link_free_ps), flash_(flash) {
    for (operation const op : {operation::read, operation::write, operation::other}) {
      operation_cost const& cost = parameters.cost_of(op);
      std::uint64_t lone_ps[2] = {cost.per_command_ps, cost.cost_ps(cost.granule_bytes) * parameters.channels};
      if (flash != nullptr && op == operation::read) {
        std::uint64_t const sensed_ps = geometry.lone_read_ps(cost.granule_bytes);
        if (lone_ps[1] < sensed_ps) lone_ps[1] = sensed_ps;
      }
      for (std::uint32_t i = 0; i < 2; ++i) {
        wait_ps_[static_cast<std::uint32_t>(op)][i] =
            cost.latency_min_ps > lone_ps[i] ? cost.latency_min_ps - lone_ps[i] : 0;
      }
    }
  }

  FOREBAY_DEVICE timing_parameters const& parameters() const { return parameters_; }

  /// Sets the target of each of the `count` commands that arrived at `arrival_ps`. Each channel's clock is advanced
  /// once. The targets equal those of `count` calls with one command each. `batch` and `scratch_ps` (`max_channels`
  /// words) are shared by the lanes of `lanes`, which all call this; `batch` is visible to all before and after.
  FOREBAY_DEVICE void assign(team const& lanes, timed_command* batch, std::uint32_t count, std::uint64_t arrival_ps,
                             std::uint64_t* scratch_ps) const {
    if (parameters_.channels == 1) {
      assign_one_channel(lanes, batch, count, arrival_ps);
    } else {
      assign_channels(lanes, batch, count, arrival_ps, scratch_ps);
    }
    lanes.sync();
    if (parameters_.link_byte_fs != 0) {
      for (operation const way : {operation::read, operation::write}) pass_link(lanes, batch, count, arrival_ps, way);
    }
    if (flash_ != nullptr) flash_model<M>::assign(flash_, lanes, batch, count, arrival_ps);
    for (std::uint32_t i = lanes.rank(); i < count; i += lanes.count()) {
      timed_command& command = batch[i];
      command.target_ps = command.charged ? command.target_ps + latency_ps(command) : arrival_ps;
    }
    lanes.sync();
  }

  /// Forgets what pages in a range of the drive hold, if there is a model of its flash. It is for a range that came
  /// with a command whose own fields name none. All lanes call it.
  FOREBAY_DEVICE void unmap(team const& lanes, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    if (flash_ != nullptr) flash_model<M>::unmap(flash_, lanes, offset_bytes, bytes);
  }

 private:
  FOREBAY_DEVICE void assign_one_channel(team const& lanes, timed_command* batch, std::uint32_t count,
                                         std::uint64_t arrival_ps) const {
    std::uint64_t total_ps = 0;
    bool charged = false;
    for (std::uint32_t first = 0; first < count; first += lanes.count()) {
      std::uint32_t const i = first + lanes.rank();
      std::uint64_t mine_ps = 0;
      if (i < count && batch[i].charged) {
        mine_ps = parameters_.cost_of(batch[i].op).cost_ps(batch[i].bytes);
        charged = true;
      }
      std::uint64_t const through_ps = total_ps + lanes.inclusive_sum(mine_ps);
      if (i < count) batch[i].target_ps = through_ps;
      total_ps = lanes.broadcast(through_ps, lanes.count() - 1);
    }
    std::uint64_t start_ps = 0;
    if (lanes.any(charged)) {
      if (lanes.leader()) start_ps = memory::advance<M>(next_free_ps_[0], still_free_ps(arrival_ps), total_ps);
      start_ps = lanes.broadcast(start_ps);
    }
    for (std::uint32_t i = lanes.rank(); i < count; i += lanes.count()) {
      timed_command& command = batch[i];
      command.target_ps += start_ps;
      std::uint64_t const least_ps = arrival_ps + parameters_.cost_of(command.op).cost_ps(command.bytes);
      if (command.target_ps < least_ps) command.target_ps = least_ps;
    }
  }

  /// Lane l keeps the sums of channels l, l + lanes, ...
  FOREBAY_DEVICE void assign_channels(team const& lanes, timed_command* batch, std::uint32_t count,
                                      std::uint64_t arrival_ps, std::uint64_t* scratch_ps) const {
    std::uint64_t touched = 0;  // of the lane's own channels
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!batch[i].charged) continue;
      for_own_channels(lanes, batch[i], [&](std::uint32_t channel, std::uint64_t charge_ps) {
        std::uint64_t const bit = std::uint64_t{1} << channel;
        scratch_ps[channel] = (touched & bit) != 0 ? scratch_ps[channel] + charge_ps : charge_ps;
        touched |= bit;
      });
    }
    for (std::uint32_t channel = lanes.rank(); channel < parameters_.channels; channel += lanes.count()) {
      if ((touched >> channel & 1) != 0)
        scratch_ps[channel] =
            memory::advance<M>(next_free_ps_[channel], still_free_ps(arrival_ps), scratch_ps[channel]);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      timed_command& command = batch[i];
      if (!command.charged) continue;
      std::uint64_t finish_ps = arrival_ps;
      for_own_channels(lanes, command, [&](std::uint32_t channel, std::uint64_t charge_ps) {
        scratch_ps[channel] += charge_ps;
        if (arrival_ps + charge_ps > finish_ps) finish_ps = arrival_ps + charge_ps;
        if (scratch_ps[channel] > finish_ps) finish_ps = scratch_ps[channel];
      });
      finish_ps = lanes.max(finish_ps);
      if (lanes.leader()) command.target_ps = finish_ps;
    }
  }

  /// Sends the data of the batch's commands over the link, if they go `way`: no command is complete before its data has
  /// passed.
  FOREBAY_DEVICE void pass_link(team const& lanes, timed_command* batch, std::uint32_t count, std::uint64_t arrival_ps,
                                operation way) const {
    auto const passes = [&](std::uint32_t i) { return i < count && batch[i].charged && batch[i].op == way; };
    auto const taken_ps = [&](std::uint32_t i) {
      return passes(i) ? batch[i].bytes * parameters_.link_byte_fs / 1000 : 0;
    };
    std::uint64_t total_ps = 0;
    for (std::uint32_t i = lanes.rank(); i < count; i += lanes.count()) total_ps += taken_ps(i);
    total_ps = lanes.sum(total_ps);
    if (total_ps == 0) return;
    std::uint64_t passed_ps = 0;
    if (lanes.leader())
      passed_ps =
          memory::advance<M>(link_free_ps_[way == operation::read ? 0 : 1], still_free_ps(arrival_ps), total_ps);
    passed_ps = lanes.broadcast(passed_ps);
    for (std::uint32_t first = 0; first < count; first += lanes.count()) {
      std::uint32_t const i = first + lanes.rank();
      std::uint64_t const through_ps = passed_ps + lanes.inclusive_sum(taken_ps(i));
      if (passes(i) && batch[i].target_ps < through_ps) batch[i].target_ps = through_ps;
      if (passes(i) && batch[i].target_ps < arrival_ps + taken_ps(i)) batch[i].target_ps = arrival_ps + taken_ps(i);
      passed_ps = lanes.broadcast(through_ps, lanes.count() - 1);
    }
    lanes.sync();
  }

  /// Calls `visit(channel, charge_ps)` for each channel that a command touches and the calling lane keeps.
  template <class Visit>
  FOREBAY_DEVICE void for_own_channels(team const& lanes, timed_command const& command, Visit&& visit) const {
    channel_span const span(parameters_, command);
    auto const first = static_cast<std::uint32_t>(span.first_stripe % parameters_.channels);
    for (std::uint32_t j = 0; j < span.touched; ++j) {
      std::uint32_t const sum = first + j;
      std::uint32_t const channel = sum < parameters_.channels ? sum : sum - parameters_.channels;
      if (channel % lanes.count() == lanes.rank()) visit(channel, charge_ps(parameters_, command, span, j));
    }
  }

  /// The time from which free capacity is available to a command that arrived at `arrival_ps`.
  FOREBAY_DEVICE std::uint64_t still_free_ps(std::uint64_t arrival_ps) const {
    return arrival_ps > parameters_.disorder_ps ? arrival_ps - parameters_.disorder_ps : 0;
  }

  /// How long a command takes in addition to its channels: max(0, latency_min - cost(granule) * K) + jitter.
  FOREBAY_DEVICE std::uint64_t latency_ps(timed_command const& command) const {
    std::uint64_t const wait_ps = wait_ps_[static_cast<std::uint32_t>(command.op)][command.bytes == 0 ? 0 : 1];
    if (parameters_.jitter_ps == 0) return wait_ps;
    return wait_ps + mix(parameters_.seed ^ mix(command.sequence)) % (parameters_.jitter_ps + 1);
  }

  timing_parameters parameters_;
  std::uint64_t wait_ps_[3][2] = {};  ///< of each operation, without a range and with one
  std::uint64_t* next_free_ps_ = nullptr;
  std::uint64_t* link_free_ps_ = nullptr;
  flash_model<M> const* flash_ = nullptr;
};

}  // namespace forebay::emulator
