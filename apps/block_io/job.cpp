// SPDX-License-Identifier: Apache-2.0
#include "apps/block_io/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/pattern.hpp"
#include "apps/common/processor_time.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::block_io {
namespace {

constexpr std::uint64_t host_chunk_bytes = 1 << 20;
constexpr std::size_t page_bytes = 4096;

std::uint64_t to_ns(double seconds) {
  return static_cast<std::uint64_t>(seconds * 1e9);
}

/// Whole blocks, about `host_chunk_bytes`.
memory::allocation chunk_of(workload const& work) {
  std::uint64_t const bytes = host_chunk_bytes / work.block_bytes * work.block_bytes + work.block_bytes;
  return memory::allocation(memory::host(), std::min(bytes, work.region_bytes), page_bytes);
}

void lay_down(job const& what, workload const& work, progress const& tell) {
  memory::allocation const chunk = chunk_of(work);
  for (std::uint64_t at = 0; at < work.region_bytes; at += chunk.size_bytes()) {
    std::uint64_t const bytes = std::min<std::uint64_t>(chunk.size_bytes(), work.region_bytes - at);
    apps::fill_pattern<simt::native>(chunk.as<std::byte>(), bytes, at, work.seed, apps::generation::laid_down);
    what.write(chunk.data(), bytes, at);
    if (tell) tell("lay down", static_cast<double>(at + bytes) / static_cast<double>(work.region_bytes));
  }
}

/// Reads every block: those that `written` marks must be rewritten, the others as they were laid down.
void read_back(job const& what, workload const& work, std::vector<std::uint32_t> const& written, result& r,
               progress const& tell) {
  memory::allocation const chunk = chunk_of(work);
  for (std::uint64_t at = 0; at < work.region_bytes; at += chunk.size_bytes()) {
    std::uint64_t const bytes = std::min<std::uint64_t>(chunk.size_bytes(), work.region_bytes - at);
    what.read(chunk.data(), bytes, at);
    for (std::uint64_t offset = 0; offset < bytes; offset += work.block_bytes) {
      std::uint64_t const address = at + offset, block = address / work.block_bytes;
      std::byte const* const data = chunk.as<std::byte>() + offset;
      bool const rewritten = (written[block / 32] >> block % 32 & 1) != 0;
      bool const holds = rewritten || work.laid_down
                             ? apps::matches_pattern<simt::native>(
                                   data, work.block_bytes, address, work.seed,
                                   rewritten ? apps::generation::rewritten : apps::generation::laid_down)
                             : apps::matches_either_pattern<simt::native>(data, work.block_bytes, address, work.seed);
      ++r.verified_blocks;
      if (holds) continue;
      if (r.mismatches++ == 0 || address < r.first_mismatch_byte) r.first_mismatch_byte = address;
    }
    if (tell) tell("read back", static_cast<double>(at + bytes) / static_cast<double>(work.region_bytes));
  }
}

}  // namespace

workload validated(options const& o, medium const& on) {
  auto const refuse_unless = [](bool holds, char const* field, auto value, std::string const& remedy) {
    if (!holds) throw refused_input(field, fmt::to_string(value), remedy);
  };
  std::string const within = fmt::format("must not exceed the {} bytes of the {}", on.size_bytes, on.name);
  refuse_unless(o.block_bytes != 0 && o.block_bytes % on.block_bytes == 0, "--bs", o.block_bytes,
                fmt::format("must be a multiple of the block of the {}, {} bytes", on.name, on.block_bytes));
  refuse_unless(o.block_bytes <= on.size_bytes, "--bs", o.block_bytes, within);
  std::uint64_t const size = o.size_bytes == 0 ? on.size_bytes / o.block_bytes * o.block_bytes : o.size_bytes;
  refuse_unless(size != 0 && size % o.block_bytes == 0, "--size", size,
                fmt::format("must be a multiple of --bs, {} bytes", o.block_bytes));
  refuse_unless(size <= on.size_bytes, "--size", size, within);
  refuse_unless(o.iodepth >= 1 && o.iodepth <= 1u << 20, "--iodepth", o.iodepth, "must be 1 to 1048576");
  refuse_unless(o.gpu_threads >= 1, "--gpu-threads", o.gpu_threads, "must be at least 1");
  refuse_unless(o.read_percent <= 100, "--rwmixread", o.read_percent, "must be 0 to 100");
  refuse_unless(o.runtime_s >= 0 && o.runtime_s < 1e6, "--runtime", o.runtime_s, "must be 0 to 1e6 seconds");
  refuse_unless(o.ramp_time_s >= 0 && o.ramp_time_s < 1e6, "--ramp-time", o.ramp_time_s, "must be 0 to 1e6 seconds");

  workload work;
  work.region_bytes = size;
  work.block_bytes = o.block_bytes;
  work.seed = o.seed;
  work.runtime_ns = to_ns(o.runtime_s);
  work.ramp_ns = work.runtime_ns == 0 ? 0 : to_ns(o.ramp_time_s);
  work.commands = size / o.block_bytes;
  work.timeout_ns = to_ns(o.timeout_s);
  work.iodepth = o.iodepth;
  work.threads = std::min(o.gpu_threads, o.iodepth);
  work.read_percent = o.read_percent;
  work.random = o.random;
  work.verify = o.verify;
  work.laid_down = o.verify && o.lay_down;
  work.lands = o.lands;
  return work;
}

result run(job const& what, workload const& work, progress const& tell) {
  if (work.laid_down) lay_down(what, work, tell);

  if (tell) tell("run", 0);
  apps::processor_time const processor;
  launch_result launched = what.launch();
  apps::processor_share const share = processor.share();
  if (tell) tell("run", 1);

  result r;
  r.read = std::move(launched.read);
  r.write = std::move(launched.write);
  std::uint64_t const begin_ns = launched.epoch_ns + work.ramp_ns;
  bool const whole = work.runtime_ns != 0 && launched.errors == 0;
  std::uint64_t const measured_ns = whole                                    ? work.runtime_ns
                                    : launched.last_completion_ns > begin_ns ? launched.last_completion_ns - begin_ns
                                                                             : 0;
  r.seconds = static_cast<double>(measured_ns) * 1e-9;
  r.processor = share;
  r.threads = launched.threads;
  r.size_bytes = work.region_bytes;
  r.mismatches = launched.mismatches;
  r.first_mismatch_byte = launched.first_mismatch_byte;
  r.verified_blocks = work.verify ? r.read.completion.summary.count : 0;
  r.errors = launched.errors;
  r.first_error = launched.first_error;
  if (work.verify && work.read_percent < 100 && r.errors == 0) read_back(what, work, launched.written, r, tell);
  return r;
}

}  // namespace forebay::block_io
