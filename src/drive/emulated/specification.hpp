// SPDX-License-Identifier: Apache-2.0
//! \file
//! The specification that the keys of an `emulated:` or `file:` URI result in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "forebay/detail/drive/gpu_placements.hpp"
#include "forebay/detail/drive/profile.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"

namespace forebay::drive {

enum class backing_kind : std::uint8_t { memory, file, hbm, host, peer };

/// Where the bytes of a drive are.
struct backing {
  backing_kind kind = backing_kind::memory;
  int peer = 0;  ///< of `backing_kind::peer`: the GPU

  bool operator==(backing const&) const = default;
};

/// Where the engine of a drive runs.
enum class residency : std::uint8_t { threads, in_process, peer, served };

/// Where the URI says, or in memory. Throws `refused_input`.
backing backing_of(uri const& from);

std::string to_string(backing const& where);
char const* to_string(residency where);

/// The values of `io`, and their names in reports.
constexpr std::pair<char const*, emulator::file_io> file_ios[] = {
    {"auto", emulator::file_io::automatic}, {"uring", emulator::file_io::uring}, {"mmap", emulator::file_io::mmap}};

/// The values of `precondition`, and their names in reports.
constexpr std::pair<char const*, emulator::preconditioning> preconditionings[] = {
    {"fresh", emulator::preconditioning::fresh},
    {"full", emulator::preconditioning::full},
    {"random", emulator::preconditioning::random}};

struct specification {
  std::string uri;
  profile timing_of;
  backing bytes;
  residency engine = residency::threads;
  std::string path;
  std::string allow_destroy;     ///< the block device of which what lies on it may be overwritten
  std::uint64_t size_bytes = 0;  ///< 0: the file's
  std::uint32_t lba_bytes = 512;
  std::uint32_t queues = 128;
  std::uint32_t threads = 1;
  std::uint32_t errors_ppm = 0;
  std::uint32_t sms = 0;
  std::optional<emulator::gpu_residency> gpu;
  gpu_placement placement = gpu_placement::host;  ///< of an engine on a GPU
  std::string link;
  bool moves_data = true;
  bool creates = false;  ///< the file is to be made
  emulator::file_io io = emulator::file_io::automatic;

  bool in_file() const { return bytes.kind == backing_kind::file; }
};

/// Throws `refused_input` if the URI of a served drive has a placement: that follows from where the engine runs.
void refuse_placement_of_served(uri const& from);

/// `client_gpu`: the GPU that `backing=hbm` and `backing=host` mean. Throws `refused_input` for values that no drive
/// can have.
specification specify(uri const& from, int client_gpu);

}  // namespace forebay::drive
