// SPDX-License-Identifier: Apache-2.0
//! \file
//! The options by which the benchmarks choose where their emulated drives are, and the link in front of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/command_line.hpp"
#include "harness/option.hpp"
#include "harness/served.hpp"

namespace forebay::bench {

class drive_options {
 public:
  /// `--sms` is by default 32 divided by `sharing_drives`, and at least 1. Throws `refused_input` for a value that no
  /// drive takes.
  drive_options(command_line const& given, std::uint32_t sharing_drives);

  /// `others`, and the options that take a value here.
  static std::vector<option> with_value(std::vector<option> others);
  /// The same without `--sms`, for benchmarks whose cases differ in it.
  static std::vector<option> with_value_but_sms(std::vector<option> others);
  /// `others`, and those that take none.
  static std::vector<option> switches(std::vector<option> others);

  std::string const& link() const { return link_; }  ///< `none`, or as in a drive URI
  /// How long the link takes for so many bytes in one direction; 0 without a link.
  double link_seconds(double bytes) const;
  std::string const& residency() const { return residency_; }
  std::uint32_t sms() const { return sms_; }  ///< of each drive

  /// `base` with the keys of a drive URI that it lacks: `backing`, `residency`, `sms` and `link`. Throws
  /// `refused_input` if an option and `base` both say one of them.
  std::string uri(std::string const& base) const;
  /// Of `count` drives of one storage. Served drives differ in their seeds, because a daemon has one drive for all that
  /// name the same URI.
  std::vector<std::string> uris(std::string const& base, std::uint32_t count) const;
  /// The daemon of a storage's drives, where they are served; FOREBAY_DAEMON names it from then on. To be destroyed
  /// after the storage. Throws `operation_failed`.
  std::unique_ptr<drive_daemon> serve(std::vector<std::string> const& uris) const;

  /// To be called when all options are known, before a GPU is used: `drives` is the largest number of drives at a time.
  /// Where they are served under MPS, this runs the program once more, as a client that leaves them their
  /// multiprocessors, and returns its exit status. Throws `refused_input` where the GPUs have no room for the drives.
  std::optional<int> run_as_client(command_line const& given, std::uint32_t drives) const;
  /// The multiprocessors of GPU 0 that `drives` drives leave to the client's kernels, less `spare_sms`.
  std::uint32_t client_sms(std::uint32_t drives) const;

  /// Throws `refused_input` if so many drives do not fit this machine.
  void refuse_without_room(std::uint32_t drives) const;
  /// The same of a machine with so many GPUs, which have so many multiprocessors.
  void refuse_without_room(std::uint32_t drives, std::uint32_t gpus, std::uint32_t multiprocessors) const;
  /// For kernels that run beside the client's.
  static constexpr std::uint32_t spare_sms = 2;

 private:
  std::string link_, residency_;
  std::uint32_t sms_;
  bool link_given_, residency_given_, sms_given_;
};

}  // namespace forebay::bench
