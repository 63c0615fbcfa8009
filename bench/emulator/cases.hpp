// SPDX-License-Identifier: Apache-2.0
//! \file
//! What is measured of emulated drives on a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "forebay/detail/emulator/frontend.hpp"

namespace forebay::bench {

/// A drive, and what a client does with it.
struct bench_case {
  std::string group;
  std::string name;
  std::string uri;  ///< without backing, residency, sms, link and queues
  std::string backing = "hbm";
  std::uint32_t sms = 32;
  std::string link;          ///< that the drive is behind; empty: none
  std::uint32_t queues = 0;  ///< 0: one for each dispatcher
  std::uint32_t depth = 1024;
  std::uint32_t completion_depth = 0;  ///< 0: as `depth`
  bool own_queues = false;             ///< each warp of the client has one
  std::uint32_t blocks = 0;            ///< of client threads; 0: all multiprocessors that the drive leaves
  std::uint32_t threads_per_block = 1024;
  std::uint32_t lanes = 32;
  std::uint32_t block_bytes = 512;
  std::uint32_t write_percent = 0;
  double seconds = 0.1;            ///< of each run, about
  double expected_iops = 0;        ///< 0: as many as it does
  double expected_latency_us = 0;  ///< mean; 0: whatever it is
  std::uint64_t host_bytes = 0;    ///< of `backing=host`: the size; what the GPU reads there by itself is expected
  bool moves_data = true;
  emulator::frontend_techniques frontend;

  std::string title() const { return group + ": " + name; }
  std::uint32_t drive_sms() const { return sms; }
  std::uint32_t dispatchers() const { return sms * 16; }
  std::uint32_t queue_count() const { return queues != 0 ? queues : dispatchers(); }
  /// Where the engine of the drive runs: `in_process`, `served` or `peer`. It replaces `backing`.
  std::string drive_uri(std::string const& residency) const;
  /// Cases with the same key are measured on one drive, one after another.
  std::string drive_key(std::string const& residency) const;
};

/// The cases of one group, or of all where `group` is empty. Throws `refused_input` for a group that does not exist.
std::vector<bench_case> cases_of(std::string const& group, std::string const& residency);

}  // namespace forebay::bench
