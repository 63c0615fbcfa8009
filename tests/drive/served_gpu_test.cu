// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives on a GPU that a daemon serves: the conformance list, and the storage suite from a GPU. Needs a daemon, which
//! FOREBAY_DAEMON names, and with it MPS.
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
#include "storage/storage_suite.hpp"

namespace forebay {
namespace {

bool served() {
  return memory::device_count() > 0 && std::getenv("FOREBAY_DAEMON") != nullptr;
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
}  // namespace forebay

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!forebay::served()) GTEST_FLAG_SET(filter, "served/*");  // which say why they skip
  return RUN_ALL_TESTS();
}
