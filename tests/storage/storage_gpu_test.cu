// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage suite on a GPU: in placement 1, with drives on CPU threads and with QEMU's, and in each placement with
//! drives on the GPU itself; and the ordering flush of placement 2.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "qemu/every_depth.hpp"
#include "qemu/shapes.hpp"
#include "storage/late_data_suite.hpp"
#include "storage/storage_suite.hpp"

namespace forebay::storage_test {

struct on_gpu {
  using machine = simt::cuda;
  static std::string device() { return "cuda:0"; }
  static std::string drive_keys() { return ""; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>(shape, kernel, stream.get());
    stream.synchronize();
  }
};
struct with_drives_in_hbm : on_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=4"; }
  static int placement() { return 2; }
};
/// The host keeps completions from the kernels until their data is there.
struct with_queues_in_host_memory : on_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=4,placement=2"; }
};
/// The drive's engine runs on the GPU, and reaches over its link for all that commands name.
struct with_data_in_host_memory : on_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=4,placement=1"; }
};
struct with_drives_in_host_memory : on_gpu {
  static std::string drive_keys() { return ",backing=host,sms=4"; }
};
template <class Shape>
struct on_gpu_and_qemu : on_gpu, qemu_drives<Shape> {
  static void require() {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
    qemu_drives<Shape>::require();
  }
};

TEST(GpuOnQemu, CommandsOfEveryDepthMoveTheirBytesAndNoOthers) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  FOREBAY_NEEDS_QEMU();
  write_and_read_back_at_every_depth<on_gpu>();
}

TEST(ResidentFileDrive, IsLoadedAndWrittenBackOnFlush) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  std::string const path = testing::TempDir() + "forebay_resident_file_drive.img";
  std::remove(path.c_str());
  std::string const uri = "emulated:backing=file,path=" + path;
  drive::create(uri + ",size=8M");
  storage_options o;
  o.device = "cuda:0";
  std::vector<std::uint64_t> out(1 << 17), in(1 << 17);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i * 0x9e3779b97f4a7c15u;
  {
    o.drives = {uri + ",residency=in_process,sms=2"};
    storage st(o);
    st.pwrite(out.data(), out.size() * 8, 12345 * 8);
    st.flush();
    // Another opening of the file would be refused, but data that a flush covers is in it.
    std::ifstream file(path, std::ios::binary);
    file.seekg(12345 * 8);
    file.read(reinterpret_cast<char*>(in.data()), static_cast<std::streamsize>(in.size() * 8));
    EXPECT_TRUE(in == out);
    st.pwrite(out.data(), 4096, 0);  // not flushed: reaches the file when the drive is closed
  }
  o.drives = {uri};
  o.device = "cpu";
  storage st(o);
  st.pread(in.data(), in.size() * 8, 12345 * 8);
  EXPECT_TRUE(in == out);
  st.pread(in.data(), 4096, 0);
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + 512, out.begin()));
  std::remove(path.c_str());
}

/// The distance between two elements of an array in device code. `sizeof` does not tell: with nvcc 13.0 it is 8 bytes
/// for a pointer and an empty [[no_unique_address]] member, while code is made as if it were 16.
template <class T>
__global__ void measure_stride(T* array, std::size_t* stride_bytes) {
  *stride_bytes = static_cast<std::size_t>(reinterpret_cast<char*>(array + 1) - reinterpret_cast<char*>(array));
}

template <class T>
class SharedLayout : public testing::Test {};
using uncached_ref = decltype(std::declval<storage&>().ref<simt::cuda>());
using cached_ref = decltype(std::declval<storage&>().ref<simt::cuda, cached>());
/// A token among other things, as programs keep them in arrays.
struct request_in_flight {
  token<simt::cuda> token;
  std::uint64_t begun_ns;
};
using shared_types = testing::Types<uncached_ref, cached_ref, token<simt::cuda>, token<simt::cuda>::parked,
                                    request_in_flight, cached_ref::read_token, cached_ref::write_token, buffer_ref,
                                    io_queues_state, queue_pair_state, completion_record>;
TYPED_TEST_SUITE(SharedLayout, shared_types);

TYPED_TEST(SharedLayout, IsTheSameInDeviceCode) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  std::size_t* stride_bytes = nullptr;
  ASSERT_EQ(cudaMallocManaged(&stride_bytes, sizeof *stride_bytes), cudaSuccess);
  measure_stride<TypeParam><<<1, 1>>>(nullptr, stride_bytes);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*stride_bytes, sizeof(TypeParam));
  cudaFree(stride_bytes);
}

INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, StorageSuite, on_gpu);
INSTANTIATE_TYPED_TEST_SUITE_P(ResidentDrives, StorageSuite, with_drives_in_hbm);
INSTANTIATE_TYPED_TEST_SUITE_P(PlacementTwo, StorageSuite, with_queues_in_host_memory);
INSTANTIATE_TYPED_TEST_SUITE_P(PlacementOne, StorageSuite, with_data_in_host_memory);
INSTANTIATE_TYPED_TEST_SUITE_P(PlacementTwo, LateDataSuite, with_drives_in_hbm);
INSTANTIATE_TYPED_TEST_SUITE_P(ResidentHostDrives, StorageSuite, with_drives_in_host_memory);
using qemu_shapes =
    testing::Types<on_gpu_and_qemu<blocks_of_4096>, on_gpu_and_qemu<small_commands_in_the_second_namespace>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Qemu, StorageSuite, qemu_shapes, shape_names);

}  // namespace forebay::storage_test
