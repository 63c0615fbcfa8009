// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the queues of drives of different placements lie.
#include "storage/opened_drives.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace forebay::detail {
namespace {

using drive::gpu_placement;

/// Knows its placement only.
class placed final : public drive::device {
 public:
  placed(gpu_placement where, bool late) : where_(where), late_(late) {}
  driver::register_space& registers() override { throw std::logic_error("it has none"); }
  driver::dma_space& dma() override { throw std::logic_error("it has none"); }
  nlohmann::json report() override { return {}; }
  drive::gpu_placements placements() const override { return {where_, where_}; }
  bool data_may_be_late(bool on_gpu) const override { return on_gpu && late_; }
  void reset_statistics() override {}

 private:
  gpu_placement const where_;
  bool const late_;
};

opened_drives drives_of(std::vector<std::pair<gpu_placement, bool>> const& all) {
  opened_drives made;
  for (auto const& [where, late] : all) {
    made.push_back({});
    made.back().source = std::make_unique<placed>(where, late);
  }
  return made;
}

TEST(RingsOnGpu, AreThoseOfKernelsInPlacementThree) {
  auto const drives = drives_of({{gpu_placement::all_on_gpu, false}, {gpu_placement::data_on_gpu, false}});
  EXPECT_TRUE(rings_on_gpu(drives, 0, true));
  EXPECT_FALSE(rings_on_gpu(drives, 1, true));
  EXPECT_FALSE(rings_on_gpu(drives, 0, false));
}

TEST(RingsOnGpu, OfADriveWhoseDataMayBeLateNeedTheDataThereToo) {
  EXPECT_TRUE(rings_on_gpu(drives_of({{gpu_placement::all_on_gpu, true}}), 0, true));
  EXPECT_FALSE(rings_on_gpu(drives_of({{gpu_placement::all_on_gpu, true}, {gpu_placement::host, false}}), 0, true));
  EXPECT_TRUE(rings_on_gpu(drives_of({{gpu_placement::all_on_gpu, false}, {gpu_placement::host, false}}), 0, true));
}

}  // namespace
}  // namespace forebay::detail
