// SPDX-License-Identifier: Apache-2.0
//! \file
//! One client of a drive in the residency proof: its waves, its counts, and its checks at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forebay/memory.hpp"
#include "forebay/storage.hpp"
#include "watchdog.hpp"
#include "wave.hpp"

namespace forebay::residency {

struct client_options {
  std::string drive;            ///< URI
  std::string device = "auto";  ///< as in `storage_options`
  std::uint32_t threads = 0;    ///< 0: twice what all multiprocessors of a GPU hold at a time; 256 on a CPU
  std::uint64_t seed = 1;
  std::uint32_t clients = 1;  ///< that share the drive
  std::uint32_t client = 0;   ///< which of them this is
};

/// A plan for a drive: the first eighth is common, of the rest each client has its share.
plan make_plan(client_options const& options, std::uint64_t drive_bytes, std::uint32_t block_bytes,
               std::uint32_t threads);

/// Writes the common blocks, from the host. Once for all clients.
void lay_down_common(storage& s, plan const& p, watchdog::watched& me);
/// How many of the common blocks differ from what was laid down, read by the host.
std::uint64_t wrong_common_blocks(storage& s, plan const& p, watchdog::watched& me);

/// Runs waves to their end, on one machine, beside other work on that machine.
class wave_runner {
 public:
  virtual ~wave_runner() = default;
  /// A number of threads that is more than fit at a time.
  virtual std::uint32_t usual_threads() const = 0;
  struct work {
    registered_buffer const& buffer;
    plan const& whole;
    std::uint32_t* versions;
    totals* sums;
    std::uint64_t number;
    std::uint32_t rounds;
  };
  virtual void run(storage& s, work const& what) = 0;
  /// Begins and ends the work beside the waves. `end` returns what it did; throws `operation_failed` if any of it
  /// failed.
  virtual void begin_beside(storage&) {}
  virtual nlohmann::json end_beside() { return nlohmann::json::object(); }
};

std::unique_ptr<wave_runner> on_cpu(watchdog& dog);
/// On the GPU of `s`, beside threads that allocate, free and synchronise, and that launch kernels never loaded before.
std::unique_ptr<wave_runner> on_gpu(storage const& s, watchdog& dog);

/// Commands and bytes of both directions.
struct traffic {
  std::uint64_t read_commands = 0;
  std::uint64_t write_commands = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  friend bool operator==(traffic const&, traffic const&) = default;
  traffic& operator+=(traffic const& other);
  traffic operator-(traffic const& other) const;
};
nlohmann::json to_json(traffic const& t);
traffic traffic_from(
    nlohmann::json const& j);  ///< of the keys that `to_json` writes, as a drive's `statistics` has them

class client {
 public:
  client(client_options const& options, watchdog& dog);

  storage& drive() { return storage_; }
  plan const& work() const { return plan_; }

  /// Writes the client's own blocks for the first time.
  void lay_down();
  /// Runs waves for a time, or a number of them if `waves` is not 0. Reports each.
  void run(double seconds, std::uint32_t waves, std::function<void(std::string const&)> const& tell);
  /// Launches a wave that does not end, and calls `begun` once its threads are at work. The caller ends the process.
  void run_for_ever(std::function<void()> const& begun);

  /// What the kernels counted since `lay_down` began.
  totals counted() const;
  traffic kernel_traffic() const;
  /// What the drive counted, for all its clients.
  traffic drive_traffic() const;
  /// Reads all of its own blocks from the host. Returns how many are wrong. Adds the commands and bytes of that to
  /// `expected`.
  std::uint64_t wrong_blocks_at_rest(traffic& expected);
  /// The commands and bytes of reading `bytes` from the host.
  traffic host_reads(std::uint64_t bytes) const;

  nlohmann::json beside() const { return beside_; }
  std::uint64_t waves() const { return waves_; }
  nlohmann::json report() const { return nlohmann::json::parse(storage_.report()); }

 private:
  void run_wave(std::uint64_t number, std::uint32_t rounds);

  client_options const options_;
  watchdog::watched me_;
  storage storage_;
  std::unique_ptr<wave_runner> runner_;
  plan plan_;
  memory::allocation versions_, sums_;
  registered_buffer buffer_;
  std::uint64_t waves_ = 0;
  nlohmann::json beside_;
};

}  // namespace forebay::residency
