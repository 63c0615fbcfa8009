// SPDX-License-Identifier: Apache-2.0
// The engines of file_io with the data in the memory of the first GPU.
#include <gtest/gtest.h>

#include <string>

#include "apps/file_io/file_io.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "scratch_file.hpp"

namespace forebay::file_io {
namespace {

constexpr std::uint64_t file_bytes = 8 << 20;

class file_io_on_gpu : public ::testing::TestWithParam<char const*> {
 protected:
  void SetUp() override {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU here, or CUDA is not built in";
    try {
      run(of({.block_bytes = 4096, .size_bytes = 4096}));
    } catch (refused_input const& why) {
      GTEST_SKIP() << why.what();
    }
  }
  options of(block_io::options const& job) const {
    return {.path = scratch.path(), .engine = GetParam(), .gpu = 0, .job = job};
  }

  testing::scratch_file const scratch{file_bytes};
};

TEST_P(file_io_on_gpu, every_mix_verifies_at_every_depth) {
  for (std::uint32_t read_percent : {100u, 0u, 60u}) {
    for (std::uint32_t depth : {1u, 7u, 32u}) {
      for (std::uint64_t bytes : {4096ull, 65536ull, 1048576ull}) {
        SCOPED_TRACE(std::to_string(read_percent) + " % reads, depth " + std::to_string(depth) + ", bytes " +
                     std::to_string(bytes));
        auto const r = run(of({.read_percent = read_percent,
                               .block_bytes = bytes,
                               .iodepth = depth,
                               .seed = read_percent + depth,
                               .verify = true}));
        EXPECT_EQ(r.job.read.completion.summary.count + r.job.write.completion.summary.count, file_bytes / bytes);
        EXPECT_EQ(r.job.errors, 0u) << r.first_error;
        EXPECT_EQ(r.job.mismatches, 0u);
        EXPECT_EQ(r.cufile.empty(), std::string(GetParam()) != "cufile") << r.way;
      }
    }
  }
}

TEST_P(file_io_on_gpu, a_timed_run_reads_and_writes) {
  for (std::uint32_t read_percent : {100u, 0u}) {
    auto const r = run(of({.read_percent = read_percent, .block_bytes = 65536, .iodepth = 8, .runtime_s = 0.2}));
    EXPECT_GT(r.job.read.completion.summary.count + r.job.write.completion.summary.count, 0u);
    EXPECT_EQ(r.job.errors, 0u) << r.first_error;
  }
}

INSTANTIATE_TEST_SUITE_P(all, file_io_on_gpu, ::testing::Values("mmap", "pread", "io_uring", "cufile"),
                         [](auto const& engine) { return std::string(engine.param); });

}  // namespace
}  // namespace forebay::file_io
