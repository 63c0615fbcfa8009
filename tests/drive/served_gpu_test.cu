// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives on a GPU that a daemon serves: the conformance list, and the storage suite from a GPU. Needs a daemon, which
//! FOREBAY_DAEMON names, and with it MPS.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "conformance/conformance.hpp"
#include "conformance/suite.hpp"
#include "forebay/drive/drive.hpp"
#include "forebay/memory/cuda_stream.hpp"
#include "forebay/simt/cuda.hpp"
#include "forebay/simt/native.hpp"
#include "storage/storage_suite.hpp"

namespace forebay {
namespace {

/// Does not touch the GPU where no daemon is named.
bool served() {
  return std::getenv("FOREBAY_DAEMON") != nullptr && memory::device_count() > 0;
}

class served_target final : public conformance::target {
 public:
  driver::register_space& registers() override { return drive_->registers(); }
  driver::dma_space& dma() override { return drive_->dma(); }
  std::string serial() const override { return drive_->report()["serial"]; }
  std::uint64_t drive_bytes() const override { return 64 << 20; }
  std::uint32_t block_bytes() const override { return 512; }

 private:
  static std::unique_ptr<drive::device> open() {
    drive::open_options options;
    options.queues = 16;
    return drive::open("emulated:size=64M,backing=hbm,sms=2,queues=16,residency=served", options);
  }
  std::unique_ptr<drive::device> drive_ = open();
};

}  // namespace

namespace conformance {

using served_on_gpu = suite<served_target>;
TEST_P(served_on_gpu, conforms) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(served, served_on_gpu, testing::ValuesIn(checks()), name_of);

}  // namespace conformance

namespace storage_test {

struct served_to_gpu {
  using machine = simt::cuda;
  static std::string device() { return "cuda:0"; }
  /// Each opening is of a drive of its own.
  static std::string of_its_own() {
    static std::atomic<int> count{0};
    return ",residency=served,seed=" + std::to_string(++count);
  }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>(shape, kernel, stream.get());
    stream.synchronize();
  }
};
struct from_hbm : served_to_gpu {
  static std::string drive_keys() { return ",backing=hbm,sms=2,queues=256" + of_its_own(); }
};
struct from_threads : served_to_gpu {
  static std::string drive_keys() { return of_its_own(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(ServedFromHbm, StorageSuite, from_hbm);
INSTANTIATE_TYPED_TEST_SUITE_P(ServedFromThreads, StorageSuite, from_threads);

}  // namespace storage_test

namespace {

struct spin {
  std::uint64_t* until_changed;
  FOREBAY_DEVICE void operator()() const {
    static_cast<void>(simt::cuda::wait_until(
        [this] {
          // Relaxed: nothing is ordered by it; nobody writes it.
          return simt::atomic<simt::cuda, simt::scope::system>(*until_changed).load(simt::order::relaxed) != 0;
        },
        simt::cuda::clock_ns() + 30'000'000'000));
  }
};

std::string const lasting_uri = "emulated:size=16M,backing=hbm,sms=2,queues=256,residency=served,seed=1000";

TEST(served_engine, DISABLED_has_a_client_that_goes_with_a_kernel_running) {
  storage_options o;
  o.drives = {lasting_uri};
  o.device = "cuda:0";
  storage s(o);
  registered_buffer const word = s.allocate_device_buffer(4096);
  memory::cuda_stream const stream(0);
  simt::launch<simt::cuda>({1, 1}, spin{reinterpret_cast<std::uint64_t*>(word.data())}, stream.get());
  memory::device(0).copy_in(word.data() + 8, "started", 8);
  std::_Exit(0);
}

// MPS ends the kernels of all its processes then: this one must not have used the GPU.
TEST(served_engine, comes_back_with_the_data) {
  if (!std::getenv("FOREBAY_DAEMON") || !std::getenv("CUDA_MPS_PIPE_DIRECTORY")) GTEST_SKIP() << "no daemon, or no MPS";
  storage_options o;
  o.drives = {lasting_uri};
  o.device = "cpu";
  std::string const text = "in the memory of a GPU";
  std::string back(text.size(), ' ');
  {
    storage s(o);
    s.pwrite(text.data(), text.size(), 4711);
  }
  std::string const client =
      "/proc/" + std::to_string(getpid()) + "/exe --gtest_also_run_disabled_tests --gtest_filter=*kernel_running >&2";
  ASSERT_EQ(std::system(client.c_str()), 0);
  bool const came_back = simt::native::wait_until(
      [&] {
        try {
          storage s(o);
          s.pread(back.data(), back.size(), 4711);
          return nlohmann::json::parse(s.report())["drives"][0]["restarts"] > 0;
        } catch (std::exception const&) {
          return false;  // the engine that is dying, or the next one that is not there yet
        }
      },
      simt::native::clock_ns() + 60'000'000'000);
  EXPECT_TRUE(came_back);
  EXPECT_EQ(back, text);
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!forebay::served()) GTEST_FLAG_SET(filter, "served/*:served_engine.*");  // which say why they skip
  return RUN_ALL_TESTS();
}
