// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <nlohmann/json.hpp>

#include "forebay/memory.hpp"
#include "library/cache_bench.hpp"
#include "library/cached_array.cuh"

namespace forebay::bench {
namespace {

using simt::cuda;
using array_type = cached_array<cached>;
using drive_view = array_type::drive_view;
using const_drive_view = array_type::const_drive_view;

}  // namespace

struct cache_rig::parts {
  parts(storage_options const& options, std::uint32_t client_sms, std::uint64_t in_memory)
      : memory_elements(in_memory),
        array(in_memory != 0 ? memory::allocation(memory::device(0), in_memory * sizeof(cache_element), 128)
                             : memory::allocation()),
        on_drives(options, client_sms) {}
  memory_view<cache_element> in_memory() const { return {array.as<cache_element>(), memory_elements}; }

  std::uint64_t memory_elements;
  memory::allocation array;  ///< before the drives: an allocation may wait for an engine that runs
  array_type on_drives;
};

cache_rig::cache_rig(storage_options const& options, std::uint32_t client_sms, std::uint64_t in_memory)
    : parts_(std::make_unique<parts>(options, client_sms, in_memory)) {}
cache_rig::~cache_rig() = default;
storage& cache_rig::drives() {
  return parts_->on_drives.drives;
}
std::uint64_t cache_rig::elements() const {
  return parts_->on_drives.elements();
}

cache_run cache_rig::write() {
  if (parts_->memory_elements != 0) {
    parts_->on_drives.run(
        1024, write_elements<cuda, memory_view<cache_element>>{parts_->in_memory(), parts_->memory_elements, nullptr});
  }
  return parts_->on_drives.write();
}
cache_run cache_rig::stream(bool memory, std::uint32_t threads_per_sm, std::uint32_t pages) {
  array_type& of = parts_->on_drives;
  if (memory) {
    return of.run(threads_per_sm, stream_elements<cuda, memory_view<cache_element>>{parts_->in_memory(),
                                                                                    of.run_elements, pages, nullptr});
  }
  return of.run(threads_per_sm,
                stream_elements<cuda, const_drive_view>{of.const_view(), of.run_elements, pages, nullptr});
}
cache_run cache_rig::random(bool memory, std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint64_t seed) {
  if (!memory) return parts_->on_drives.random(threads_per_sm, rounds, seed);
  return parts_->on_drives.run(
      threads_per_sm, read_at_random<cuda, memory_view<cache_element>>{parts_->in_memory(), rounds, seed, nullptr});
}
cache_run cache_rig::each_page(std::uint32_t threads_per_sm, std::uint64_t first, std::uint64_t count) {
  return parts_->on_drives.each_page(threads_per_sm, first, count);
}
cache_run cache_rig::read_and_add(std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint32_t percent,
                                  std::uint64_t seed) {
  array_type& of = parts_->on_drives;
  return of.run(threads_per_sm, bench::read_and_add<cuda, drive_view>{of.view(), rounds, percent, seed, nullptr});
}

std::string cache_rig::kernel_shapes() const {
  nlohmann::json const shapes = {{"stream", shape_of<stream_elements<cuda, const_drive_view>>()},
                                 {"random", shape_of<read_at_random<cuda, const_drive_view>>()},
                                 {"each_page", shape_of<read_each_page<cuda, const_drive_view>>()},
                                 {"read_and_add", shape_of<bench::read_and_add<cuda, drive_view>>()}};
  return shapes.dump();
}

}  // namespace forebay::bench
