// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <nlohmann/json.hpp>

#include "library/cached_array.cuh"
#include "library/staged_bench.hpp"

namespace forebay::bench {
namespace {

struct staged : cached {
  using pools = frame_pools<no_sharing, replacement::no_policy, staged_frames>;
};

template <class Traits>
class elements_of final : public cached_elements {
  using array_type = cached_array<Traits>;

 public:
  elements_of(storage_options const& options, std::uint32_t client_sms) : array_(options, client_sms) {}

  storage& drives() override { return array_.drives; }
  cache_run write() override { return array_.write(); }
  cache_run random(std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint64_t seed) override {
    return array_.random(threads_per_sm, rounds, seed);
  }
  cache_run each_page(std::uint32_t threads_per_sm, std::uint64_t first, std::uint64_t count) override {
    return array_.each_page(threads_per_sm, first, count);
  }
  std::string kernel_shapes() const override {
    using simt::cuda;
    nlohmann::json const shapes = {
        {"write", shape_of<write_elements<cuda, typename array_type::drive_view>>()},
        {"random", shape_of<read_at_random<cuda, typename array_type::const_drive_view>>()},
        {"each_page", shape_of<read_each_page<cuda, typename array_type::const_drive_view>>()}};
    return shapes.dump();
  }

 private:
  array_type array_;
};

}  // namespace

std::unique_ptr<cached_elements> open_cached_elements(storage_options const& options, std::uint32_t client_sms) {
  if (options.cache.staging_pages != 0) return std::make_unique<elements_of<staged>>(options, client_sms);
  return std::make_unique<elements_of<cached>>(options, client_sms);
}

}  // namespace forebay::bench
