// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "apps/recommender/trace.hpp"
#include "forebay/error.hpp"

namespace forebay::recommender {
namespace {

class temporary_file {
 public:
  explicit temporary_file(std::string const& name)
      : path_(std::filesystem::temp_directory_path() / ("forebay_" + std::to_string(::getpid()) + "_" + name)) {}
  ~temporary_file() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

zipf_options small() {
  return {.samples = 50, .dense = 2, .table_rows = {10, 1, 1000}, .exponent = 1.2, .seed = 3};
}

TEST(library_dlrm_trace, zipf_draws_have_their_shares) {
  zipf_options o{.samples = 40000, .dense = 1, .table_rows = {1000}, .exponent = 1.05, .seed = 7};
  dlrm_trace const trace = make_zipf_trace(o);
  std::map<std::uint32_t, std::uint64_t> counts;
  for (std::uint32_t const row : trace.rows) ++counts[row];
  std::vector<std::uint64_t> by_rank;
  for (auto const& [row, count] : counts) by_rank.push_back(count);
  std::sort(by_rank.rbegin(), by_rank.rend());
  auto const share = [&](double from, double to) {
    double const power = 1 - o.exponent;
    return (std::pow(to, power) - std::pow(from, power)) / (std::pow(1001, power) - 1);
  };
  double const draws = 40000;
  for (int const rank : {1, 2, 5}) {
    double const want = share(rank, rank + 1);
    // Six standard deviations of a binomial distribution.
    EXPECT_NEAR(static_cast<double>(by_rank[static_cast<std::size_t>(rank - 1)]) / draws, want,
                6 * std::sqrt(want / draws))
        << rank;
  }
  std::uint64_t first_ten = 0;
  for (std::size_t i = 0; i < 10; ++i) first_ten += by_rank[i];
  EXPECT_NEAR(static_cast<double>(first_ten) / draws, share(1, 11), 0.02);
}

TEST(library_dlrm_trace, rows_are_those_of_their_table_and_all_can_be_drawn) {
  zipf_options o = small();
  o.samples = 5000;
  o.exponent = 0.01;
  dlrm_trace const trace = make_zipf_trace(o);
  std::set<std::uint32_t> seen[3];
  for (std::size_t i = 0; i < trace.rows.size(); ++i) seen[i % 3].insert(trace.rows[i]);
  EXPECT_EQ(seen[0].size(), 10u);
  EXPECT_EQ(*seen[0].rbegin(), 9u);
  EXPECT_EQ(seen[1].size(), 1u);
  EXPECT_GT(seen[2].size(), 950u);
  EXPECT_LT(*seen[2].rbegin(), 1000u);
}

TEST(library_dlrm_trace, rows_in_one_table_follow_each_other) {
  dlrm_trace trace = make_zipf_trace(small());
  auto const numbers = trace.rows_in_one_table();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint32_t const first[] = {0, 10, 11};
    ASSERT_EQ(numbers[i], first[i % 3] + trace.rows[i]);
  }
  EXPECT_EQ(trace.rows_of_all_tables(), 1011u);
  trace.table_rows = {0xffffffff, 1, 1};
  EXPECT_THROW(trace.rows_in_one_table(), refused_input);
}

TEST(library_dlrm_trace, options_that_cannot_be_meant_are_refused) {
  for (double const exponent : {0.0, -1.0, 1.0}) {
    zipf_options o = small();
    o.exponent = exponent;
    EXPECT_THROW(make_zipf_trace(o), refused_input);
  }
  zipf_options o = small();
  o.rows_max = 0;
  EXPECT_THROW(make_zipf_trace(o), refused_input);
  o.table_rows.clear();
  EXPECT_THROW(make_zipf_trace(o), refused_input);
}

TEST(library_dlrm_trace, a_file_holds_the_same) {
  temporary_file const file("same.trace");
  dlrm_trace const trace = make_zipf_trace(small());
  write_trace(trace, file.path());
  dlrm_trace const read = read_trace(file.path());
  EXPECT_EQ(read.source, file.path());
  EXPECT_EQ(read.dense, trace.dense);
  EXPECT_EQ(read.table_rows, trace.table_rows);
  EXPECT_EQ(read.dense_values, trace.dense_values);
  EXPECT_EQ(read.rows, trace.rows);
}

TEST(library_dlrm_trace, a_file_that_is_not_right_is_refused) {
  temporary_file const file("wrong.trace");
  dlrm_trace trace = make_zipf_trace(small());
  trace.rows[7] = 1;  // of table 1, which has row 0 only
  write_trace(trace, file.path());
  EXPECT_THROW(read_trace(file.path()), refused_input);
  trace.rows[7] = 0;
  write_trace(trace, file.path());
  auto const bytes = std::filesystem::file_size(file.path());
  std::filesystem::resize_file(file.path(), bytes - 1);
  EXPECT_THROW(read_trace(file.path()), refused_input);
  write_trace(trace, file.path());
  std::filesystem::resize_file(file.path(), bytes + 1);
  EXPECT_THROW(read_trace(file.path()), refused_input);
  std::ofstream(file.path()) << "something else entirely";
  EXPECT_THROW(read_trace(file.path()), refused_input);
  EXPECT_THROW(read_trace(file.path() + ".none"), refused_input);
}

}  // namespace
}  // namespace forebay::recommender
