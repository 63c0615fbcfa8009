// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each workload of the transfer suite under each stage policy, on the CPU executor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "apps/transfer/registry.hpp"
#include "forebay/error.hpp"
#include "support/seed.hpp"

namespace forebay::transfer {
namespace {

/// The buffers of a workload, aligned to 256 bytes, full of a pattern.
class host_buffers {
 public:
  explicit host_buffers(workload const& work) : buffers_(work.buffers()) {
    for (buffer const& b : buffers_) {
      storage_.emplace_back(b.bytes + alignment_bytes, std::byte{0xa5});
      auto const address = reinterpret_cast<std::uintptr_t>(storage_.back().data());
      addresses_.push_back(storage_.back().data() + (alignment_bytes - address % alignment_bytes) % alignment_bytes);
    }
  }
  views all() const { return views(addresses_); }
  std::vector<buffer> const& list() const { return buffers_; }
  /// The bytes of the buffers whose bytes go back to the host.
  std::string results() const {
    std::string bytes;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].use == buffer_use::in || buffers_[i].use == buffer_use::scratch) continue;
      bytes.append(reinterpret_cast<char const*>(addresses_[i]), buffers_[i].bytes);
    }
    return bytes;
  }

 private:
  static constexpr std::size_t alignment_bytes = 256;
  std::vector<buffer> buffers_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> addresses_;
};

class TransferWorkloads : public ::testing::TestWithParam<registered_workload> {
 protected:
  std::uint64_t const seed_ = emulator::testing::test_seed();
  ::testing::ScopedTrace const how_to_replay_{__FILE__, __LINE__, emulator::testing::replay(seed_)};
};

std::string results_of(workload const& work, stage_kind how, std::uint64_t seed) {
  host_buffers const memory(work);
  work.init(seed, memory.all());
  work.run_on_cpu(how, memory.all());
  EXPECT_EQ(work.mismatch(seed, memory.all()), "") << stage_names[static_cast<int>(how)];
  return memory.results();
}

TEST_P(TransferWorkloads, GiveTheSameVerifiedResultUnderEachPolicy) {
  auto const work = GetParam().make(problem_size::tiny, {});
  std::string const first = results_of(*work, stage_kind::plain, seed_);
  for (stage_kind const how : {stage_kind::async4, stage_kind::async16, stage_kind::bulk}) {
    EXPECT_TRUE(results_of(*work, how, seed_) == first) << stage_names[static_cast<int>(how)];
  }
}

TEST_P(TransferWorkloads, TakeOtherShapes) {
  launch_shape const usual = GetParam().make(problem_size::tiny, {})->shape();
  // A thread of conv3d keeps its sums, so that fewer threads could not have them all.
  bool const keeps_sums = GetParam().facts->name == "conv3d";
  auto const work = GetParam().make(
      problem_size::tiny,
      {.blocks = 3, .threads = keeps_sums ? 2 * usual.threads : usual.threads / 2, .stages = usual.stages + 1});
  EXPECT_EQ(work->shape().blocks, 3u);
  (void)results_of(*work, stage_kind::bulk, seed_);
}

TEST_P(TransferWorkloads, FindAWrongResult) {
  auto const work = GetParam().make(problem_size::tiny, {});
  host_buffers const memory(*work);
  work->init(seed_, memory.all());
  work->run_on_cpu(stage_kind::plain, memory.all());
  ASSERT_EQ(work->mismatch(seed_, memory.all()), "");
  for (std::size_t i = 0; i < memory.list().size(); ++i) {
    buffer const& b = memory.list()[i];
    if (b.use == buffer_use::in || b.use == buffer_use::scratch) continue;
    // The first and the last element are always looked at.
    for (std::uint64_t const at : {std::uint64_t{0}, b.bytes - 4}) {
      std::byte* const element = memory.all().at<std::byte>(i) + at;
      std::uint32_t before, wrong;
      std::memcpy(&before, element, sizeof before);
      wrong = before ^ 0x40000000u;  // of a float's exponent
      std::memcpy(element, &wrong, sizeof wrong);
      EXPECT_THAT(work->mismatch(seed_, memory.all()), ::testing::HasSubstr(b.name + "["));
      std::memcpy(element, &before, sizeof before);
    }
  }
}

TEST_P(TransferWorkloads, HaveBuffersOfTheirSize) {
  constexpr double bytes_min[] = {0.5e6, 8e6, 64e6, 0.25e9, 1e9, 4e9};
  constexpr double bytes_max[] = {8.6e6, 70e6, 600e6, 1.1e9, 9e9, 36e9};
  bool const is_network = GetParam().facts->group == workload_group::network;
  double before = 0;
  for (int size = 0; size < 6; ++size) {
    SCOPED_TRACE(size_names[size]);
    auto const work = GetParam().make(static_cast<problem_size>(size), {});
    double bytes = 0;
    for (buffer const& b : work->buffers()) bytes += static_cast<double>(b.bytes);
    EXPECT_GT(bytes, before);
    before = bytes;
    // A network of full width has the bytes that its layers have.
    if (!is_network || size == 0) {
      EXPECT_GE(bytes, is_network ? 0.25e6 : bytes_min[size]);
      EXPECT_LE(bytes, bytes_max[size]);
    }
    EXPECT_GT(work->costs().operations, 0);
    EXPECT_GT(work->costs().staged_bytes, 0);
    if (size == 0) {
      EXPECT_LE(work->costs().operations, 2.5e8);
    }
  }
}

TEST_P(TransferWorkloads, RefuseShapesThatDoNotFit) {
  auto const refused = [](launch_shape shape) {
    try {
      (void)GetParam().make(problem_size::tiny, shape);
    } catch (refused_input const& refusal) {
      return std::string(refusal.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(refused({.threads = 1025}), ::testing::HasSubstr("--threads"));
  EXPECT_THAT(refused({.blocks = 1u << 31}), ::testing::HasSubstr("--blocks"));
  EXPECT_THAT(refused({.blocks = 1u << 26, .threads = 64}), ::testing::HasSubstr("at most 67108863 in a grid"));
  EXPECT_THAT(refused({.stages = 9}), ::testing::HasSubstr("--stages"));
  EXPECT_THAT(refused({.tile = 3}), ::testing::HasSubstr("--tile"));
  EXPECT_THAT(refused({.tile = 1u << 31}), ::testing::HasSubstr("--tile"));
}

registered_workload const& conv3d() {
  return *std::ranges::find(workloads(), "conv3d", [](registered_workload const& w) { return w.facts->name; });
}

TEST(TransferConv3d, TakesTheStudysTileAndOneLessDeep) {
  for (launch_shape const shape : {launch_shape{.threads = 64, .tile = 10}, {.threads = 128, .tile = 14}}) {
    SCOPED_TRACE(shape.tile);
    (void)results_of(*conv3d().make(problem_size::tiny, shape), stage_kind::async4, 1);
  }
  // Of 14 along an edge, seven cover the cube, but eight are in the depth.
  EXPECT_EQ(conv3d().make(problem_size::tiny, {.threads = 128, .tile = 14})->shape().blocks, 7u * 7 * 8);
}

TEST(TransferConv3d, FillsTheLastRoundOfBlocks) {
  EXPECT_EQ(conv3d().make(problem_size::large, {})->shape().blocks, 7u * 7 * 8);
}

TEST(TransferConv3d, RefusesThreadsThatCannotKeepAllSums) {
  auto const make = [](launch_shape shape) { return [shape] { (void)conv3d().make(problem_size::tiny, shape); }; };
  EXPECT_THAT(make({.threads = 63}), ::testing::ThrowsMessage<refused_input>(
                                         ::testing::HasSubstr("--threads: '63': with this tile use 64 to")));
  EXPECT_THAT(make({.threads = 1024}), ::testing::ThrowsMessage<refused_input>(::testing::HasSubstr("64 to 768")));
}

/// Under AddressSanitizer the micro workloads: the others take minutes there, and have kernels of the same kind.
std::vector<registered_workload> tested() {
  std::vector<registered_workload> list;
  for (registered_workload const& w : workloads()) {
#if defined(__SANITIZE_ADDRESS__)
    if (w.facts->group != workload_group::micro) continue;
#endif
    list.push_back(w);
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(All, TransferWorkloads, ::testing::ValuesIn(tested()),
                         [](auto const& test) { return std::string(test.param.facts->name); });

}  // namespace
}  // namespace forebay::transfer
