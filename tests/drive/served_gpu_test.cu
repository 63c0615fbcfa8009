// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives on a GPU that a daemon serves: the conformance list, and the storage suite from a GPU. Needs a daemon, which
//! FOREBAY_DAEMON names, and with it MPS.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/conformance.hpp"
#include "conformance/suite.hpp"
#include "drive/served/channel.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "storage/storage_suite.hpp"
#include "support/foreign_gpu_memory.hpp"

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

storage_options lending_to(std::vector<std::string> const& backings) {
  storage_options o;
  for (std::string const& backing : backings) {
    o.drives.push_back("emulated:size=8M,sms=2,queues=256,residency=served,seed=" +
                       std::to_string(3000 + o.drives.size()) + ",backing=" + backing);
  }
  o.device = "cuda:0";
  return o;
}

/// Kernels fill the drives from `own` and read them back into it.
void write_and_read(storage& st, registered_buffer const& own, std::uint64_t generation) {
  constexpr std::uint32_t threads = 64, blocks = 8;
  std::uint64_t const part = std::uint64_t{threads} * write_all<simt::cuda>::in_flight * blocks * st.block_bytes();
  ASSERT_LE(part, own.size_bytes());
  registered_buffer const shared = st.allocate_buffer(sizeof(tally));
  auto* const result = reinterpret_cast<tally*>(shared.data());
  served_to_gpu::run({1, threads},
                     write_all<simt::cuda>{st.ref<simt::cuda>(), own.ref(), threads, blocks, generation, result});
  std::uint64_t const read_at = st.size_bytes() / 2 - part / 2;  // on either side of the middle
  memory::check_cuda(cudaMemset(own.data(), 0, own.size_bytes()), "cudaMemset");
  served_to_gpu::run({1, 32}, one_transfer<simt::cuda>{st.ref<simt::cuda>(), own.ref(), read_at, part, false, result});
  EXPECT_EQ(result->failed, 0u) << to_string(status::from_bits(result->first_failure));
  std::vector<std::uint64_t> words(st.size_bytes() / 8), back(part / 8);
  st.pread(words.data(), st.size_bytes(), 0);
  memory::device(0).copy_out(back.data(), own.data(), part);
  for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i * 8, generation)) << "word " << i;
  for (std::uint64_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], stamp(read_at + i * 8, generation)) << i;
}

TEST(served_engine, reaches_memory_of_the_users_own_cuda_malloc) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  std::vector<std::vector<std::string>> places = {{"hbm"}, {"host"}, {"hbm", "hbm"}};
  if (memory::device_count() > 1) places.push_back({"peer:1"});
  for (auto const& backings : places) {
    SCOPED_TRACE(backings.front() + " of " + std::to_string(backings.size()));
    storage st(lending_to(backings));
    std::uint64_t generation = 7;
    // The later ones lie where the first one was, and are other allocations.
    for (std::size_t const bytes : {3u << 20, 3u << 20, 3u << 20, 34u << 20}) {
      foreign_gpu_memory const own(bytes);
      write_and_read(st, st.register_buffer(own.data(), bytes), ++generation);
      write_and_read(st, st.register_buffer(own.data() + 4096, bytes - 8192), ++generation);
      registered_buffer const first = st.register_buffer(own.data(), bytes / 2);
      registered_buffer const second = st.register_buffer(own.data() + bytes / 2, bytes / 2);
      write_and_read(st, second, ++generation);
      write_and_read(st, first, ++generation);
    }
  }
}

/// A buffer outlives the memory that it registered, in whose place there is other memory.
TEST(served_engine, tells_memory_that_was_freed_from_memory_in_its_place) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  constexpr std::size_t bytes = 4 << 20;
  storage st(lending_to({"hbm"}));
  auto own = std::make_unique<foreign_gpu_memory>(bytes);
  registered_buffer buffer = st.register_buffer(own->data(), bytes);
  std::uint64_t generation = 20;
  for (std::size_t const next_bytes : {bytes, bytes / 2, bytes, bytes / 2, bytes / 2}) {
    std::byte const* const before = own->data();
    own.reset();
    own = std::make_unique<foreign_gpu_memory>(next_bytes);
    EXPECT_EQ(own->data(), before) << "CUDA gave memory elsewhere, so this tries little";
    buffer = st.register_buffer(own->data(), next_bytes);  // and only then lets go of what it was
    write_and_read(st, buffer, ++generation);
  }
}

/// A client may send any handle. The daemon neither dies of it nor takes more memory than there is for lent.
TEST(served_engine, lives_through_forged_handles) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  constexpr std::size_t bytes = 4 << 20;
  storage st(lending_to({"hbm"}));
  foreign_gpu_memory const own(bytes);
  registered_buffer const mine = st.register_buffer(own.data(), bytes);
  auto const handle = memory::lendable(own.data())->handle;
  {
    drive::served::channel rude(drive::served::connect_to(drive::daemon_socket()), drive::served::from_daemon);
    auto const answer_to = [&](nlohmann::json const& request) {
      rude.send(request);
      auto reply = rude.receive(20'000);
      EXPECT_TRUE(reply) << request;
      return reply ? std::move(reply->body) : nlohmann::json();
    };
    nlohmann::json const opened = answer_to({{"do", "open"},
                                             {"protocol", drive::served::protocol_version},
                                             {"uri", lending_to({"hbm"}).drives[0]},
                                             {"gpu", 0},
                                             {"with_gpu", true},
                                             {"queues", 1}});
    ASSERT_TRUE(opened.contains("daemon")) << opened;
    std::size_t taken = 0;
    for (std::size_t i = 0; i < handle.size(); ++i) {
      for (unsigned const flip : {0x01u, 0x80u, 0xffu}) {
        auto forged = handle;
        forged[i] = static_cast<std::uint8_t>(forged[i] ^ flip);
        nlohmann::json const reply = answer_to({{"do", "lend"}, {"handle", forged}});
        if (!reply.contains("bytes")) continue;
        ++taken;
        EXPECT_LE(reply.at("bytes").get<std::uint64_t>(), bytes) << "byte " << i << " changed by " << flip;
      }
    }
    std::printf("%zu of %zu forged handles were taken for the true one\n", taken, handle.size() * 3);
    // Its end makes the engine of the drive leave and come back.
  }
  storage other(lending_to({"hbm"}));
  write_and_read(st, mine, 60);
  write_and_read(other, other.register_buffer(own.data(), bytes), 61);
}

TEST(served_engine, refuses_memory_that_no_other_process_can_open) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  constexpr std::size_t bytes = 2 << 20;
  storage st(lending_to({"hbm"}));
  void* of_pool = nullptr;
  memory::cuda_stream const stream(0);
  memory::check_cuda(cudaMallocAsync(&of_pool, bytes, stream.get()), "cudaMallocAsync");
  stream.synchronize();
  EXPECT_THROW((void)st.register_buffer(of_pool, bytes), refused_input);
  memory::check_cuda(cudaFreeAsync(of_pool, stream.get()), "cudaFreeAsync");
  void* managed = nullptr;
  memory::check_cuda(cudaMallocManaged(&managed, bytes), "cudaMallocManaged");
  EXPECT_THROW((void)st.register_buffer(managed, bytes), refused_input);
  memory::check_cuda(cudaFree(managed), "cudaFree");
  memory::allocation const locked(memory::pinned(), bytes, 4096);
  EXPECT_THROW((void)st.register_buffer(locked.data(), bytes), refused_input);
  foreign_gpu_memory const own(bytes);
  EXPECT_THROW((void)st.register_buffer(own.data(), 2 * bytes), refused_input);
  // None of which has done harm.
  write_and_read(st, st.register_buffer(own.data(), bytes), 40);
}

constexpr std::size_t large_bytes = std::size_t{2} << 30;
constexpr char const* die_with_lent_memory = "die-with-lent-memory";

/// The part of the next test that is killed.
[[noreturn]] void lend_and_die() {
  storage st(lending_to({"hbm"}));
  foreign_gpu_memory const own(large_bytes);
  write_and_read(st, st.register_buffer(own.data(), large_bytes), 50);
  registered_buffer const still = st.register_buffer(own.data(), large_bytes);
  std::raise(SIGKILL);
  std::abort();
}

std::size_t free_bytes() {
  std::size_t unused = 0, all = 0;
  memory::check_cuda(cudaMemGetInfo(&unused, &all), "cudaMemGetInfo");
  return unused;
}

TEST(served_engine, gives_back_what_a_killed_client_lent) {
  if (!served()) GTEST_SKIP() << "no GPU, or FOREBAY_DAEMON names no daemon";
  storage st(lending_to({"hbm"}));  // whose engine leaves for a moment, and goes on
  foreign_gpu_memory const own(2 << 20);
  registered_buffer const mine = st.register_buffer(own.data(), own.size_bytes());
  write_and_read(st, mine, 49);
  std::size_t const before = free_bytes();
  pid_t const child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "served_gpu_test", die_with_lent_memory, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << how;
  EXPECT_TRUE(simt::native::wait_until([&] { return free_bytes() + large_bytes / 2 > before; },
                                       simt::native::clock_ns() + 10'000'000'000))
      << before << " bytes were free, and now " << free_bytes();
  write_and_read(st, mine, 51);
}

}  // namespace storage_test

}  // namespace forebay

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], forebay::storage_test::die_with_lent_memory) == 0) {
    forebay::storage_test::lend_and_die();
  }
  testing::InitGoogleTest(&argc, argv);
  if (!forebay::served() && GTEST_FLAG_GET(filter) == "*") {
    // The first say why they skip; the last need no daemon.
    GTEST_FLAG_SET(filter, "served/*:served_engine.*:drive_on_the_bus.*");
  } else if (forebay::memory::device_count() < 2) {
    std::printf("backing=peer:1 is not tried: there is one GPU\n");
    GTEST_FLAG_SET(filter, GTEST_FLAG_GET(filter) +
                               (GTEST_FLAG_GET(filter).find('-') == std::string::npos ? "-" : ":") +
                               "ServedFromPeer/*");
  }
  return RUN_ALL_TESTS();
}
