// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/executor.hpp"
#include "forebay/memory.hpp"
#include "harness/event_timer.hpp"
#include "harness/gpu_use.hpp"
#include "library/cache_bench.hpp"

namespace forebay::bench {
namespace {

using simt::cuda;
using drive_storage = storage_ref<cuda, cached>;
using drive_view = drive_storage::view_type<cache_element>;
using const_drive_view = drive_storage::view_type<cache_element const>;
constexpr std::uint32_t threads_per_block = 256;

template <class Kernel>
nlohmann::json shape_of() {
  launch_report::gpu_use const use = gpu_use_of<Kernel>();
  return {{"registers", use.registers_per_thread}, {"local_bytes", use.local_bytes_per_thread}};
}

}  // namespace

struct cache_rig::parts {
  parts(storage_options const& options, std::uint32_t client_sms, std::uint64_t in_memory)
      : drives(options), sms(client_sms), memory_elements(in_memory) {
    if (in_memory != 0) array = memory::allocation(memory::device(0), in_memory * sizeof(cache_element), 128);
    running = drives.lease();
    run_elements = options.cache.page_bytes / sizeof(cache_element);
  }

  drive_view view() const { return drives.ref<cuda, cached>().array<cache_element>(); }
  const_drive_view const_view() const { return drives.ref<cuda, cached>().array<cache_element const>(); }
  memory_view<cache_element> in_memory() const { return {array.as<cache_element>(), memory_elements}; }

  template <class Kernel>
  cache_run run(std::uint32_t threads_per_sm, Kernel kernel) {
    cache_run out;
    result.from().copy_in(result.data(), &out.seen, sizeof out.seen);
    kernel.tally = result.as<cache_tally>();
    std::uint32_t const fit = gpu_use_of<Kernel>(threads_per_block).resident_blocks_per_sm;
    std::uint32_t const blocks = std::min(threads_per_sm / threads_per_block, fit) * sms;
    out.seconds = seconds_of(executor.stream(),
                             [&] { executor({.blocks = blocks, .threads_per_block = threads_per_block}, kernel); });
    result.from().copy_out(&out.seen, result.data(), sizeof out.seen);
    return out;
  }

  storage drives;
  std::uint32_t sms;
  std::uint64_t memory_elements;
  std::uint64_t run_elements = 512;
  memory::allocation array;
  memory::allocation result{memory::device(0), sizeof(cache_tally), 128};
  apps::executor<cuda> executor{0};
  std::optional<storage_lease> running;  ///< last: what is above is freed when the engine may leave
};

cache_rig::cache_rig(storage_options const& options, std::uint32_t client_sms, std::uint64_t in_memory)
    : parts_(std::make_unique<parts>(options, client_sms, in_memory)) {}
cache_rig::~cache_rig() = default;
storage& cache_rig::drives() {
  return parts_->drives;
}
std::uint64_t cache_rig::elements() const {
  return parts_->drives.size_bytes() / sizeof(cache_element);
}

cache_run cache_rig::write() {
  if (parts_->memory_elements != 0) {
    parts_->run(
        1024, write_elements<cuda, memory_view<cache_element>>{parts_->in_memory(), parts_->memory_elements, nullptr});
  }
  return parts_->run(1024, write_elements<cuda, drive_view>{parts_->view(), parts_->run_elements, nullptr});
}
cache_run cache_rig::stream(bool memory, std::uint32_t threads_per_sm, std::uint32_t pages) {
  if (memory) {
    return parts_->run(threads_per_sm, stream_elements<cuda, memory_view<cache_element>>{
                                           parts_->in_memory(), parts_->run_elements, pages, nullptr});
  }
  return parts_->run(threads_per_sm, stream_elements<cuda, const_drive_view>{parts_->const_view(), parts_->run_elements,
                                                                             pages, nullptr});
}
cache_run cache_rig::random(bool memory, std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint64_t seed) {
  if (memory) {
    return parts_->run(threads_per_sm,
                       read_at_random<cuda, memory_view<cache_element>>{parts_->in_memory(), rounds, seed, nullptr});
  }
  return parts_->run(threads_per_sm,
                     read_at_random<cuda, const_drive_view>{parts_->const_view(), rounds, seed, nullptr});
}
cache_run cache_rig::each_page(std::uint32_t threads_per_sm, std::uint64_t first, std::uint64_t count) {
  std::uint64_t pages = 1;
  while (2 * pages * parts_->run_elements <= elements()) pages *= 2;
  return parts_->run(threads_per_sm,
                     read_each_page<cuda, const_drive_view>{parts_->const_view(), parts_->run_elements, pages,
                                                            0x9e3779b97f4a7c15u, first, count, nullptr});
}
cache_run cache_rig::read_and_add(std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint32_t percent,
                                  std::uint64_t seed) {
  return parts_->run(threads_per_sm,
                     bench::read_and_add<cuda, drive_view>{parts_->view(), rounds, percent, seed, nullptr});
}

std::string cache_rig::kernel_shapes() const {
  nlohmann::json const shapes = {{"stream", shape_of<stream_elements<cuda, const_drive_view>>()},
                                 {"random", shape_of<read_at_random<cuda, const_drive_view>>()},
                                 {"each_page", shape_of<read_each_page<cuda, const_drive_view>>()},
                                 {"read_and_add", shape_of<bench::read_and_add<cuda, drive_view>>()}};
  return shapes.dump();
}

}  // namespace forebay::bench
