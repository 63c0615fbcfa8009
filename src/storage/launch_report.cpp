// SPDX-License-Identifier: Apache-2.0
#include "forebay/launch_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "storage/launch_report_on_gpu.hpp"

namespace forebay {

namespace {

std::string plural(std::uint64_t count, char const* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

double launch_report::occupancy() const {
  if (!gpu || gpu->max_threads_per_sm == 0) return 0;
  return static_cast<double>(gpu->resident_blocks_per_sm) * shape.threads_per_block / gpu->max_threads_per_sm;
}

std::string launch_report::text() const {
  std::string lines =
      fmt::format("{}: {} of {}, {} of dynamic shared memory each\n", device, plural(shape.blocks, "block"),
                  plural(shape.threads_per_block, "thread"), plural(shape.shared_bytes, "byte"));
  if (!gpu) return lines + "  lanes are fibers here: they have no registers, and take turns on the CPU's threads\n";
  auto const line = [&](char const* name, std::string const& value) {
    lines += fmt::format("  {:<25}{}\n", name, value);
  };
  line("registers a thread", std::to_string(gpu->registers_per_thread));
  line("local memory a thread",
       plural(gpu->local_bytes_per_thread, "byte") + (gpu->local_bytes_per_thread == 0 ? ": nothing is spilled" : ""));
  line("static shared memory", plural(gpu->static_shared_bytes, "byte"));
  line("threads a block, at most", std::to_string(gpu->max_threads_per_block));
  if (gpu->resident_blocks_per_sm == 0) {
    line("resident blocks an SM", fmt::format("none: it cannot be launched like this ({})", gpu->limited_by));
    return lines;
  }
  line("resident blocks an SM", fmt::format("{}, limited by {}", gpu->resident_blocks_per_sm, gpu->limited_by));
  line("occupancy", fmt::format("{:.0f} % ({} of {} threads an SM)", 100 * occupancy(),
                                gpu->resident_blocks_per_sm * shape.threads_per_block, gpu->max_threads_per_sm));
  std::uint64_t const places = std::uint64_t{gpu->resident_blocks_per_sm} * gpu->sms;
  line("places on an idle GPU",
       fmt::format("{}, {} SMs: {}", plural(places, "block"), gpu->sms,
                   shape.blocks <= places ? "all blocks run at once" : "blocks wait for others to end"));
  return lines;
}

std::string launch_report::json() const {
  nlohmann::ordered_json document = {
      {"device", device},
      {"blocks", shape.blocks},
      {"threads_per_block", shape.threads_per_block},
      {"dynamic_shared_bytes", shape.shared_bytes},
      {"gpu", nullptr},
  };
  if (gpu) {
    document["gpu"] = {
        {"registers_per_thread", gpu->registers_per_thread},
        {"local_bytes_per_thread", gpu->local_bytes_per_thread},
        {"static_shared_bytes", gpu->static_shared_bytes},
        {"max_threads_per_block", gpu->max_threads_per_block},
        {"resident_blocks_per_sm", gpu->resident_blocks_per_sm},
        {"max_threads_per_sm", gpu->max_threads_per_sm},
        {"sms", gpu->sms},
        {"limited_by", gpu->limited_by},
        {"occupancy", occupancy()},
    };
  }
  return document.dump();
}

namespace detail {

void check_shape(simt::grid const& shape) {
  if (shape.blocks == 0) throw refused_input("blocks", "0", "must be at least 1");
  if (shape.threads_per_block == 0) throw refused_input("threads_per_block", "0", "must be at least 1");
}

launch_report report_cpu_launch(simt::grid const& shape) {
  check_shape(shape);
  return {"cpu", shape, std::nullopt};
}

std::string what_limits(launch_report::gpu_use const& use, simt::grid const& shape, sm_limits const& sm) {
  if (shape.threads_per_block > use.max_threads_per_block) return "max_threads_per_block";
  std::uint32_t const lanes = (shape.threads_per_block + 31) / 32 * 32;
  std::uint64_t const shared_bytes = use.static_shared_bytes + shape.shared_bytes + sm.reserved_shared_bytes_per_block;
  // In the order of what is easiest to change. Registers are not counted: they are handed out in units that depend on
  // the GPU, and are the remaining cause.
  if (use.resident_blocks_per_sm >= use.max_threads_per_sm / lanes) return "threads";
  if (use.resident_blocks_per_sm >= sm.max_blocks) return "blocks";
  if (use.static_shared_bytes + shape.shared_bytes != 0 &&
      use.resident_blocks_per_sm >= sm.shared_bytes / shared_bytes) {
    return "shared_memory";
  }
  return "registers";
}

}  // namespace detail
}  // namespace forebay
