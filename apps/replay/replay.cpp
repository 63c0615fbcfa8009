// SPDX-License-Identifier: Apache-2.0
#include "apps/replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/processor_time.hpp"
#include "apps/replay/run_on.hpp"
#include "forebay/error.hpp"

namespace forebay::replay {
namespace {

/// As many as a storage has records for requests in flight (`storage_options::records`).
constexpr std::uint32_t iodepth_max = 65536;

struct drive_shape {
  std::uint64_t size_bytes;
  std::uint64_t block_bytes;
};

[[noreturn]] void refuse(options const& o, operation const& op, char const* field, std::uint64_t value,
                         std::string const& remedy) {
  throw refused_input(fmt::format("{}:{}: {}", o.trace_name, op.line, field), fmt::to_string(value), remedy);
}

/// Refuses operations that cannot be submitted as they are.
void require_fit(operation const& op, drive_shape const& drive, options const& o) {
  for (auto const& [field, value] : {std::pair{"offset", op.offset_bytes}, std::pair{"length", op.bytes}}) {
    if (value % drive.block_bytes == 0) continue;
    refuse(
        o, op, field, value,
        fmt::format("must be a multiple of the drive's block, {} bytes; --wrap takes whole blocks", drive.block_bytes));
  }
  if (op.bytes > drive.size_bytes || op.offset_bytes > drive.size_bytes - op.bytes) {
    refuse(o, op, "offset", op.offset_bytes,
           fmt::format("the operation ends beyond the drive's {} bytes; take a larger drive, or --wrap",
                       drive.size_bytes));
  }
}

/// The whole blocks that `op` touches, modulo the drive; a range that would cross the drive's end stops there.
operation wrapped(operation op, drive_shape const& drive, options const& o) {
  std::uint64_t const block = drive.block_bytes;
  std::uint64_t const head = op.offset_bytes % block;
  if (op.bytes > drive.size_bytes || head + op.bytes > drive.size_bytes) {
    refuse(o, op, "length", op.bytes,
           fmt::format("is more than the drive's {} bytes; take a larger drive", drive.size_bytes));
  }
  op.bytes = (head + op.bytes + block - 1) / block * block;
  op.offset_bytes = std::min((op.offset_bytes - head) % drive.size_bytes, drive.size_bytes - op.bytes);
  return op;
}

/// The request to the storage. Refuses an operation that the storage cannot do.
std::vector<operation> fitted(std::span<operation const> operations, drive_shape const& drive, options const& o,
                              result& out) {
  std::vector<operation> fit(operations.begin(), operations.end());
  std::uint64_t due_ns = 0;
  for (operation& op : fit) {
    if (op.kind > operation_kind::flush) {
      refuse(o, op, "kind", static_cast<std::uint32_t>(op.kind), "must be a read, a write or a flush");
    }
    if (o.open_loop && op.at_ns < due_ns) refuse(o, op, "time", op.at_ns, "must not be before the one above it");
    due_ns = op.at_ns;
    if (op.kind == operation_kind::flush) {
      op.offset_bytes = op.bytes = 0;
      continue;
    }
    if (op.bytes == 0) refuse(o, op, "length", op.bytes, "must be at least one block");
    if (o.wrap) {
      operation const moved = wrapped(op, drive, o);
      if (moved.offset_bytes != op.offset_bytes || moved.bytes != op.bytes) ++out.wrapped;
      op = moved;
    }
    require_fit(op, drive, o);
  }
  return fit;
}

/// How many commands a transfer becomes: it is split where a stripe ends, and where a command is full.
std::uint64_t commands_of(storage_layout const& layout, operation const& op) {
  if (layout.drive_count == 1) return (op.bytes + layout.command_bytes_max - 1) / layout.command_bytes_max;
  std::uint64_t commands = 0;
  for (std::uint64_t at = op.offset_bytes, end = at + op.bytes; at < end; ++commands) {
    std::uint64_t const stripe_end = (at / layout.stripe_bytes + 1) * layout.stripe_bytes;
    at = std::min({end, stripe_end, at + layout.command_bytes_max});
  }
  return commands;
}

void count(std::span<operation const> operations, storage_layout const& layout, result& out) {
  for (operation const& op : operations) {
    switch (op.kind) {
      case operation_kind::read:
        ++out.asked.reads;
        out.asked.read_bytes += op.bytes;
        out.commands.reads += commands_of(layout, op);
        break;
      case operation_kind::write:
        ++out.asked.writes;
        out.asked.write_bytes += op.bytes;
        out.commands.writes += commands_of(layout, op);
        break;
      case operation_kind::flush:
        ++out.asked.flushes;
        out.commands.flushes += layout.drive_count;
        break;
    }
  }
}

void require_options(options const& o) {
  auto const refuse_unless = [](bool holds, char const* field, auto value, std::string const& remedy) {
    if (!holds) throw refused_input(field, fmt::to_string(value), remedy);
  };
  refuse_unless(o.iodepth >= 1 && o.iodepth <= iodepth_max, "--iodepth", o.iodepth,
                fmt::format("must be 1 to {}", iodepth_max));
  refuse_unless(o.gpu_threads >= 1, "--gpu-threads", o.gpu_threads, "must be at least 1");
  refuse_unless(o.timeout_s > 0 && o.timeout_s < 1e6, "timeout", o.timeout_s, "must be more than 0 and less than 1e6");
}

void launch(storage& drives, std::span<operation const> operations, workload const& work, std::uint64_t region_bytes,
            result& out) {
#ifdef FOREBAY_HAS_CUDA
  if (drives.on_gpu()) return run_on_gpu(drives, operations, work, region_bytes, out);
#endif
  run_on<simt::fiber>(drives, operations, work, region_bytes, out);
}

}  // namespace

result run(storage& drives, std::span<operation const> operations, options const& wanted) {
  require_options(wanted);
  if (operations.empty()) throw refused_input("trace", wanted.trace_name, "has no operation to replay");
  result out;
  std::vector<operation> const fit = fitted(operations, {drives.size_bytes(), drives.block_bytes()}, wanted, out);
  count(fit, drives.layout(), out);

  workload work;
  std::uint64_t region_bytes = 0;
  work.slot_bytes = drives.block_bytes();
  for (operation const& op : fit) {
    work.slot_bytes = std::max(work.slot_bytes, op.bytes);
    region_bytes = std::max(region_bytes, op.offset_bytes + op.bytes);
  }
  work.operations = fit.size();
  work.block_bytes = drives.block_bytes();
  work.seed = wanted.seed;
  work.timeout_ns = static_cast<std::uint64_t>(wanted.timeout_s * 1e9);
  work.lag_bound_ns = lag_bound_ns;
  work.iodepth = wanted.iodepth;
  work.threads = std::min(wanted.gpu_threads, wanted.iodepth);
  work.open_loop = wanted.open_loop;
  work.verify = wanted.verify;

  drives.reset_statistics();
  apps::processor_time const processor;
  launch(drives, fit, work, region_bytes, out);
  out.processor = processor.share();
  out.threads = work.threads;
  return out;
}

}  // namespace forebay::replay
