// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives on a GPU that a daemon serves: the conformance list, and the storage suite from a GPU. Needs a daemon, which
//! FOREBAY_DAEMON names, and with it MPS.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/conformance.hpp"
#include "conformance/suite.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "storage/storage_suite.hpp"

namespace forebay {
namespace {

/// Does not touch the GPU where no daemon is named.
bool served() {
  return std::getenv("FOREBAY_DAEMON") != nullptr && memory::device_count() > 0;
}

struct in_hbm {
  static constexpr char const* keys = "backing=hbm,sms=2";
};
struct in_host_memory {
  static constexpr char const* keys = "backing=host,sms=1";
};

template <class Place>
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
    return drive::open("emulated:size=64M,queues=16,residency=served," + std::string(Place::keys), options);
  }
  std::unique_ptr<drive::device> drive_ = open();
};

}  // namespace

namespace conformance {

using served_on_gpu = suite<served_target<in_hbm>>;
using served_from_host_memory = suite<served_target<in_host_memory>>;
TEST_P(served_on_gpu, conforms) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  run(on(), GetParam());
}
TEST_P(served_from_host_memory, conforms) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(served, served_on_gpu, testing::ValuesIn(checks()), name_of);
INSTANTIATE_TEST_SUITE_P(served, served_from_host_memory, testing::ValuesIn(checks()), name_of);

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
struct from_host_memory : served_to_gpu {
  static std::string drive_keys() { return ",backing=host,sms=1,queues=128" + of_its_own(); }
};
struct from_peer : served_to_gpu {
  static std::string drive_keys() { return ",backing=peer:1,sms=2,queues=256" + of_its_own(); }
};
struct from_threads : served_to_gpu {
  static std::string drive_keys() { return of_its_own(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(ServedFromHbm, StorageSuite, from_hbm);
INSTANTIATE_TYPED_TEST_SUITE_P(ServedFromHostMemory, StorageSuite, from_host_memory);
INSTANTIATE_TYPED_TEST_SUITE_P(ServedFromPeer, StorageSuite, from_peer);
INSTANTIATE_TYPED_TEST_SUITE_P(ServedFromThreads, StorageSuite, from_threads);

/// What a kernel wrote to `uri` before a flush, as the host reads it.
void write_all_and_flush(storage& st, std::uint64_t generation) {
  constexpr std::uint32_t threads = 256, blocks = 8;
  registered_buffer const shared = st.allocate_buffer(sizeof(tally));
  registered_buffer const buffer =
      st.allocate_device_buffer(std::uint64_t{threads} * write_all<simt::cuda>::in_flight * blocks * st.block_bytes());
  auto* const result = reinterpret_cast<tally*>(shared.data());
  served_to_gpu::run({threads / 64, 64},
                     write_all<simt::cuda>{st.ref<simt::cuda>(), buffer.ref(), threads, blocks, generation, result});
  EXPECT_EQ(result->failed, 0u) << to_string(status::from_bits(result->first_failure));
  st.flush();
}

TEST(served_engine, writes_a_file_back_for_a_gpu) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  std::string const path = testing::TempDir() + "forebay_served_file_drive_" + std::to_string(getpid()) + ".img";
  std::remove(path.c_str());
  std::string const uri = "emulated:backing=file,path=" + path;
  drive::create(uri + ",size=8M");
  storage_options o;
  o.drives = {uri + ",residency=served"};
  o.device = "cuda:0";
  storage st(o);
  write_all_and_flush(st, 5);
  std::vector<std::uint64_t> words(st.size_bytes() / 8);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(words.size() * 8));
  for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i * 8, 5)) << "word " << i;
  std::remove(path.c_str());
}

/// A drive that nobody has open keeps its bytes, and its queue pairs are free for the next one.
TEST(served_engine, keeps_what_was_written_between_clients) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  std::vector<std::string> backings = {"hbm", "host"};
  if (memory::device_count() > 1) backings.push_back("peer:1");
  for (std::string const& backing : backings) {
    storage_options o;
    o.drives = {"emulated:size=8M,sms=1,queues=80,residency=served,seed=2000,backing=" + backing};
    o.device = "cuda:0";
    {
      storage st(o);
      write_all_and_flush(st, 6);
    }
    storage st(o);
    std::vector<std::uint64_t> words(st.size_bytes() / 8);
    st.pread(words.data(), st.size_bytes(), 0);
    for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i * 8, 6)) << backing << " word " << i;
  }
}

}  // namespace storage_test

}  // namespace forebay

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!forebay::served()) {
    GTEST_FLAG_SET(filter, "served/*:served_engine.*");  // which say why they skip
  } else if (forebay::memory::device_count() < 2) {
    std::printf("backing=peer:1 is not tried: there is one GPU\n");
    GTEST_FLAG_SET(filter, GTEST_FLAG_GET(filter) +
                               (GTEST_FLAG_GET(filter).find('-') == std::string::npos ? "-" : ":") +
                               "ServedFromPeer/*");
  }
  return RUN_ALL_TESTS();
}
