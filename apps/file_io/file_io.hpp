// SPDX-License-Identifier: Apache-2.0
//! \file
//! The workload of `forebay bench` on a file, done by CPU threads in one of the ways that the operating system offers.
#pragma once

#include <cstdint>
#include <string>

#include "apps/block_io/block_io.hpp"

namespace forebay::file_io {

struct options {
  std::string path;    ///< an ordinary file or a block device
  std::string engine;  ///< one of `engine_names()`
  int gpu = -1;        ///< the GPU in whose memory the data of reads ends and that of writes begins; -1: in host memory
  block_io::options job;  ///< `gpu_threads` are the threads of an engine whose threads keep several commands in flight
};

struct result {
  block_io::result job;
  std::string first_error;  ///< text, where `job.errors` is not 0
  std::string way;          ///< how the engine moved the data, in words
  std::string cufile;       ///< `direct` or `compat`; empty for other engines
  bool direct = false;      ///< whether the file was opened with O_DIRECT, past the page cache
  bool block_device = false;
  bool has_holes = false;  ///< the file has fewer bytes on the disk than its size: reads of the holes move nothing
  std::uint64_t file_bytes = 0;
  std::uint64_t block_bytes = 0;  ///< the least that the engine transfers
};

/// The engines, separated by commas.
std::string engine_names();

/// Runs the workload. The file must be there; a workload that writes overwrites it from byte 0 on. Throws
/// `refused_input` (fields named as on the command line) before anything is written, and `operation_failed` if the
/// threads cannot be set up or the pattern cannot be laid down or read back. Errors of the workload's own commands are
/// in the result. Thread-safe.
result run(options const& wanted, block_io::progress const& tell = {});

}  // namespace forebay::file_io
