// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on a GPU whose waiting threads consume completions.
#include "qemu/shapes.hpp"
#include "storage/cached_on_gpu.hpp"

namespace forebay::storage_test {

struct cached_on_gpu_and_qemu : cached_on_gpu, qemu_drives<second_namespace> {
  static void require() {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
    qemu_drives<second_namespace>::require();
  }
};

namespace {

/// Whether host threads reach the frame of a page of a drive on CPU threads.
template <class Pools>
bool host_reaches_frames(std::uint32_t staging_pages) {
  using ref_type = storage_ref<simt::cuda, test::traits<replacement::clock, false, Pools>>;
  storage_options options;
  options.drives = {"emulated:size=1M"};
  options.device = cached_on_gpu::device();
  options.cache.size_bytes = 64 * options.cache.page_bytes;
  options.cache.staging_pages = staging_pages;
  storage st(options);
  registered_buffer const results = st.allocate_buffer(4096);
  auto* const address = reinterpret_cast<std::uint64_t*>(results.data());
  auto* const result = new (results.data() + 64) tally;
  auto const ref = st.ref<simt::cuda, test::traits<replacement::clock, false, Pools>>();
  cached_on_gpu::run({1, 32}, place_of_page<simt::cuda, ref_type>{ref, address, result});
  EXPECT_EQ(result->ok, 32u);
  return memory::host_reaches(reinterpret_cast<void const*>(*address));
}

TEST(StagedFrames, LieInTheMemoryOfTheGpu) {
  EXPECT_TRUE(host_reaches_frames<frame_pools<>>(0));
  EXPECT_FALSE((host_reaches_frames<frame_pools<no_sharing, replacement::no_policy, staged_frames>>(32)));
}

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, CachedStorageSuite, cached_on_gpu);
INSTANTIATE_TYPED_TEST_SUITE_P(ResidentDrives, CachedStorageSuite, cached_with_drives_in_hbm);
INSTANTIATE_TYPED_TEST_SUITE_P(PlacementTwo, CachedStorageSuite, cached_with_queues_in_host_memory);
INSTANTIATE_TYPED_TEST_SUITE_P(Qemu, CachedStorageSuite, cached_on_gpu_and_qemu);

}  // namespace forebay::storage_test
